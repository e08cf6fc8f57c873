"""Changes of listeners wait while an Envoy drains many filter chains."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from envoy.config.listener.v3 import listener_pb2

from fakes.envoy_model import make_resource
from gatehouse.dataplane.xds.ads_messages import AdsRequest, Response
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.listener_drains import (
    MAX_FREE_DRAINS,
    ListenerDrains,
    drained_chains,
)
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache

DRAIN_SECONDS = 60


def listener(chains: Iterable[str], text: str = "", prefix: str = "") -> XdsResource:
    """Return a listener with named chains. ``text``: another field of it or of its chains."""
    message = listener_pb2.Listener(name="a", stat_prefix=prefix)
    for name in chains:
        message.filter_chains.add(name=name).filter_chain_match.application_protocols.append(text)
    return XdsResource.make(LISTENER_TYPE_URL, "a", message.SerializeToString())


CHAINS = [f"c{number}" for number in range(60)]


@pytest.mark.parametrize(
    ("old", "new", "number"),
    [
        (None, listener(CHAINS), 0),
        (listener(CHAINS), listener(CHAINS), 0),
        (listener(CHAINS), None, 60),
        (listener([]), None, 1),
        # Each change of a listener leaves a copy behind.
        (listener(CHAINS), listener([*CHAINS, "more"]), 3),
        (listener(CHAINS), listener(CHAINS[5:]), 8),
        (listener(CHAINS[:2]), listener(CHAINS[:2], "other"), 2),
        (listener(CHAINS), listener(CHAINS, prefix="other"), 60),
    ],
)
def test_number_of_drained_chains_follows_from_the_change(
    old: XdsResource | None, new: XdsResource | None, number: int
) -> None:
    assert drained_chains(old, new) == number


class Client:
    """A client that accepts everything at once."""

    def __init__(self, drains: ListenerDrains) -> None:
        self.cache = SnapshotCache()
        self.session = AdsSession(self.cache, drains)
        self.listener = ""

    def publish(self, number: int, endpoints: str = "one") -> None:
        resources = [
            make_resource(CLUSTER_TYPE_URL, "web", "one"),
            make_resource(ENDPOINTS_TYPE_URL, "web", endpoints),
            listener(["chain"], f"{number}"),
        ]
        self.cache.publish(ResourceSet(resources))

    def subscribe(self) -> None:
        self.session.receive(AdsRequest(CLUSTER_TYPE_URL, subscribe=("*",)))
        self.session.receive(AdsRequest(ENDPOINTS_TYPE_URL, subscribe=("web",)))
        self.session.receive(AdsRequest(LISTENER_TYPE_URL, subscribe=("*",)))

    def receive(self) -> list[str]:
        """Accept all responses. Return their types."""
        types = []
        while (response := self.session.next()) is not None:
            types.append(response.type_url)
            self._note(response)
            self.session.receive(AdsRequest(response.type_url, nonce=response.nonce))
        return types

    def _note(self, response: Response) -> None:
        if response.type_url == LISTENER_TYPE_URL:
            self.listener = response.resources[0].version

    @property
    def is_newest(self) -> bool:
        newest = self.cache.current.get(LISTENER_TYPE_URL, "a")
        return newest is not None and self.listener == newest.version


def full_client() -> Client:
    """Return a client that drains as many chains as may drain without waiting."""
    client = Client(ListenerDrains(DRAIN_SECONDS))
    client.publish(0)
    client.subscribe()
    for number in range(1, MAX_FREE_DRAINS + 1):
        client.receive()
        client.publish(number)
    client.receive()
    assert client.is_newest
    return client


def test_change_of_listener_waits_until_a_drain_ends() -> None:
    client = full_client()
    client.publish(-1)
    client.publish(-2)
    assert client.receive() == []
    assert not client.session.is_idle
    deadline = client.session.deadline
    assert deadline is not None
    assert 0 < deadline.seconds < 1
    client.session.on_deadline()
    assert client.receive() == [LISTENER_TYPE_URL]
    assert client.is_newest
    assert client.session.is_idle


def test_endpoints_do_not_wait_for_listeners() -> None:
    client = full_client()
    client.publish(-1, "two")
    assert client.receive() == [ENDPOINTS_TYPE_URL]
    assert not client.is_newest


def test_publication_without_changed_listeners_does_not_wait() -> None:
    client = full_client()
    client.publish(MAX_FREE_DRAINS, "two")
    assert client.receive() == [ENDPOINTS_TYPE_URL]
    assert client.session.is_idle


def test_session_is_at_rest_when_nothing_drains() -> None:
    client = full_client()
    intervals = 0
    while client.session.deadline is not None:
        client.session.on_deadline()
        intervals += 1
    assert intervals == MAX_FREE_DRAINS
    client.publish(-1)
    assert client.receive() == [LISTENER_TYPE_URL]
