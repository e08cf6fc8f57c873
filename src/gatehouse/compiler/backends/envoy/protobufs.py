"""Pieces of messages that many resources have."""

from __future__ import annotations

from typing import Any

from envoy.config.core.v3 import address_pb2, config_source_pb2
from google.protobuf import any_pb2, wrappers_pb2


def packed(message: Any) -> any_pb2.Any:
    """Put a message into one that says its type; the same message gives the same bytes."""
    made = any_pb2.Any()
    made.Pack(message, deterministic=True)
    return made


def written(message: Any) -> bytes:
    """Serialise; the same message gives the same bytes."""
    found: bytes = message.SerializeToString(deterministic=True)
    return found


def ads() -> config_source_pb2.ConfigSource:
    """Give the source of what is told on the stream of everything."""
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(),
        resource_api_version=config_source_pb2.V3,
    )


def address(host: str, port: int, *, udp: bool = False, ipv4_too: bool = False) -> Any:
    """Give a socket's address."""
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
    """Wrap a number that may also be absent."""
    return wrappers_pb2.UInt32Value(value=value)


def truth(value: bool) -> wrappers_pb2.BoolValue:
    """Wrap a truth that may also be absent."""
    return wrappers_pb2.BoolValue(value=value)
