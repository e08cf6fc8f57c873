"""Parsers of values in NGINX syntax: sizes, times, rates and variables. No I/O."""

from __future__ import annotations

import re

from gatehouse.compiler.ir.settings import Attribute

_SIZE = re.compile(r"([0-9]{1,4})([kmg]?)")
_TIME = re.compile(r"([0-9]{1,4})(ms|s|m|h)?")
_RATE = re.compile(r"([0-9]{1,9})r/([sm])")
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECONDS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

_ATTRIBUTES = frozenset(
    """
    args binary_remote_addr connection content_length content_type document_uri host hostname https
    is_args pid query_string remote_addr remote_port remote_user request request_id request_method
    request_uri scheme server_addr server_name server_port server_protocol ssl_cipher
    ssl_client_fingerprint ssl_client_s_dn ssl_client_serial ssl_client_verify ssl_protocol
    ssl_server_name ssl_session_id uri
    """.split()  # noqa: SIM905
)
_FAMILIES = ("http_", "arg_", "cookie_")
_PART = re.compile(r"\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))")


MAX_POLICY_KEY_BYTES = 2000
"""Maximum bytes of a key. NGINX reads at most 4,096 with its escapes, which at most double it."""

MAX_REALM_CHARACTERS = 300
"""Maximum characters of a realm. A dollar sign takes 12 bytes of the 4,096 that NGINX reads."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ValueProblem(ValueError):
    """An invalid value; the message says why."""


MAX_COUNT = 2**31 - 1
"""Maximum of a count. Envoy has 32 bits for it."""


def parse_count(number: int | None) -> int | None:
    """Return a count; None for None. Raises ValueProblem."""
    if number is not None and not 0 <= number <= MAX_COUNT:
        raise ValueProblem(f"invalid value {number}: must be from 0 to {MAX_COUNT}")
    return number


def size(text: str | None) -> int | None:
    """Return a size in bytes; None for None. Raises ValueProblem."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueProblem(f"invalid value {text!r}: must be a size such as 8k or 1m")
    return int(match[1]) * _BYTES[match[2]]


def parse_nginx_seconds(text: str | None) -> float | None:
    """Return a time in seconds; None for None. Raises ValueProblem."""
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueProblem(f"invalid value {text!r}: must be a time such as 500ms or 10s")
    return int(match[1]) * _SECONDS[match[2]]


def rate(text: str) -> tuple[int, str]:
    """Return the count and the unit, ``s`` or ``m``. Raises ValueProblem."""
    match = _RATE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise ValueProblem(f"invalid value {text!r}: must be a rate such as 10r/s")
    return int(match[1]), match[2]


def realm(text: str) -> str:
    """Check a realm. Raises ValueProblem."""
    if _CONTROL.search(text):
        raise ValueProblem("must not contain control characters")
    if len(text) > MAX_REALM_CHARACTERS:
        raise ValueProblem(f"must not be longer than {MAX_REALM_CHARACTERS} characters")
    return text


def _check_key(text: str) -> None:
    if _CONTROL.search(text):
        raise ValueProblem("must not contain control characters")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_POLICY_KEY_BYTES:
        raise ValueProblem(f"must not be longer than {MAX_POLICY_KEY_BYTES} bytes")


def attribute(text: str) -> Attribute:
    """Parse ``$name``. Raises ValueProblem if it is not an attribute of every request."""
    _check_key(text)
    match = _PART.fullmatch(text)
    if match is None:
        raise ValueProblem(
            f"invalid value {text!r}: must be a variable such as $binary_remote_addr"
        )
    return _known(match[1] or match[2])


def parse_template(text: str) -> tuple[str | Attribute, ...]:
    """Parse text with variables. Raises ValueProblem."""
    _check_key(text)
    parts: list[str | Attribute] = []
    end = 0
    for match in _PART.finditer(text):
        parts += [text[end : match.start()], _known(match[1] or match[2])]
        end = match.end()
    parts.append(text[end:])
    if any("$" in part for part in parts if isinstance(part, str)):
        raise ValueProblem(f"invalid value {text!r}: $ must be followed by the name of a variable")
    if not text:
        raise ValueProblem("must not be empty")
    return tuple(part for part in parts if part)


def _known(name: str) -> Attribute:
    if name not in _ATTRIBUTES and (not name.startswith(_FAMILIES) or name in _FAMILIES):
        raise ValueProblem(f"variable ${name} is not supported")
    return Attribute(name)
