"""An aggregated discovery service for one Envoy, in this process, that tells what changed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf import any_pb2

from gatehouse.dataplane.xds.resources import (
    ADD_ORDER,
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    RUNTIME_TYPE_URL,
    SECRET_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
    ResourceSet,
)


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """Tells Envoy resources, and remembers what it said to them."""

    def __init__(self) -> None:
        self.resources = ResourceSet()
        self.refused: list[str] = []
        self._changed = asyncio.Condition()
        self._streams: list[_Stream] = []

    def publish(self, resources: ResourceSet) -> None:
        """Tell from now on these resources."""
        self.resources = resources
        for stream in self._streams:
            stream.send_changes()

    async def settled(self) -> None:
        """Wait until Envoy has asked for everything there is, and answered to all of it."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: bool(self._streams) and all(s.settled() for s in self._streams)
            )

    async def DeltaAggregatedResources(self, requests: Any, _: Any) -> AsyncIterator[Any]:
        """Serve a stream."""
        stream = _Stream(self)
        self._streams.append(stream)

        async def listen() -> None:
            async for request in requests:
                if request.HasField("error_detail"):
                    self.refused.append(request.error_detail.message)
                stream.handle_request(request)
                async with self._changed:
                    self._changed.notify_all()

        task = asyncio.create_task(listen())
        try:
            while True:
                yield await stream.queue.get()
        finally:
            self._streams.remove(stream)
            task.cancel()


class _Stream:
    def __init__(self, ads: Ads) -> None:
        self._ads = ads
        self._wanted: dict[str, set[str]] = {}
        self._told: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._open: set[str] = set()
        self._numbers = itertools.count()
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    def handle_request(self, request: Any) -> None:
        kind, first = request.type_url, request.type_url not in self._wanted
        self._open.discard(request.response_nonce)
        subscribed = self._wanted.setdefault(kind, set())
        if first and not request.resource_names_subscribe:
            subscribed.add("*")
        subscribed |= {*request.resource_names_subscribe}
        subscribed -= {*request.resource_names_unsubscribe}
        for name in (*request.resource_names_subscribe, *request.resource_names_unsubscribe):
            self._told[kind].pop(name, None)
        if first or request.resource_names_subscribe:
            self._send_type(kind, requested=[*request.resource_names_subscribe])

    def send_changes(self) -> None:
        for kind in ADD_ORDER:
            if kind in self._wanted:
                self._send_type(kind)

    def _send_type(self, kind: str, *, requested: list[str] | None = None) -> None:
        """Send what has changed. `requested`: new subscriptions, which get an answer in any case.

        A requested resource that does not exist counts as removed: Envoy waits for it otherwise.
        """
        subscribed, sent = self._wanted[kind], self._told[kind]
        there = self._ads.resources.by_type.get(kind, {})
        result = there if "*" in subscribed else {n: there[n] for n in subscribed if n in there}
        response = discovery_pb2.DeltaDiscoveryResponse(
            type_url=kind, nonce=f"{next(self._numbers)}"
        )
        for name, resource in result.items():
            if sent.get(name) != resource.version:
                sent[name] = resource.version
                if kind == CLUSTER_TYPE_URL:
                    # A changed cluster is cold until it receives its endpoints again.
                    self._told[ENDPOINTS_TYPE_URL].pop(name, None)
                body = any_pb2.Any(type_url=kind, value=resource.body)
                response.resources.add(name=name, version=resource.version, resource=body)
        gone = sent.keys() - result.keys()
        response.removed_resources.extend(gone)
        for name in gone:
            del sent[name]
        if kind == RUNTIME_TYPE_URL:
            response.removed_resources.extend(set(requested or ()) - {"*"} - result.keys())
        if requested is not None or response.resources or response.removed_resources:
            self._open.add(response.nonce)
            self.queue.put_nowait(response)

    def settled(self) -> bool:
        there = self._ads.resources.by_type
        # Envoy does not subscribe to secrets without a user. Sidecar configurations are not for it.
        expected = {
            kind: {
                name: resource.version
                for name, resource in named.items()
                if kind != SECRET_TYPE_URL or name in self._wanted.get(kind, ())
            }
            for kind, named in there.items()
            if kind != SIDECAR_CONFIG_TYPE_URL
        }
        return not self._open and all(self._told[kind] == expected[kind] for kind in expected)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[Ads, int]]:
    """Serve for a while. Yield the service and its port."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    ads = Ads()
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(ads, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield ads, port
    finally:
        await server.stop(0)
