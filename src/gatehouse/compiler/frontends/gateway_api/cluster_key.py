"""Key of a cluster: a port of a Service or XBackend, and the protocol used to connect to it."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

Protocol = Literal["http", "h2c", "grpc", "tcp", "udp"]

SERVICE, X_BACKEND = "Service", "XBackend"
"""Kinds of backends."""


class ClusterKey(msgspec.Struct, frozen=True, order=True):
    """A port of a Service or XBackend and the protocol used to connect to it."""

    namespace: str
    service: str
    """Name of the Service or XBackend."""
    port: int
    protocol: Protocol
    kind: str = SERVICE

    @property
    def name(self) -> str:
        """Name of the cluster: readable, and unique by its hash."""
        whole = f"{self.namespace}/{self.service}/{self.port}/{self.protocol}"
        if self.kind != SERVICE:
            whole = f"{self.kind}/{whole}"
        digest = hashlib.sha256(whole.encode()).hexdigest()[:12]
        readable = re.sub(r"[^a-z0-9]+", "-", f"{self.namespace}-{self.service}-{self.port}")
        return f"c-{readable[:46].strip('-')}-{digest}"

    @property
    def transport(self) -> str:
        """Transport protocol as in Services."""
        return "UDP" if self.protocol == "udp" else "TCP"
