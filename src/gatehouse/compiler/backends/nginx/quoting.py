"""The only module that turns values into NGINX tokens. Values are untrusted before."""

from __future__ import annotations

import re

from gatehouse.compiler.backends.failures import InvalidValueError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WORD = re.compile(r"[A-Za-z0-9_$@./:=~^*+,%\[\]!-]+")
_HEADER = re.compile(r"[A-Za-z0-9_.!#%&'*+^`|~-]+")
_MAP_WORDS = ("default", "include", "hostnames", "volatile")

MAX_TOKEN_BYTES = 4000
"""Maximum bytes of a value with its escapes. NGINX reads its configuration through a buffer of
4,096, which a token must fit."""

HEADERS_HASH_BUCKET_BYTES = 512
"""Size of a bucket of NGINX's tables of header names."""

_MAX_HEADER_NAME_CHARACTERS = HEADERS_HASH_BUCKET_BYTES - 18
"""Maximum length of a name in these tables: a bucket has two pointers and a length besides it."""

_DOLLAR = "${gh_dollar}"
"""A literal dollar sign where NGINX expands variables: it has no escape."""


def word(text: str) -> str:
    """Check a token of the generator. Never pass user input."""
    assert _WORD.fullmatch(text), text
    return text


def quote_text_literal(value: str, what: str = "value") -> str:
    """Quote a literal where NGINX expands variables. ``what``: the field, for errors.

    Raises InvalidValueError.
    """
    quoted = quote_literal(value, what)
    return fitting(quoted.replace("$", _DOLLAR), what) if "$" in quoted else quoted


def quote_literal(value: str, what: str = "value") -> str:
    """Quote a literal where NGINX expands nothing: patterns, map keys, names.

    ``what``: the field, for errors. Raises InvalidValueError.
    """
    if _CONTROL.search(value):
        raise InvalidValueError(f"{what} contains control characters")
    # A quoted token also un-escapes \t, \r and \n, so that every backslash is doubled.
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    token = f'"{escaped}"'
    return token if token.isascii() and len(token) <= MAX_TOKEN_BYTES else fitting(token, what)


def quote_template(*parts: str | tuple[str], what: str = "value") -> str:
    """Quote a text of literals (str) and variables (a tuple of the name without ``$``).

    ``what``: the field, for errors. Raises InvalidValueError.
    """
    inner = "".join(
        f"${{{word(part[0])}}}" if isinstance(part, tuple) else quote_text_literal(part, what)[1:-1]
        for part in parts
    )
    return fitting(f'"{inner}"', what)


def literal_bytes(value: str) -> int:
    """Return the bytes of a literal where NGINX expands nothing, without quotation marks."""
    return len(value.encode("utf-8", "surrogatepass")) + value.count("\\") + value.count('"')


def text_literal_bytes(value: str) -> int:
    """Return the bytes of a literal where NGINX expands variables, without quotation marks."""
    return literal_bytes(value) + value.count("$") * (len(_DOLLAR) - 1)


def map_key(value: str) -> str:
    """Quote a literal key of a map; words with a special meaning are escaped."""
    if value in _MAP_WORDS or value[:1] in ("~", "\\"):
        value = f"\\{value}"
    return quote_literal(value)


def checked_header_name(name: str) -> str:
    """Check the name of a header. Raises :class:`InvalidValueError`."""
    if not _HEADER.fullmatch(name):
        raise InvalidValueError(
            f"header name {name} contains characters that NGINX does not support"
        )
    if len(name) > _MAX_HEADER_NAME_CHARACTERS:
        raise InvalidValueError(
            f"header name {name[:64]}... is longer than {_MAX_HEADER_NAME_CHARACTERS} characters, "
            "which NGINX does not support"
        )
    return quote_literal(name)


def fitting(token: str, what: str) -> str:
    """Check the length of a quoted token, such as one joined of several. Return it.

    ``what``: the field, for errors. Raises InvalidValueError.
    """
    try:
        size = len(token.encode()) - 2
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"{what} is not valid Unicode") from error
    if size > MAX_TOKEN_BYTES:
        raise InvalidValueError(
            f"{what} is longer than {MAX_TOKEN_BYTES} bytes with its escapes in NGINX's syntax"
        )
    return token
