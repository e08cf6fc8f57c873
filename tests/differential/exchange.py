"""A request, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass
class Request:
    """A request as it goes over the wire."""

    host: str
    method: str
    target: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    port: int = 8080
    sni: str | None = None
    """The name in the handshake, on ports that end TLS."""
    version: int = 1
    authority: str | None = None
    """Given: the target is sent in absolute form, with this authority."""
    body: bytes = b""

    @property
    def asked(self) -> str:
        """The host that is asked for (RFC 9112, 3.2.2: an absolute target overrules Host)."""
        return self.host if self.authority is None else self.authority

    def header(self, name: str) -> str:
        """Give a header's value; several lines are one, joined by commas (RFC 9110, 5.2)."""
        return ", ".join(v for n, v in self.headers if n.lower() == name)


@dataclass
class Expected:
    """What a client must get, and a backend must see."""

    status: int
    backends: frozenset[str] = frozenset()
    path: bytes | None = None
    """Decoded, as the backend must see it; None: the target exactly as it was sent."""
    query: str = ""
    host: str = ""
    headers: dict[str, str | None] = field(default_factory=dict)
    """Request headers that the backend must see (None: must not), by lower-case name."""
    response: dict[str, str | None] = field(default_factory=dict)
    location: str = ""
    by_backend: dict[str, tuple[dict[str, str | None], dict[str, str | None]]] = field(
        default_factory=dict
    )
    """Of backends with filters of their own: ``headers`` and ``response``."""


REFUSED = Expected(0)
"""The handshake fails."""
