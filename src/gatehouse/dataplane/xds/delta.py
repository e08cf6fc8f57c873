"""Delta variant of ADS: parses requests and serialises responses."""

from __future__ import annotations

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import struct_pb2
from google.rpc import status_pb2

from gatehouse.dataplane import features
from gatehouse.dataplane.xds import protobuf_wire
from gatehouse.dataplane.xds.ads_session import AdsSession, Request, Response
from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache

METHOD = "DeltaAggregatedResources"

INITIAL_RESPONSE = ("gatehouse", "welcome")
"""Initial metadata of a server that has accepted a call."""


class NodeInfo(msgspec.Struct, frozen=True):
    """A client's description of itself in its first request."""

    proxy: str = ""
    """Such as ``envoy/1.40.0``."""
    extensions: tuple[str, ...] = ()
    """Extensions compiled into the proxy."""
    features: frozenset[str] = frozenset()


def node_info(node: base_pb2.Node) -> NodeInfo:
    """Parse a client's node message."""
    version = node.user_agent_build_version.version
    number = f"{version.major_number}.{version.minor_number}.{version.patch}"
    return NodeInfo(
        proxy=f"{node.user_agent_name or 'unknown'}/{node.user_agent_version or number}",
        extensions=tuple(sorted({each.name for each in node.extensions})),
        features=frozenset(node.client_features),
    )


def nack_of(status: status_pb2.Status) -> Nack:
    """Parse the error of a NACK. A relay adds reasons by resource name."""
    reasons: dict[str, str] = {}
    by_name = struct_pb2.Struct()
    for detail in status.details:
        if detail.Unpack(by_name):
            reasons.update({name: value.string_value for name, value in by_name.fields.items()})
    return Nack(status.message or "the client gave no reason", reasons)


def status_of(nack: Nack) -> status_pb2.Status:
    """Build the error of a NACK so that :func:`nack_of` can parse it."""
    status = status_pb2.Status(code=3, message=nack.message)
    if nack.reasons:
        reasons = struct_pb2.Struct()
        reasons.update(nack.reasons)
        status.details.add().Pack(reasons)
    return status


def read(message: discovery_pb2.DeltaDiscoveryRequest) -> Request:
    """Parse a client's request."""
    return Request(
        type_url=message.type_url,
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        versions=dict(message.initial_resource_versions),
        nonce=message.response_nonce,
        nack=nack_of(message.error_detail) if message.HasField("error_detail") else None,
    )


def write(response: Response, version: str) -> bytes:
    """Serialise a response around the already serialised resources."""
    parts = [
        protobuf_wire.field(1, version.encode()),
        protobuf_wire.field(4, response.type_url.encode()),
        protobuf_wire.field(5, response.nonce.encode()),
    ]
    for resource in response.resources:
        parts += protobuf_wire.head(2, len(resource.enveloped)), resource.enveloped
    parts += [protobuf_wire.field(6, name.encode()) for name in response.removed]
    return b"".join(parts)


class DeltaStream:
    """An ADS session that uses the delta variant."""

    Message = discovery_pb2.DeltaDiscoveryRequest

    def __init__(self, publication: SnapshotCache) -> None:
        self.conversation = AdsSession(publication)

    def receive(self, message: discovery_pb2.DeltaDiscoveryRequest) -> None:
        """Process a request."""
        if features.RELAY in message.node.client_features:
            self.conversation.names_rejections = True
        self.conversation.receive(read(message))

    def next(self) -> bytes | None:
        """Return the next response, or None if there is nothing to send now."""
        response = self.conversation.next()
        return None if response is None else write(response, self.conversation.target_version)
