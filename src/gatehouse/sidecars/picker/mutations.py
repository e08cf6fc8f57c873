"""Header fields between NGINX, pickers and endpoints, and the changes that pickers may make.

The rules are those of Envoy: a picker changes neither authority, method nor scheme, and no field
that frames a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as protocol

from gatehouse.dataplane.endpoint_pickers import PICKED_ENDPOINT, PICKER_NAMESPACE

Fields = list[tuple[str, str]]
"""Header fields in lower case, in their order."""

MAX_FIELDS_BYTES = 1 << 16
"""Maximum size of the header fields that a picker sets."""

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Fields of one connection (RFC 9110, 7.6.1)."""

_UNCHANGEABLE = HOP_BY_HOP | {
    "host",
    "content-length",
    ":authority",
    ":method",
    ":scheme",
    ":status",
}

_NAME = re.compile(r":?[!#$%&'*+.^_`|~0-9a-z-]{1,256}")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_PATH = re.compile(r"/[!-~]*")


class InvalidMutationError(Exception):
    """A change of header fields that is not allowed. The message names the field and the
    problem."""


def text(raw: bytes) -> str:
    """Return the text of a name or value, from which its bytes can be restored."""
    return raw.decode("utf-8", "surrogateescape")


def end_to_end(fields: Iterable[tuple[str, str]]) -> Fields:
    """Return fields in lower case without those of one connection."""
    listed = [(name.lower(), value) for name, value in fields]
    named = {
        token.strip().lower()
        for name, value in listed
        if name == "connection"
        for token in value.split(",")
    }
    return [(name, value) for name, value in listed if name not in HOP_BY_HOP | named]


def to_message(fields: Fields, *, end: bool) -> protocol.HttpHeaders:
    """Return fields as a message to a picker."""
    message = protocol.HttpHeaders(end_of_stream=end)
    for name, value in fields:
        raw = value.encode("utf-8", "surrogateescape")
        message.headers.headers.add(key=name, raw_value=raw)
    return message


def mutated(fields: Fields, mutation: protocol.HeaderMutation) -> Fields:
    """Return fields with the changes of a picker. Raises InvalidMutationError.

    Envoy replaces a field unless ``append`` is true, and ignores ``append_action``.
    """
    removed = {name.lower() for name in mutation.remove_headers} - _UNCHANGEABLE
    result = [field for field in fields if field[0] not in removed or field[0].startswith(":")]
    size = 0
    for option in mutation.set_headers:
        name, value = _field(option)
        size += len(name) + len(value)
        if size > MAX_FIELDS_BYTES:
            raise InvalidMutationError(f"header fields of more than {MAX_FIELDS_BYTES} bytes")
        if name not in _UNCHANGEABLE:
            if not option.append.value or name.startswith(":"):
                result = [field for field in result if field[0] != name]
            result.append((name, value))
    return result


def _field(option: base_pb2.HeaderValueOption) -> tuple[str, str]:
    name = option.header.key.lower()
    if not _NAME.fullmatch(name):
        raise InvalidMutationError(f"invalid name of a header field: {name[:100]!a}")
    raw = option.header.raw_value
    value = text(raw) if raw else option.header.value
    if not _VALUE.fullmatch(value) or (name == ":path" and not _PATH.fullmatch(value)):
        raise InvalidMutationError(f"invalid value of the header field {name}")
    return name, value


def picked_text(response: protocol.ProcessingResponse) -> str:
    """Return the endpoints that a picker names; empty if it names none."""
    metadata = response.dynamic_metadata.fields.get(PICKER_NAMESPACE)
    if metadata is not None:
        named = metadata.struct_value.fields.get(PICKED_ENDPOINT)
        if named is not None and named.string_value:
            return str(named.string_value)
    for option in response.request_headers.response.header_mutation.set_headers:
        if option.header.key.lower() == PICKED_ENDPOINT:
            return _field(option)[1]
    return ""


def announced_length(mutation: protocol.HeaderMutation) -> int | None:
    """Return the length of the body that a picker announces; None if it announces none.

    Raises InvalidMutationError.
    """
    for option in mutation.set_headers:
        if option.header.key.lower() == "content-length":
            _, value = _field(option)
            if not re.fullmatch(r"[0-9]{1,18}", value):
                raise InvalidMutationError("invalid value of the header field content-length")
            return int(value)
    return None
