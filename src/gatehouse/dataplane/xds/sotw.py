"""SotW variant of ADS, in which responses contain the complete state of a type.

Only the messages differ from the delta variant. The session tracks changes, and each response for a
type that must be complete is filled up with the resources that the client already has.
"""

from __future__ import annotations

from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.dataplane.xds import protobuf_wire
from gatehouse.dataplane.xds.ads_messages import AdsRequest, Response
from gatehouse.dataplane.xds.ads_session import TYPE_ORDER, AdsSession
from gatehouse.dataplane.xds.delta import nack_of
from gatehouse.dataplane.xds.resources import XdsResource
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache
from gatehouse.dataplane.xds.subscription import NON_WILDCARD

SOTW_METHOD = "StreamAggregatedResources"


class SotwStream:
    """An ADS session that uses the SotW variant."""

    Message = discovery_pb2.DiscoveryRequest
    list_fields = frozenset({Message.RESOURCE_NAMES_FIELD_NUMBER})
    """Numbers of the fields that are lists of names."""

    def __init__(self, publication: SnapshotCache) -> None:
        self.conversation = AdsSession(publication)
        self._named: dict[str, set[str]] = {}
        self._nonces: dict[str, str] = {}
        """Nonce of the newest response of each type. Requests with other nonces are stale."""
        self._confirmed: dict[str, dict[str, XdsResource]] = {}
        """Resources that the client has, by type and name, of the types sent as a whole."""
        self._last_sent: dict[str, tuple[XdsResource, ...]] = {}
        """Changed resources in the newest response of each type."""

    def is_answer(self, message: discovery_pb2.DiscoveryRequest) -> bool:
        """Return whether a request only answers the response in flight."""
        if set(message.resource_names) != self._named.get(message.type_url):
            return False
        state = self.conversation.subscription(message.type_url)
        return state is not None and state.awaits(message.response_nonce)

    def receive(self, message: discovery_pb2.DiscoveryRequest) -> None:
        """Process a request. Those of unknown types are ignored."""
        type_url = message.type_url
        if type_url not in TYPE_ORDER:
            return
        first = type_url not in self._named
        if message.response_nonce != self._nonces.get(type_url, "") and not first:
            return
        before = self._named.get(type_url, set())
        names = set(message.resource_names)
        if not names and WILDCARD in before:
            names = before
        if first and not names and type_url not in NON_WILDCARD:
            names = {WILDCARD}
        self._named[type_url] = names
        is_nack = message.HasField("error_detail")
        self.conversation.receive(
            AdsRequest(
                type_url=type_url,
                subscribe=tuple(sorted(names - before)),
                unsubscribe=tuple(sorted(before - names)),
                nonce="" if first else message.response_nonce,
                nack=nack_of(message.error_detail) if is_nack else None,
            )
        )

    def next(self) -> bytes | None:
        """Return the next response, or None if there is nothing to send now."""
        while (response := self.conversation.next()) is not None:
            if response.type_url in NON_WILDCARD and not response.resources:
                # SotW cannot express that a resource of these types does not exist.
                self.conversation.receive(AdsRequest(response.type_url, nonce=response.nonce))
                continue
            self._nonces[response.type_url] = response.nonce
            return self._write(response)
        return None

    def _write(self, response: Response) -> bytes:
        resources = list(response.resources)
        if response.type_url not in NON_WILDCARD:
            resources = list(self._complete_state(response).values())
        parts = [
            protobuf_wire.field(1, self.conversation.target_version.encode()),
            protobuf_wire.field(4, response.type_url.encode()),
            protobuf_wire.field(5, response.nonce.encode()),
        ]
        for resource in resources:
            parts += protobuf_wire.field_header(2, len(resource.packed)), resource.packed
        return b"".join(parts)

    def _complete_state(self, response: Response) -> dict[str, XdsResource]:
        """Return what the client has plus this response, less removed and rejected resources."""
        state = self.conversation.subscription(response.type_url)
        assert state is not None
        candidates = (
            *self._confirmed.get(state.type_url, {}).values(),
            *self._last_sent.get(state.type_url, ()),
        )
        had = {
            candidate.name: candidate
            for candidate in candidates
            if state.client_versions.get(candidate.name) == candidate.version
        }
        self._confirmed[state.type_url], self._last_sent[state.type_url] = had, response.resources
        whole = had | {resource.name: resource for resource in response.resources}
        return {name: resource for name, resource in whole.items() if name not in response.removed}
