"""Messages of requests, also with values that are no text. No I/O.

Clients of data planes choose the values of some entries. Envoy sends them as they are, and a parser
of protobuf rejects a message with a string that is not UTF-8: the request would pass uncounted.
"""

from __future__ import annotations

from typing import Any

from envoy.service.ratelimit.v3 import rls_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

_PACKAGE = "gatehouse.ratelimit"

_Field = descriptor_pb2.FieldDescriptorProto


def parse_rate_limit_request(content: bytes) -> rls_pb2.RateLimitRequest:
    """Parse a request. Bytes that are no text become escape sequences. Raises DecodeError."""
    try:
        return rls_pb2.RateLimitRequest.FromString(content)
    except message.DecodeError:
        raw = _RAW_REQUEST.FromString(content)
    for descriptor in raw.descriptors:
        for entry in descriptor.entries:
            entry.value = entry.value.decode("utf-8", "backslashreplace").encode()
    return rls_pb2.RateLimitRequest.FromString(raw.SerializeToString())


def _raw_request() -> Any:
    """Return the class of requests whose entries have bytes. It keeps all other fields."""
    entry = _message("Entry", _Field(name="value", number=2, type=_Field.TYPE_BYTES))
    descriptor = _message("Descriptor", _messages("entries", 1, "Entry"))
    request = _message("Request", _messages("descriptors", 2, "Descriptor"))
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(
        name="raw.proto", package=_PACKAGE, message_type=[entry, descriptor, request]
    )
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Request"))


def _message(name: str, field: descriptor_pb2.FieldDescriptorProto) -> Any:
    return descriptor_pb2.DescriptorProto(name=name, field=[field])


def _messages(name: str, number: int, kind: str) -> descriptor_pb2.FieldDescriptorProto:
    return _Field(
        name=name,
        number=number,
        type=_Field.TYPE_MESSAGE,
        label=_Field.LABEL_REPEATED,
        type_name=f".{_PACKAGE}.{kind}",
    )


_RAW_REQUEST = _raw_request()
