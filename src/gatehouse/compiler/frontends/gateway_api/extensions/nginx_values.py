"""Values as NGINX writes them, read into units; and the attributes of requests. Pure."""

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


class ValueProblem(ValueError):
    """A value that cannot be used; the message says why."""


def size(text: str | None) -> int | None:
    """Give the bytes; None for None. Raises ValueProblem."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueProblem(f"{text!r} is no size such as 8k or 1m")
    return int(found[1]) * _BYTES[found[2]]


def time(text: str | None) -> float | None:
    """Give the seconds; None for None. Raises ValueProblem."""
    if text is None:
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueProblem(f"{text!r} is no time such as 500ms or 10s")
    return int(found[1]) * _SECONDS[found[2]]


def rate(text: str) -> tuple[int, str]:
    """Give how many, and ``s`` or ``m``. Raises ValueProblem."""
    found = _RATE.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise ValueProblem(f"{text!r} is no rate such as 10r/s")
    return int(found[1]), found[2]


def attribute(text: str) -> Attribute:
    """Read ``$name``. Raises ValueProblem for what is no attribute of every request."""
    found = _PART.fullmatch(text)
    if found is None:
        raise ValueProblem(f"{text!r} is no variable such as $binary_remote_addr")
    return _known(found[1] or found[2])


def template(text: str) -> tuple[str | Attribute, ...]:
    """Read text with variables. Raises ValueProblem."""
    parts: list[str | Attribute] = []
    end = 0
    for found in _PART.finditer(text):
        parts += [text[end : found.start()], _known(found[1] or found[2])]
        end = found.end()
    parts.append(text[end:])
    if any("$" in part for part in parts if isinstance(part, str)):
        raise ValueProblem(f"{text!r} has a $ that begins no variable")
    if not text:
        raise ValueProblem("is empty")
    return tuple(part for part in parts if part)


def _known(name: str) -> Attribute:
    if name not in _ATTRIBUTES and not name.startswith(_FAMILIES):
        raise ValueProblem(f"${name} is no variable that every request has")
    return Attribute(name)
