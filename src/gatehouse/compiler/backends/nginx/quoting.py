"""The only module that turns values into NGINX tokens. Values are untrusted before."""

from __future__ import annotations

import re

from gatehouse.compiler.backends.failures import InvalidValueError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WORD = re.compile(r"[A-Za-z0-9_$@./:=~^*+,%\[\]!-]+")
_HEADER = re.compile(r"[A-Za-z0-9_.!#%&'*+^`|~-]+")
_MAP_WORDS = ("default", "include", "hostnames", "volatile")

MAX_TOKEN_BYTES = 4000
"""Bytes; NGINX reads its configuration through a buffer of 4,096, which a token must fit."""


def word(text: str) -> str:
    """Check a token of the generator. Never pass user input."""
    assert _WORD.fullmatch(text), text
    return text


def quote_text_literal(value: str) -> str:
    """Quote a literal where NGINX expands variables, including ``$``, which has no escape."""
    return _quote(value).replace("$", "${gh_dollar}")


def quote_literal(value: str) -> str:
    """Quote a literal where NGINX expands nothing: patterns, map keys, names."""
    return _quote(value)


def quote_template(*parts: str | tuple[str]) -> str:
    """Quote a text of literals (str) and variables (a tuple of the name without ``$``)."""
    inner = "".join(
        f"${{{word(part[0])}}}" if isinstance(part, tuple) else quote_text_literal(part)[1:-1]
        for part in parts
    )
    return f'"{inner}"'


def name_pattern(value: str) -> str:
    """Return the regular expression that matches a name of letters, digits and punctuation."""
    return "".join(c if c.isalnum() else f"\\{c}" for c in value)


def map_key(value: str) -> str:
    """Quote a literal key of a map; words with a special meaning are escaped."""
    if value in _MAP_WORDS or value[:1] in ("~", "\\"):
        value = f"\\{value}"
    return _quote(value)


def checked_header_name(name: str) -> str:
    """Check the name of a header. Raises :class:`InvalidValueError`."""
    if not _HEADER.fullmatch(name):
        raise InvalidValueError("header name contains characters that NGINX does not support")
    return _quote(name)


def _quote(value: str) -> str:
    if _CONTROL.search(value):
        raise InvalidValueError("value contains control characters")
    if len(value.encode("utf-8", "surrogatepass")) > MAX_TOKEN_BYTES:
        raise InvalidValueError(f"value is longer than {MAX_TOKEN_BYTES} bytes")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError("value is not valid Unicode") from error
    # A quoted token also un-escapes \t, \r and \n, so that every backslash is doubled.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
