"""Configuration of the TLS connector: one file, with paths relative to the configuration
directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from gatehouse.sidecars.base.san_match import SubjectAltName
from kube_base.types.ip_addresses import bracketed

CONNECTORS_FILE = "gatehouse/connectors.json"
"""Path of the configuration; absent if no TLS connector is needed."""

CONNECTOR_SOCKETS = "connectors"
"""Directory of the sockets in the run directory, which is NGINX's working directory."""


class Connector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A socket and the endpoint behind it."""

    socket: str
    """Derived from all other fields, so that its meaning never changes while workers use it."""
    cluster: str
    address: str
    port: int
    server_name: str
    """Server name sent in the handshake (SNI)."""
    names: tuple[SubjectAltName, ...]
    """Accepted names; the endpoint's certificate must have one of them."""
    trust: str
    """File with the CA certificates that the endpoint's certificate must chain to."""
    certificate: str = ""
    key: str = ""
    """Files of the client certificate and its key; empty for none."""
    alpn: str = ""
    """ALPN protocol offered in the handshake; empty for none."""

    @property
    def description(self) -> str:
        """Description for the log."""
        endpoint = f"{bracketed(self.address)}:{self.port}"
        return f"connector: cluster {self.cluster}, endpoint {endpoint}"


def encode_connectors(connectors: Iterable[Connector]) -> bytes:
    """Serialise a configuration, one line per connector."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, connectors)) + b"\n]\n"


def read_connectors(directory: Path) -> list[Connector]:
    """Read the connectors of a configuration. Raises OSError or msgspec.MsgspecError."""
    return msgspec.json.decode((directory / CONNECTORS_FILE).read_bytes(), type=list[Connector])
