"""Regular expressions: RE2 as the Gateway API defines it, PCRE2 as NGINX runs it. No I/O."""

from __future__ import annotations

import re

import pcre2
import re2

from gatehouse.compiler.backends.failures import InvalidValueError

_MAX_PATTERN_CHARACTERS = 1024
"""Maximum number of characters. The Gateway API permits 4,096 for header values, 1,024 for
paths."""

_FOREIGN = re.compile(r"(?<!\\)(?:\\\\)*(\(\?[=!<>P#&R0-9+|(-]|\(\*|\\[1-9gkKGQE])")
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


def whole(pattern: str) -> str:
    """Return the pattern that matches if an RE2 expression matches a whole, non-empty value.

    Raises InvalidValueError for syntax that RE2 does not support (look-around, back-references,
    named groups) and for invalid expressions.
    """
    if len(pattern) > _MAX_PATTERN_CHARACTERS:
        raise InvalidValueError(
            f"regular expression is longer than {_MAX_PATTERN_CHARACTERS} characters"
        )
    if _FOREIGN.search(pattern):
        raise InvalidValueError("regular expression uses syntax that RE2 does not support")
    try:
        re2.compile(pattern, _quiet())
    except re2.error as error:
        (problem,) = error.args
        text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
        raise InvalidValueError(f"regular expression is not valid for RE2: {text}") from error
    except UnicodeError as error:
        raise InvalidValueError("regular expression is not valid Unicode") from error
    # A dollar sign would also match before a line end, which a decoded path may have.
    written = rf"^(?=.)(?:{pattern})\z"
    try:
        pcre2.compile(written.encode("utf-8", "surrogatepass"), pcre2.NOOPT)
    except (pcre2.PatternError, pcre2.LibraryError) as error:
        raise InvalidValueError(f"regular expression is not valid for NGINX: {error}") from error
    return written


def _quiet() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    return options
