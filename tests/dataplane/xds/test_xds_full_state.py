"""Responses to a client of the state-of-the-world protocol."""

from __future__ import annotations

from envoy.service.discovery.v3 import discovery_pb2

from fakes.envoy_model import make_resource
from fakes.xds_client import A2, A, B
from gatehouse.dataplane.xds import sotw
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache


class SotwClient:
    """A client that gets all resources of a type in each response."""

    def __init__(self, *resources: XdsResource) -> None:
        self.cache = SnapshotCache()
        self.cache.publish(ResourceSet(resources))
        self.stream = sotw.SotwStream(self.cache)
        self.nonce = ""

    def ask(self, type_url: str, *names: str, error: str = "") -> None:
        message = discovery_pb2.DiscoveryRequest(
            type_url=type_url, resource_names=names, response_nonce=self.nonce
        )
        if error:
            message.error_detail.message = error
        self.stream.receive(message)

    def next_response(self) -> list[bytes]:
        message = self.stream.next()
        if message is None:
            return []
        response = discovery_pb2.DiscoveryResponse.FromString(message)
        self.nonce = response.nonce
        return sorted(resource.value for resource in response.resources)


def test_full_state_type_repeats_unchanged_resources() -> None:
    client = SotwClient(A, B)
    client.ask(CLUSTER_TYPE_URL)
    assert client.next_response() == [b"one", b"one"]
    client.ask(CLUSTER_TYPE_URL)
    client.cache.publish(ResourceSet([A2, B]))
    assert client.next_response() == [b"one", b"two"]
    client.ask(CLUSTER_TYPE_URL)
    client.cache.publish(ResourceSet([A2]))
    assert client.next_response() == [b"two"]


def test_full_state_type_repeats_accepted_version_of_rejected_resource() -> None:
    client = SotwClient(A, B)
    client.ask(CLUSTER_TYPE_URL)
    client.next_response()
    client.ask(CLUSTER_TYPE_URL)
    client.cache.publish(ResourceSet([A2, make_resource(CLUSTER_TYPE_URL, "b", "three")]))
    assert client.next_response() == [b"three", b"two"]
    client.ask(CLUSTER_TYPE_URL, error="Error adding/updating cluster(s) a: no")
    assert client.next_response() == [b"one", b"three"]
    client.ask(CLUSTER_TYPE_URL)
    assert client.next_response() == []
    assert [
        rejected_resource.resource
        for rejected_resource in client.stream.conversation.rejected_resources()
    ] == [A2]


def test_full_state_type_drops_names_missing_from_request() -> None:
    one, two = (
        make_resource(ENDPOINTS_TYPE_URL, "a", "one"),
        make_resource(ENDPOINTS_TYPE_URL, "b", "two"),
    )
    client = SotwClient(one, two)
    client.ask(ENDPOINTS_TYPE_URL, "a", "b", "missing")
    assert client.next_response() == [b"one", b"two"]
    client.ask(ENDPOINTS_TYPE_URL, "b")
    client.cache.publish(
        ResourceSet(
            [
                make_resource(ENDPOINTS_TYPE_URL, "a", "x"),
                make_resource(ENDPOINTS_TYPE_URL, "b", "y"),
            ]
        )
    )
    assert client.next_response() == [b"y"]


def test_request_with_outdated_nonce_is_ignored() -> None:
    client = SotwClient(make_resource(ENDPOINTS_TYPE_URL, "a", "one"))
    client.ask(ENDPOINTS_TYPE_URL, "a")
    client.next_response()
    client.nonce = "before"
    client.ask(ENDPOINTS_TYPE_URL)
    subscription = client.stream.conversation.subscription(ENDPOINTS_TYPE_URL)
    assert subscription is not None
    assert subscription.names == {"a"}
