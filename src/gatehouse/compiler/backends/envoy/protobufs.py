"""Common parts of protobuf messages."""

from __future__ import annotations

from typing import Any

from envoy.config.core.v3 import address_pb2, config_source_pb2
from google.protobuf import any_pb2, wrappers_pb2


def packed(message: Any) -> any_pb2.Any:
    """Pack a message into ``Any``; equal messages give identical bytes."""
    proto = any_pb2.Any()
    proto.Pack(message, deterministic=True)
    return proto


def written(message: Any) -> bytes:
    """Serialise a message; equal messages give identical bytes."""
    body: bytes = message.SerializeToString(deterministic=True)
    return body


def ads() -> config_source_pb2.ConfigSource:
    """Return the config source for resources delivered by ADS."""
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(),
        resource_api_version=config_source_pb2.V3,
    )


def address(host: str, port: int, *, udp: bool = False, ipv4_too: bool = False) -> Any:
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


def number(value: int) -> wrappers_pb2.UInt32Value:
    """Wrap an optional number."""
    return wrappers_pb2.UInt32Value(value=value)


def truth(value: bool) -> wrappers_pb2.BoolValue:
    """Wrap an optional boolean."""
    return wrappers_pb2.BoolValue(value=value)
