"""Names of headers that a user's object may not have a proxy write or remove. Pure."""

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
"""In lower case: headers that delimit a message or belong to one connection (RFC 9110, 7.6.1).

A proxy that sends another Content-Length than the body has lets the rest of the body pass for the
next request of the connection, which may be another user's.
"""


def problem(name: str) -> str:
    """Return why the header ``name`` may not be changed, or an empty text."""
    if name.lower() not in RESERVED:
        return ""
    return f"the header {name} belongs to the connection and must not be changed"
