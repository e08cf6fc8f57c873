"""A request and its expected response."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass
class Request:
    """A request on the wire."""

    host: str
    method: str
    target: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    port: int = 8080
    sni: str | None = None
    """SNI, on ports that terminate TLS."""
    version: int = 1
    authority: str | None = None
    """Authority of the absolute-form target; empty for origin form."""
    body: bytes = b""

    @property
    def asked(self) -> str:
        """Requested host (RFC 9112, 3.2.2: an absolute target overrides Host)."""
        return self.host if self.authority is None else self.authority

    def header(self, name: str) -> str:
        """Return a header's value; several lines are joined by commas (RFC 9110, 5.2)."""
        return ", ".join(v for n, v in self.headers if n.lower() == name)


@dataclass
class Expected:
    """Expected response to the client and request at the backend."""

    status: int
    backends: frozenset[str] = frozenset()
    path: bytes | None = None
    """Decoded path at the backend; None: the target exactly as sent."""
    query: str = ""
    host: str = ""
    headers: dict[str, str | None] = field(default_factory=dict)
    """Request headers at the backend by lower-case name; None: must be absent."""
    response: dict[str, str | None] = field(default_factory=dict)
    location: str = ""
    by_backend: dict[str, tuple[dict[str, str | None], dict[str, str | None]]] = field(
        default_factory=dict
    )
    """For backends with filters of their own: ``headers`` and ``response``."""


REFUSED = Expected(0)
"""The handshake fails."""
