"""What a connector is told: one file of the bundle, relative to the configuration directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

FILE = "gatehouse/connectors.json"
"""Where the description is; only configurations that need a connector have it."""

SOCKETS = "connectors"
"""The directory of the sockets, in the run directory, which is NGINX's working directory."""


class Name(msgspec.Struct, frozen=True):
    """A name that a certificate may have."""

    kind: Literal["dns", "uri"]
    value: str


class Connector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A socket, and the endpoint that is reached by it."""

    socket: str
    """Depends on all the rest, so that it never changes its meaning while workers use it."""
    cluster: str
    address: str
    port: int
    server_name: str
    """Sent in the handshake."""
    names: tuple[Name, ...]
    """One of these must be in the endpoint's certificate."""
    trust: str
    """File of the authorities that the certificate must chain to."""
    certificate: str = ""
    key: str = ""
    """Files of what is shown to the endpoint; empty for nothing."""
    alpn: str = ""
    """The protocol offered in the handshake; empty for none."""

    @property
    def shown(self) -> str:
        """What is said of it in the log."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"connector: cluster {self.cluster}, endpoint {host}:{self.port}"


def encode(connectors: Iterable[Connector]) -> bytes:
    """Write a description, a line for each."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, connectors)) + b"\n]\n"


def read(directory: Path) -> list[Connector]:
    """Read the description of a configuration; raises OSError, msgspec.MsgspecError."""
    return msgspec.json.decode((directory / FILE).read_bytes(), type=list[Connector])
