"""Regular expressions: RE2 as the Gateway API means it, PCRE as NGINX runs it. Pure."""

from __future__ import annotations

import re

from gatehouse.compiler.backends.nginx.quoting import InvalidValueError

MAX_PATTERN_CHARACTERS = 1024
"""Characters; the Gateway API's own limit for header values is 4,096, for paths 1,024."""

_FOREIGN = re.compile(r"(?<!\\)(?:\\\\)*(\(\?[=!<>P#&R0-9+|(-]|\(\*|\\[1-9gkKGQE])")
_PLAIN = re.compile(r"[A-Za-z0-9_/-]")


def escape(value: str) -> str:
    """Give the pattern that matches exactly ``value``."""
    return "".join(c if _PLAIN.fullmatch(c) or ord(c) > 127 else f"\\{c}" for c in value)


def encoded(value: str) -> str:
    """Give the pattern that matches ``value`` and its percent-encoded spellings."""
    return "".join(encodings(value))


def encodings(value: str) -> list[str]:
    """Give the patterns of ``value`` byte by byte, as :func:`encoded` joins them."""
    return [_byte(byte) for byte in value.encode()]


def _byte(byte: int) -> str:
    code = f"(?i:%{byte:02x})"
    if byte == 0x20:
        return f"(?:\\+|{code})"
    if byte > 127:
        # A raw byte of a multi-byte character cannot be written in UTF-8 text by itself.
        return f"(?:{code}|\\x{byte:02x})"
    return f"(?:{escape(chr(byte))}|{code})"


def whole(pattern: str) -> str:
    """Give the pattern that holds when an RE2 expression matches the whole of a non-empty value.

    Raises UnwritableError for what RE2 does not know (look-around, back-references, named groups)
    and for what is no expression at all.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise InvalidValueError(
            f"a regular expression is longer than {MAX_PATTERN_CHARACTERS} characters"
        )
    if _FOREIGN.search(pattern):
        raise InvalidValueError("a regular expression uses what RE2 does not know")
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidValueError(f"a regular expression is not valid: {error.msg}") from error
    return f"^(?=.)(?:{pattern})$"
