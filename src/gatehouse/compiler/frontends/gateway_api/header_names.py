"""Rules for headers that users' objects change, the same for both proxies. No I/O."""

from __future__ import annotations

import re
from typing import Literal

RESERVED = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "http2-settings",
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
"""Header names in lower case that delimit a message or belong to one connection (RFC 9110, 7.6.1
and 10.1.1).

A proxy that sends a Content-Length that differs from the body's length turns the rest of the body
into the next request of the connection, which may be another user's.
"""

PROXY_PREFIXES = ("x-accel-", "x-envoy-", "x-gh-")
"""Prefixes in lower case of headers that control a proxy."""

HeaderChange = Literal["set", "add", "remove"]

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_AUTHORITY = re.compile(
    r"(?:[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
)


def is_token(name: str) -> bool:
    """Return whether ``name`` can be the name of a header (RFC 9110, 5.6.2)."""
    return _TOKEN.fullmatch(name) is not None


def problem(name: str) -> str:
    """Return why the header ``name`` must not be changed; empty if it may."""
    if not is_token(name):
        return f"header {name!r} contains characters that HTTP does not permit"
    if name.lower() in RESERVED:
        return f"header {name} belongs to the connection and must not be changed"
    if name.lower().startswith(PROXY_PREFIXES):
        return f"header {name} controls the proxy and must not be changed"
    return ""


def request_problem(change: HeaderChange, name: str, value: str = "") -> str:
    """Return why a request's header ``name`` must not be changed so; empty if it may."""
    if why := problem(name):
        return why
    if name.lower() == "host":
        if change != "set":
            return f"header {name} must not be added or removed, because each request has one"
        return "" if _AUTHORITY.fullmatch(value) else f"value {value!r} of {name} must be a host"
    if "_" in name and change != "remove":
        # Proxies drop such headers of clients, so that removal is permitted and does nothing.
        hyphenated = name.replace("_", "-")
        return (
            f"header {name} contains an underscore: many servers do not distinguish it from "
            f"{hyphenated}, which clients may send"
        )
    return ""
