"""Delta variant of ADS: parses requests and serialises responses."""

from __future__ import annotations

from types import MappingProxyType

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import struct_pb2
from google.rpc import status_pb2

from gatehouse.dataplane import features
from gatehouse.dataplane.agent_limits import (
    MAX_ERROR_CHARACTERS,
    MAX_NACK_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    cut_texts,
)
from gatehouse.dataplane.limit_use import LimitUse, parse_limit_use
from gatehouse.dataplane.unready_servers import (
    UnreadyServers,
    encode_unready_servers,
    parse_unready_servers,
)
from gatehouse.dataplane.xds import protobuf_wire
from gatehouse.dataplane.xds.ads_messages import AdsRequest, Response
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.listener_drains import ListenerDrains
from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache

DELTA_METHOD = "DeltaAggregatedResources"

INITIAL_RESPONSE = ("gatehouse", "welcome")
"""Initial metadata of a server that has accepted a call."""

_INCOMPLETE = " incomplete"
"""End of the version in a response that does not have all of its type. Only relays read it."""

_HEALTH = f"type.googleapis.com/{features.HEALTH_TYPE}"
"""Type URL of a relay's requests that report the health of its Envoy."""


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
        proxy=f"{node.user_agent_name or 'unknown'}/{node.user_agent_version or number}"[
            :MAX_TEXT_CHARACTERS
        ],
        extensions=cut_texts(sorted({extension.name for extension in node.extensions})),
        features=frozenset(cut_texts(node.client_features)),
    )


def nack_of(status: status_pb2.Status) -> Nack:
    """Parse the error of a NACK. A relay adds reasons by resource name."""
    reasons: dict[str, str] = {}
    by_name = struct_pb2.Struct()
    for detail in status.details:
        if detail.Unpack(by_name):
            reasons.update({name: value.string_value for name, value in by_name.fields.items()})
    message = status.message[:MAX_NACK_CHARACTERS] or "the client gave no reason"
    return Nack(message, reasons)


def status_of(nack: Nack) -> status_pb2.Status:
    """Build the error of a NACK so that :func:`nack_of` can parse it."""
    status = status_pb2.Status(code=3, message=nack.message)
    if nack.reasons:
        reasons = struct_pb2.Struct()
        reasons.update(nack.reasons)
        status.details.add().Pack(reasons)
    return status


def health_request(
    unhealthy: str,
    unready: UnreadyServers = MappingProxyType({}),
    use: struct_pb2.Struct | None = None,
) -> discovery_pb2.DeltaDiscoveryRequest:
    """Build a report that Envoy is not healthy, with the reason. Empty: it is healthy.

    ``unready``: servers that are not ready. ``use``: report of the use of shared limits.

    A control plane that does not know the type ignores it, as a subscription without names. The
    first request of a type without names would be one to all names.
    """
    request = discovery_pb2.DeltaDiscoveryRequest(
        type_url=_HEALTH, resource_names_unsubscribe=[WILDCARD]
    )
    if unhealthy or unready or use is not None:
        request.error_detail.CopyFrom(status_pb2.Status(code=14, message=unhealthy))
    if unready or use is not None:
        request.error_detail.details.add().Pack(encode_unready_servers(unready))
    if use is not None:
        request.error_detail.details.add().Pack(use)
    return request


def _unready_servers(status: status_pb2.Status) -> UnreadyServers:
    report = struct_pb2.Struct()
    if status.details and status.details[0].Unpack(report):
        return parse_unready_servers(report)
    return {}


def _limit_use(status: status_pb2.Status) -> tuple[str, LimitUse] | None:
    report = struct_pb2.Struct()
    if len(status.details) > 1 and status.details[1].Unpack(report):
        return parse_limit_use(report)
    return None


def parse_delta_request(message: discovery_pb2.DeltaDiscoveryRequest) -> AdsRequest:
    """Parse a client's request."""
    return AdsRequest(
        type_url=message.type_url,
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        versions=dict(message.initial_resource_versions),
        nonce=message.response_nonce,
        nack=nack_of(message.error_detail) if message.HasField("error_detail") else None,
    )


def is_incomplete(message: discovery_pb2.DeltaDiscoveryResponse) -> bool:
    """Return whether further responses have the rest of the type."""
    return message.system_version_info.endswith(_INCOMPLETE)


def encode_delta_response(response: Response, version: str) -> bytes:
    """Serialise a response around the already serialised resources."""
    suffix = _INCOMPLETE if response.incomplete else ""
    parts = [
        protobuf_wire.field(1, f"{version}{suffix}".encode()),
        protobuf_wire.field(4, response.type_url.encode()),
        protobuf_wire.field(5, response.nonce.encode()),
    ]
    for resource in response.resources:
        parts += protobuf_wire.field_header(2, len(resource.enveloped)), resource.enveloped
    parts += [protobuf_wire.field(6, name.encode()) for name in response.removed]
    return b"".join(parts)


class DeltaStream:
    """An ADS session that uses the delta variant."""

    Message = discovery_pb2.DeltaDiscoveryRequest
    list_fields = frozenset(
        {
            Message.RESOURCE_NAMES_SUBSCRIBE_FIELD_NUMBER,
            Message.RESOURCE_NAMES_UNSUBSCRIBE_FIELD_NUMBER,
            Message.INITIAL_RESOURCE_VERSIONS_FIELD_NUMBER,
        }
    )
    """Numbers of the fields that are lists of names."""

    def __init__(self, publication: SnapshotCache, drains: ListenerDrains | None = None) -> None:
        self.conversation = AdsSession(publication, drains)
        self.conversation.tests_scopes = True

    def is_answer(self, message: discovery_pb2.DeltaDiscoveryRequest) -> bool:
        """Return whether a request only answers the response in flight."""
        if message.resource_names_subscribe or message.resource_names_unsubscribe:
            return False
        state = self.conversation.subscription(message.type_url)
        return state is not None and state.awaits(message.response_nonce)

    def receive(self, message: discovery_pb2.DeltaDiscoveryRequest) -> None:
        """Process a request."""
        if features.RELAY in message.node.client_features:
            self.conversation.names_rejections = True
        self.conversation.knows_trials |= features.ENVOY_TRIALS in message.node.client_features
        if message.type_url == _HEALTH:
            self.conversation.unhealthy = message.error_detail.message[:MAX_ERROR_CHARACTERS]
            self.conversation.unready_servers = _unready_servers(message.error_detail)
            self.conversation.limit_use = _limit_use(message.error_detail)
            return
        self.conversation.receive(parse_delta_request(message))

    def next(self) -> bytes | None:
        """Return the next response, or None if there is nothing to send now."""
        response = self.conversation.next()
        return (
            None
            if response is None
            else encode_delta_response(response, self.conversation.target_version)
        )
