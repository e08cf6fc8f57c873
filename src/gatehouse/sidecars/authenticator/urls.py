"""URLs: where users may be sent. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, urlencode

MAX_RETURN_PATH_BYTES = 2000
"""Bytes of a path that is kept through a login, in a cookie."""

_OWN = re.compile(r"/(?![/\\])[^\\\x00-\x20\x7f]*")


def safe_return_path(uri: str) -> str:
    """Give where to return after a login: a path of the same origin, else its root.

    A browser takes ``//host``, ``/\\host`` and the like for another origin.
    """
    if not _OWN.fullmatch(uri):
        return "/"
    # What is no ASCII came as raw bytes, and goes back encoded.
    found = quote(uri.encode("utf-8", "surrogateescape"), safe="/?#[]@!$&'()*+,;=:%~-._")
    return found if len(found) <= MAX_RETURN_PATH_BYTES else "/"


def absolute(origin: str, where: str) -> str:
    """Give the URL of a path; what is a URL already stays."""
    return f"{origin}{where}" if where.startswith("/") else where


def with_query(url: str, query: Iterable[tuple[str, str]]) -> str:
    """Give a URL with more of a query."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode([*query])}"
