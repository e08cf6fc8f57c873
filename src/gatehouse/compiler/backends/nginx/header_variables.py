"""Variables with the headers of requests and responses."""

from __future__ import annotations

import re

from gatehouse.compiler.backends.failures import InvalidValueError

_KNOWN = re.compile(r"[A-Za-z0-9-]+")


def is_known_name(name: str) -> bool:
    """Return whether NGINX knows headers of this name: it ignores those with other characters."""
    return _KNOWN.fullmatch(name) is not None


def header_variable(name: str, prefix: str = "http_") -> str:
    """Return the variable of a header whose name NGINX knows, without ``$``."""
    return prefix + name.lower().replace("-", "_")


def request_header(name: str, what: str = "header", use: str = "read") -> str:
    """Return the variable of a header of the client, without ``$``.

    ``what`` and ``use``: the field and its use, for errors. Raises InvalidValueError.
    """
    if not is_known_name(name):
        raise InvalidValueError(f"{what} {name!r} cannot be {use}: NGINX ignores such names")
    return header_variable(name)
