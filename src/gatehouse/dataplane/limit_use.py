"""Reports of how much of shared limits a data plane uses, as sent by its agent."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf import struct_pb2

from gatehouse.dataplane.agent_limits import MAX_TEXT_CHARACTERS

LimitUse = Mapping[str, Mapping[str, int]]
"""Requests in flight that a data plane needs, by name of the UpstreamCluster and of the schema."""

MAX_LIMITS = 1000
"""Maximum number of limits in a report."""

_INSTANCE, _USE = "instance", "use"


def encode_limit_use(instance: str, use: LimitUse) -> struct_pb2.Struct:
    """Return the report of an instance as message."""
    proto = struct_pb2.Struct()
    proto.update({_INSTANCE: instance, _USE: {name: dict(use[name]) for name in use}})
    return proto


def parse_limit_use(proto: struct_pb2.Struct) -> tuple[str, dict[str, dict[str, int]]]:
    """Return the instance and the report in a message, cut to the maximum size."""
    result: dict[str, dict[str, int]] = {}
    count = 0
    for cluster, value in sorted(proto.fields[_USE].struct_value.fields.items()):
        for schema, number in sorted(value.struct_value.fields.items()):
            possible = max(len(cluster), len(schema)) <= MAX_TEXT_CHARACTERS
            if possible and count < MAX_LIMITS and 0 <= number.number_value < 2**31:
                result.setdefault(cluster, {})[schema] = int(number.number_value)
                count += 1
    return proto.fields[_INSTANCE].string_value[:MAX_TEXT_CHARACTERS], result
