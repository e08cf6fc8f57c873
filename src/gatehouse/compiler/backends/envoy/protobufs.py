"""Common parts of protobuf messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from envoy.config.core.v3 import address_pb2, config_source_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import http_status_pb2
from google.protobuf import any_pb2, wrappers_pb2
from google.protobuf.message import Message

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | bool | None"
"""Value of a `Struct`."""


def packed(message: Message) -> any_pb2.Any:
    """Pack a message into ``Any``; equal messages give identical bytes."""
    proto = any_pb2.Any()
    proto.Pack(message, deterministic=True)
    return proto


def written(message: Message) -> bytes:
    """Serialise a message; equal messages give identical bytes."""
    return message.SerializeToString(deterministic=True)


def ads() -> config_source_pb2.ConfigSource:
    """Return the config source for resources delivered by ADS."""
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(),
        resource_api_version=config_source_pb2.V3,
    )


def build_socket_address(
    host: str, port: int, *, udp: bool = False, ipv4_too: bool = False
) -> address_pb2.Address:
    """Return a socket address."""
    socket = address_pb2.SocketAddress
    return address_pb2.Address(
        socket_address=socket(
            protocol=socket.UDP if udp else socket.TCP,
            address=host,
            port_value=port,
            ipv4_compat=ipv4_too,
        )
    )


def exact_strings(values: Iterable[str]) -> string_pb2.ListStringMatcher:
    """Return the matcher of these strings."""
    patterns = [string_pb2.StringMatcher(exact=value) for value in values]
    return string_pb2.ListStringMatcher(patterns=patterns)


def http_status(code: int) -> http_status_pb2.HttpStatus:
    """Return a status code in Envoy's format."""
    # The values of this enum are the codes.
    return http_status_pb2.HttpStatus(code=cast("http_status_pb2.StatusCode", code))


def wrap_number(value: int) -> wrappers_pb2.UInt32Value:
    """Wrap an optional number."""
    return wrappers_pb2.UInt32Value(value=value)


def truth(value: bool) -> wrappers_pb2.BoolValue:
    """Wrap an optional boolean."""
    return wrappers_pb2.BoolValue(value=value)
