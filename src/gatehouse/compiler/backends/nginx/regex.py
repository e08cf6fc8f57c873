"""Regular expressions: RE2 as the Gateway API defines it, PCRE2 as NGINX runs it. No I/O."""

from __future__ import annotations

import re

import pcre2

from gatehouse.compiler.backends.expressions import check_expression
from gatehouse.compiler.backends.failures import InvalidValueError

_MAX_PATTERN_CHARACTERS = 1024
"""Maximum number of characters. The Gateway API permits 4,096 for header values, 1,024 for
paths."""

_FOREIGN = re.compile(r"(?<!\\)(?:\\\\)*(\(\?[=!<>P#&R0-9+|(-]|\(\*|\\[1-9gkKGQE])")
_CODE_POINT = re.compile(r"\\(?:x\{0*([0-9A-Fa-f]{1,2})\}|.)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_/-]")


def escape_regex(value: str) -> str:
    """Return the pattern that matches exactly ``value``."""
    return "".join(c if _PLAIN.fullmatch(c) or ord(c) > 127 else f"\\{c}" for c in value)


def percent_encoded(value: str) -> str:
    """Return the pattern that matches ``value`` and its percent-encoded spellings."""
    return "".join(encodings(value))


def encodings(value: str) -> list[str]:
    """Return the patterns of ``value`` byte by byte, as :func:`percent_encoded` joins them."""
    return [_byte(byte) for byte in value.encode()]


def _byte(byte: int) -> str:
    code = f"(?i:%{byte:02x})"
    if byte == 0x20:
        return f"(?:\\+|{code})"
    if byte > 127:
        # A raw byte of a multi-byte character cannot be written in UTF-8 text by itself.
        return f"(?:{code}|\\x{byte:02x})"
    return f"(?:{escape_regex(chr(byte))}|{code})"


def whole(pattern: str, what: str) -> str:
    """Return the pattern that matches if an RE2 expression matches a whole, non-empty value.

    ``what``: the field, for errors. Raises InvalidValueError.
    """
    # A dollar sign would also match before a line end, which a decoded path may have.
    return rf"^(?=.)(?:{checked(pattern, what)})\z"


def checked(pattern: str, what: str) -> str:
    """Return an RE2 expression as PCRE reads it: a group of a larger pattern.

    ``what``: the field, for errors. Raises InvalidValueError for syntax that RE2 does not support
    (look-around, back-references, named groups) and for invalid expressions.
    """
    if len(pattern) > _MAX_PATTERN_CHARACTERS:
        raise InvalidValueError(
            f"{what}: regular expression is longer than {_MAX_PATTERN_CHARACTERS} characters"
        )
    if _FOREIGN.search(pattern):
        raise InvalidValueError(f"{what}: regular expression uses syntax that RE2 does not support")
    check_expression(pattern, what)
    if "\\" in pattern:
        # The tested library reads the braces as text.
        pattern = _CODE_POINT.sub(_two_digits, pattern)
    # Twice in one pattern: other versions of PCRE may need more of their memory and nesting.
    written = f"^(?=.)(?:(?:{pattern})(?:{pattern}))\\z"
    try:
        # As text of one character for each byte: NGINX compiles without UTF.
        pcre2.compile(written.encode().decode("latin-1"), pcre2.NOOPT)
    except (pcre2.PatternError, pcre2.LibraryError) as error:
        raise InvalidValueError(
            f"{what}: regular expression is not valid for NGINX: {error}"
        ) from error
    return pattern


def _two_digits(escape: re.Match[str]) -> str:
    return f"\\x{escape[1]:0>2}" if escape[1] else escape[0]
