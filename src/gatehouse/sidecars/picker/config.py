"""Configuration of the picker client, with paths relative to the configuration directory.

One file has the pools. Endpoints are in files of their own, which change without a reload of NGINX
(:mod:`gatehouse.dataplane.endpoints`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from gatehouse.sidecars.base.san_match import SubjectAltName

POOLS_FILE = "gatehouse/pools.json"
"""Path of the configuration; absent if no pool has an endpoint picker."""

POOL_SOCKETS = "pools"
"""Directory of the sockets in the run directory, which is NGINX's working directory."""

PICKER_SECONDS = 10.0
"""Time limit of each answer of a picker, in seconds."""


class PickerTls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """TLS to pickers."""

    server_name: str
    """Server name sent in the handshake (SNI)."""
    trust: str = ""
    """File with the CA certificates that the picker's certificate must chain to; empty: the
    certificate may be any."""
    names: tuple[SubjectAltName, ...] = ()
    """Accepted names; the picker's certificate must have one of them."""
    certificate: str = ""
    key: str = ""
    """Files of the client certificate and its key; empty for none."""


class Pool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pool and the socket on which NGINX sends its requests."""

    socket: str
    """Derived from the name of the cluster: everything else may change while workers use it."""
    cluster: str
    endpoints: str
    pickers: str
    """Files with the endpoints of the pool and of its picker."""
    tls: PickerTls | None = None
    """None: HTTP/2 without TLS."""
    http2: bool = False
    """True: endpoints get HTTP/2 without TLS. False: HTTP/1.1."""
    fail_open: bool = False
    """True: the sidecar chooses if the picker fails. False: such requests get 503."""
    seconds: float = PICKER_SECONDS

    @property
    def description(self) -> str:
        """Description for the log."""
        return f"picker: cluster {self.cluster}"


def encode_pools(pools: Iterable[Pool]) -> bytes:
    """Serialise a configuration, one line per pool."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, pools)) + b"\n]\n"


def read_pools(directory: Path) -> list[Pool]:
    """Read the pools of a configuration. Raises OSError or msgspec.MsgspecError."""
    return msgspec.json.decode((directory / POOLS_FILE).read_bytes(), type=list[Pool])
