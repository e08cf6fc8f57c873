"""Reports of kube-apiservers that are not ready, as sent by data planes."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf import struct_pb2

from gatehouse.dataplane.agent_limits import MAX_TEXT_CHARACTERS

UnreadyServers = Mapping[str, Mapping[str, str]]
"""Reason by server (host and port), by name of the UpstreamCluster."""

SERVERS_PREFIX = "kube:"
"""Start of the names of clusters that are kube-apiservers. The name ends in the UpstreamCluster.
Names with a slash are copies for limits and upgrades."""

MAX_SERVERS = 200
"""Maximum number of servers in a report."""

MAX_UNREADY_REASON_CHARACTERS = 200
"""Maximum length of a reason."""


def encode_unready_servers(servers: UnreadyServers) -> struct_pb2.Struct:
    """Return a report as message."""
    proto = struct_pb2.Struct()
    proto.update({cluster: dict(reasons) for cluster, reasons in servers.items()})
    return proto


def parse_unready_servers(proto: struct_pb2.Struct) -> dict[str, dict[str, str]]:
    """Return the report in a message, cut to the maximum size."""
    result: dict[str, dict[str, str]] = {}
    count = 0
    for cluster, value in sorted(proto.fields.items()):
        for server, reason in sorted(value.struct_value.fields.items()):
            if count < MAX_SERVERS:
                result.setdefault(cluster[:MAX_TEXT_CHARACTERS], {})[
                    server[:MAX_UNREADY_REASON_CHARACTERS]
                ] = reason.string_value[:MAX_UNREADY_REASON_CHARACTERS]
                count += 1
    return result
