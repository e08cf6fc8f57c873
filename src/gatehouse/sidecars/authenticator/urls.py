"""URLs of redirects. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, urlencode

MAX_RETURN_PATH_BYTES = 2000
"""Maximum size in bytes of a path that is stored in a cookie during a login."""

_OWN = re.compile(r"/(?![/\\])[^\\\x00-\x20\x7f]*")


def safe_return_path(uri: str) -> str:
    """Return the path to return to after a login: a path of the same origin, or its root.

    Browsers treat ``//host``, ``/\\host`` and similar as another origin.
    """
    if not _OWN.fullmatch(uri):
        return "/"
    # Non-ASCII characters were received as raw bytes and are returned encoded.
    path = quote(uri.encode("utf-8", "surrogateescape"), safe="/?#[]@!$&'()*+,;=:%~-._")
    return path if len(path) <= MAX_RETURN_PATH_BYTES else "/"


def absolute(origin: str, where: str) -> str:
    """Return the URL of a path. A URL is returned unchanged."""
    return f"{origin}{where}" if where.startswith("/") else where


def with_query(url: str, query: Iterable[tuple[str, str]]) -> str:
    """Return a URL with additional query parameters."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode([*query])}"
