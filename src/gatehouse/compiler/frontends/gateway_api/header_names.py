"""Headers that a user's object must not have a proxy write or remove. No I/O."""

from __future__ import annotations

RESERVED = frozenset(
    {
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Header names in lower case that delimit a message or belong to one connection (RFC 9110, 7.6.1).

A proxy that sends a Content-Length that differs from the body's length turns the rest of the body
into the next request of the connection, which may be another user's.
"""


def problem(name: str) -> str:
    """Return why the header ``name`` must not be changed; empty if it may."""
    if name.lower() not in RESERVED:
        return ""
    return f"header {name} belongs to the connection and must not be changed"
