"""The only place where values become parts of resources. They are hostile until they were here."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import re2
from envoy.type.matcher.v3 import regex_pb2
from google.protobuf import duration_pb2

from gatehouse.dataplane.xds.runtime_limits import MAX_PROGRAM_SIZE


class InvalidValueError(ValueError):
    """A value that no resource can hold; the message says why, without the value."""


LONGEST_PATTERN = 4096
"""Characters of a regular expression of a user; the Gateway API allows no longer one."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HOSTNAME = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PLAIN = re.compile(r"[A-Za-z0-9_/~-]")
_UNTOUCHABLE = ("host", "x-gh-scope")
"""Headers of Envoy's own; the front end refuses those that belong to a connection."""

LONGEST_HEADER = 16_384
"""Bytes of the name and of the value of a header that Envoy sets; its rules allow no more."""

LONGEST_PARAMETER_NAME = 1024
"""Bytes of the name of a query parameter that Envoy compares; its rules allow no more."""

LONGEST_SERVER_NAME = 255
"""Bytes of the name in a TLS handshake with a server; Envoy's rules allow no more."""

LONGEST_TIME = 315_576_000.0
"""Seconds; more is no limit that anybody means."""


def text(value: str) -> str:
    """Check a value that Envoy takes as it is."""
    if _CONTROL.search(value):
        raise InvalidValueError("a value has control characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError("a value is no valid Unicode") from error
    return value


def limited(value: str, longest: int, what: str) -> str:
    """Check that a value has at most ``longest`` bytes; ``what`` names it in the error."""
    size = len(text(value).encode())
    if size > longest:
        raise InvalidValueError(f"{what} has {size} bytes, and Envoy takes at most {longest}")
    return value


def parameter_name(value: str) -> str:
    """Check the name of a query parameter that Envoy compares."""
    return limited(value, LONGEST_PARAMETER_NAME, "the name of a query parameter")


def server_name(value: str) -> str:
    """Check the name that a TLS handshake asks a server for."""
    return limited(value, LONGEST_SERVER_NAME, "the server name for TLS to a backend")


def lines(value: str) -> str:
    """Check lines of text."""
    return "".join(f"{text(line)}\n" for line in value.splitlines())


def literal(value: str) -> str:
    """Escape a value where Envoy would put in what stands between percent signs."""
    return text(value).replace("%", "%%")


def hostname(value: str) -> str:
    """Check the name of a host, which may begin with a wildcard."""
    if not _HOSTNAME.fullmatch(value):
        raise InvalidValueError("a hostname is none")
    return value


def header_name(name: str) -> str:
    """Check the name of a header that is changed or looked at; give it in lower case."""
    if not _TOKEN.fullmatch(name):
        raise InvalidValueError("a header name has characters that HTTP does not allow")
    return name.lower()


def changed_header(name: str) -> str:
    """Check the name of a header that is changed."""
    found = header_name(name)
    if found in _UNTOUCHABLE or found.startswith("x-envoy-"):
        raise InvalidValueError(f"Envoy does not let routes change the header {found}")
    return found


def seconds(value: float) -> duration_pb2.Duration:
    """Write a time."""
    if not 0 <= value <= LONGEST_TIME:
        raise InvalidValueError("a time is negative, or longer than ten years")
    made = duration_pb2.Duration()
    made.FromNanoseconds(round(value * 1000) * 1_000_000)
    return made


def pattern(value: str) -> Any:
    """Check a regular expression; give it as one that must match the whole."""
    if len(value) > LONGEST_PATTERN:
        raise InvalidValueError(f"a regular expression is longer than {LONGEST_PATTERN} characters")
    return regex(text(value))


def regex(value: str) -> Any:
    """Give an expression that must match the whole."""
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(value, options)
    except re2.error as error:
        raise InvalidValueError("a regular expression is not valid for RE2") from error
    if compiled.programsize > MAX_PROGRAM_SIZE:
        raise InvalidValueError("a regular expression is too large once it is compiled")
    return regex_pb2.RegexMatcher(regex=value)


def matches_nothing(value: str) -> bool:
    """Whether a regular expression matches the empty text."""
    return re2.fullmatch(value, "") is not None


def escape(value: str) -> str:
    """Give the pattern that matches exactly ``value``."""
    return "".join(c if _PLAIN.fullmatch(c) or ord(c) > 127 else f"\\{c}" for c in value)


def encoded(value: str, *, space: str = " ") -> str:
    """Give the pattern that matches ``value`` and its percent-encoded spellings.

    ``space``: what a space may also be written as.
    """
    return "".join(_byte(byte, space) for byte in value.encode())


def _byte(byte: int, space: str) -> str:
    code = "%" + "".join(c if c.isdigit() else f"[{c}{c.lower()}]" for c in f"{byte:02X}")
    if byte > 127:
        return code
    return f"(?:{escape(space if byte == 0x20 else chr(byte))}|{code})"


def path(value: str) -> str:
    """Write a path: what may not stand in one is percent-encoded."""
    if "?" in value or "#" in value:
        raise InvalidValueError("a path has a question mark or a hash")
    kept = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", text(value))
    return quote(kept, safe="/%:@!$&'()*+,;=~-._")


def replacement(value: str) -> str:
    """Write a literal where RE2 would put in groups."""
    return value.replace("\\", "\\\\")
