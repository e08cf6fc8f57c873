"""The only module that turns values into parts of resources. Values are untrusted before."""

from __future__ import annotations

import re
from urllib.parse import quote

from envoy.type.matcher.v3 import regex_pb2
from google.protobuf import duration_pb2

from gatehouse.compiler.backends import expressions
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.dataplane.xds.runtime_limits import MAX_PROGRAM_SIZE

_MAX_PATTERN_CHARACTERS = 4096
"""Maximum number of characters of a user's regular expression; the Gateway API has the same
limit."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HOSTNAME = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PLAIN = re.compile(r"[A-Za-z0-9_/~-]")
_UNTOUCHABLE = ("host", "x-gh-scope")
"""Headers that routes must not change; the front end rejects connection headers."""

MAX_HEADER_BYTES = 16_384
"""Maximum bytes of the name and of the value of a header that Envoy sets; a rule of its API."""

MAX_PARAMETER_NAME_BYTES = 1024
"""Maximum bytes of the name of a query parameter that Envoy matches; a rule of its API."""

MAX_SERVER_NAME_BYTES = 255
"""Maximum bytes of the SNI sent to a server; a rule of Envoy's API."""

_MAX_SECONDS = 3_155_760_000.0
"""Maximum time in seconds, a hundred years: twice the longest duration of the Gateway API."""


def check_text(value: str, what: str = "value") -> str:
    """Check a text that Envoy uses unchanged. ``what``: the field, for errors."""
    if _CONTROL.search(value):
        raise InvalidValueError(f"{what} contains control characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"{what} is not valid Unicode") from error
    return value


def limited(value: str, maximum: int, what: str) -> str:
    """Check that a value has at most ``maximum`` bytes; ``what`` names it in the error."""
    size = len(check_text(value, what).encode())
    if size > maximum:
        raise InvalidValueError(f"{what} has {size} bytes: Envoy supports at most {maximum}")
    return value


def parameter_name(value: str) -> str:
    """Check the name of a query parameter that Envoy matches."""
    return limited(value, MAX_PARAMETER_NAME_BYTES, "the name of a query parameter")


def server_name(value: str) -> str:
    """Check the SNI for connections to a server."""
    return limited(value, MAX_SERVER_NAME_BYTES, "the server name for TLS to a backend")


def check_lines(value: str) -> str:
    """Check lines of text."""
    return "".join(f"{check_text(line)}\n" for line in value.splitlines())


def escape_percent(value: str, what: str = "value") -> str:
    """Escape a value where Envoy expands text between percent signs.

    ``what``: the field, for errors. Raises InvalidValueError.
    """
    return check_text(value, what).replace("%", "%%")


def check_hostname(value: str) -> str:
    """Check a hostname, which may start with a wildcard."""
    if not _HOSTNAME.fullmatch(value):
        raise InvalidValueError("invalid hostname")
    return value


def check_header_name(name: str) -> str:
    """Check the name of a header that is changed or matched. Return it in lower case."""
    if not _TOKEN.fullmatch(name):
        raise InvalidValueError("header name contains characters that HTTP does not permit")
    return name.lower()


def changed_header(name: str) -> str:
    """Check the name of a header that is changed. Return it in lower case."""
    lowered = check_header_name(name)
    if lowered in _UNTOUCHABLE or lowered.startswith("x-envoy-"):
        raise InvalidValueError(f"Envoy does not permit routes to change the header {lowered}")
    return lowered


def duration_of(value: float) -> duration_pb2.Duration:
    """Convert seconds to a duration. Raises InvalidValueError."""
    if not 0 <= value <= _MAX_SECONDS:
        raise InvalidValueError("duration must be between 0 and a hundred years")
    proto = duration_pb2.Duration()
    proto.FromNanoseconds(round(value * 1000) * 1_000_000)
    return proto


def regex_matcher(value: str, what: str) -> regex_pb2.RegexMatcher:
    """Check a user's regular expression. Return the matcher for a whole value.

    ``what``: the field, for errors. Raises InvalidValueError.
    """
    if len(value) > _MAX_PATTERN_CHARACTERS:
        raise InvalidValueError(
            f"{what}: regular expression is longer than {_MAX_PATTERN_CHARACTERS} characters"
        )
    expressions.check_expression(check_text(value, f"{what}: regular expression"), what)
    return regex(value, what)


def regex(value: str, what: str = "value") -> regex_pb2.RegexMatcher:
    """Return the matcher of a regular expression for a whole value.

    ``what``: the field, for errors. Raises InvalidValueError.
    """
    if expressions.compile_expression(value, what).programsize > MAX_PROGRAM_SIZE:
        raise InvalidValueError(f"{what}: regular expression is too large when compiled")
    return regex_pb2.RegexMatcher(regex=value)


def matches_nothing(value: str) -> bool:
    """Return whether a valid regular expression matches the empty text."""
    return expressions.compile_expression(value, "value").fullmatch(b"") is not None


def escape_pattern(value: str) -> str:
    """Return the pattern that matches exactly ``value``."""
    return "".join(c if _PLAIN.fullmatch(c) or ord(c) > 127 else f"\\{c}" for c in value)


def encoded_pattern(value: str, *, space: str = " ") -> str:
    """Return the pattern that matches ``value`` and its percent-encoded spellings.

    ``space``: an alternative spelling of a space.
    """
    return "".join(_byte(byte, space) for byte in value.encode())


def encoded_path(value: str) -> str:
    """Return the pattern that matches the path ``value`` and its percent-encoded spellings.

    An encoded slash is none: Envoy has decoded it, or must not take it for one.
    """
    return "/".join(map(encoded_pattern, value.split("/")))


def _byte(byte: int, space: str) -> str:
    code = "%" + "".join(c if c.isdigit() else f"[{c}{c.lower()}]" for c in f"{byte:02X}")
    if byte > 127:
        return code
    return f"(?:{escape_pattern(space if byte == 0x20 else chr(byte))}|{code})"


def path(value: str) -> str:
    """Percent-encode the characters of a path that are not permitted in one."""
    if "?" in value or "#" in value:
        raise InvalidValueError("path must not contain a question mark or a hash")
    escaped = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", check_text(value, "path"))
    return quote(escaped, safe="/%:@!$&'()*+,;=~-._")


def replacement(value: str) -> str:
    """Escape a literal where RE2 expands groups."""
    return value.replace("\\", "\\\\")
