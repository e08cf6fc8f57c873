"""The older variant of aggregated discovery, in which a type is told as a whole.

Only the words differ: a conversation of changes is kept, and each response about a type that is
told as a whole is filled up with what the client has of it already.
"""

from __future__ import annotations

from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.dataplane.xds import protobuf_wire
from gatehouse.dataplane.xds.ads_session import AdsSession, Request, Response
from gatehouse.dataplane.xds.delta import refusal_of
from gatehouse.dataplane.xds.resources import Resource
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache
from gatehouse.dataplane.xds.subscription import NON_WILDCARD

METHOD = "StreamAggregatedResources"


class SotwStream:
    """A conversation in the words of this variant."""

    Message = discovery_pb2.DiscoveryRequest

    def __init__(self, publication: SnapshotCache) -> None:
        self.conversation = AdsSession(publication)
        self._named: dict[str, set[str]] = {}
        self._nonces: dict[str, str] = {}
        """The newest response of each type; requests that answer others are out of date."""
        self._had: dict[str, dict[str, Resource]] = {}
        """What the client has of the types told as a whole."""
        self._told: dict[str, tuple[Resource, ...]] = {}
        """What was new in the newest response."""

    def receive(self, message: discovery_pb2.DiscoveryRequest) -> None:
        """Take in a request."""
        type_url = message.type_url
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
        refused = message.HasField("error_detail")
        self.conversation.receive(
            Request(
                type_url=type_url,
                subscribe=tuple(sorted(names - before)),
                unsubscribe=tuple(sorted(before - names)),
                nonce="" if first else message.response_nonce,
                refusal=refusal_of(message.error_detail) if refused else None,
            )
        )

    def next(self) -> bytes | None:
        """Give the next response; None: there is nothing to say now."""
        while (response := self.conversation.next()) is not None:
            if response.type_url in NON_WILDCARD and not response.resources:
                # Of these types, that there is none cannot be said.
                self.conversation.receive(Request(response.type_url, nonce=response.nonce))
                continue
            self._nonces[response.type_url] = response.nonce
            return self._write(response)
        return None

    def _write(self, response: Response) -> bytes:
        resources = list(response.resources)
        if response.type_url not in NON_WILDCARD:
            resources = list(self._whole(response).values())
        parts = [
            protobuf_wire.field(1, self.conversation.target_version.encode()),
            protobuf_wire.field(4, response.type_url.encode()),
            protobuf_wire.field(5, response.nonce.encode()),
        ]
        for resource in resources:
            parts += protobuf_wire.head(2, len(resource.packed)), resource.packed
        return b"".join(parts)

    def _whole(self, response: Response) -> dict[str, Resource]:
        """Give what the client has and this response, less what it takes away or was refused."""
        state = self.conversation.subscription(response.type_url)
        assert state is not None
        said = (*self._had.get(state.type_url, {}).values(), *self._told.get(state.type_url, ()))
        had = {each.name: each for each in said if state.known.get(each.name) == each.version}
        self._had[state.type_url], self._told[state.type_url] = had, response.resources
        whole = had | {each.name: each for each in response.resources}
        return {name: each for name, each in whole.items() if name not in response.removed}
