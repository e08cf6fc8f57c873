"""Key of a cluster: a backend, and the protocol used to connect to it."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

Protocol = Literal["http", "h2c", "grpc", "tcp", "udp"]

SERVICE, X_BACKEND, INFERENCE_POOL = "Service", "XBackend", "InferencePool"
"""Kinds of backends."""


class ClusterKey(msgspec.Struct, frozen=True, order=True):
    """A backend and the protocol used to connect to it: a port of a Service or XBackend, or all
    ports of an InferencePool."""

    namespace: str
    service: str
    """Name of the Service, XBackend or InferencePool."""
    port: int
    """0 for an InferencePool."""
    protocol: Protocol
    kind: str = SERVICE
    is_picker: bool = False
    """True for the Service of an endpoint picker, which proxies connect to in another way."""

    @property
    def name(self) -> str:
        """Name of the cluster: readable, and unique by its hash."""
        whole = f"{self.namespace}/{self.service}/{self.port}/{self.protocol}"
        if self.is_picker or self.kind != SERVICE:
            whole = f"{'EndpointPicker' if self.is_picker else self.kind}/{whole}"
        digest = hashlib.sha256(whole.encode()).hexdigest()[:12]
        readable = re.sub(r"[^a-z0-9]+", "-", f"{self.namespace}-{self.service}-{self.port}")
        return f"c-{readable[:46].strip('-')}-{digest}"

    @property
    def transport(self) -> str:
        """Transport protocol as in Services."""
        return "UDP" if self.protocol == "udp" else "TCP"
