"""State and messages of a relay, case by case."""

from __future__ import annotations

import pytest

from fakes.envoy_model import make_resource
from fakes.relay_chain import Chain, settled, versions
from gatehouse.dataplane import features
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    ROUTES_TYPE_URL,
    ResourceSet,
)
from gatehouse.dataplane.xds.subscription import UNKNOWN_VERSION


def test_removed_names_leave_no_state_in_relay() -> None:
    chain = settled(
        *(ResourceSet([make_resource(CLUSTER_TYPE_URL, f"c{n}", "one")]) for n in range(20)),
        ResourceSet(),
    )
    assert chain.relay.cache.publication._absent == {
        (CLUSTER_TYPE_URL, "*"),
        (LISTENER_TYPE_URL, "*"),
    }
    assert not any(chain.relay.cache.open.values())


def asked(chain: Chain) -> dict[str, dict[str, str]]:
    """Versions that the relay says it has, when it connects."""
    chain.relay.connected()
    return {ask.type_url: dict(ask.initial_resource_versions) for ask in chain.relay.requests}


GOOD, BAD = make_resource(CLUSTER_TYPE_URL, "a", "one"), make_resource(CLUSTER_TYPE_URL, "a", "bad")


def test_rejected_resource_keeps_its_previous_version() -> None:
    chain = settled(ResourceSet([GOOD]), ResourceSet([BAD]))
    chain.start_envoy()
    chain.finish()
    assert chain.envoy.has[CLUSTER_TYPE_URL] == {"a": (GOOD.version, "one")}
    assert chain.kept == ResourceSet([GOOD])
    assert asked(chain)[CLUSTER_TYPE_URL] == {"a": GOOD.version}


def test_rejected_new_resource_is_not_cached() -> None:
    chain = settled(ResourceSet([BAD]))
    assert len(chain.relay.held) == 0
    assert asked(chain)[CLUSTER_TYPE_URL] == {}


def test_relay_reports_unknown_version_before_envoy_accepts() -> None:
    chain = settled(ResourceSet([GOOD]))
    chain.publish(ResourceSet([make_resource(CLUSTER_TYPE_URL, "a", "two")]))
    while chain.server_to_relay() or chain.relay_hears():
        pass
    assert asked(chain)[CLUSTER_TYPE_URL] == {"a": UNKNOWN_VERSION}


def test_relay_acknowledges_after_envoy_acknowledged() -> None:
    chain = settled(ResourceSet([GOOD]))
    chain.publish(ResourceSet([make_resource(CLUSTER_TYPE_URL, "a", "two")]))
    chain.server_to_relay()
    chain.relay_hears()
    chain.relay_to_envoy()
    assert not chain.relay.requests
    chain.envoy_handles()
    chain.envoy.time_out()
    while chain.envoy_to_relay():
        pass
    answers = [ask for ask in chain.relay.requests if ask.response_nonce]
    assert [ask.type_url for ask in answers] == [CLUSTER_TYPE_URL]
    assert not answers[0].HasField("error_detail")


def test_relay_requests_resource_again_when_envoy_rejects_cached_version() -> None:
    chain = Chain()
    chain.kept = ResourceSet([BAD])
    chain.start_relay()
    chain.publish(ResourceSet([BAD]))
    while chain.relay.node is None:
        chain.envoy_to_relay()
    chain.connect_relay()
    chain.finish()
    assert chain.server is not None
    assert [
        rejected_resource.resource
        for rejected_resource in chain.server.conversation.rejected_resources()
    ] == [BAD]
    assert chain.kept == ResourceSet()


def test_relay_unsubscribes_from_resources_that_envoy_drops() -> None:
    pair = [GOOD, make_resource(ENDPOINTS_TYPE_URL, "a", "one")]
    chain = settled(ResourceSet(pair), ResourceSet([pair[1]]))
    assert len(chain.relay.held) == 0
    assert chain.server is not None
    subscription = chain.server.conversation.subscription(ENDPOINTS_TYPE_URL)
    assert subscription is not None
    assert subscription.names == set()


def test_restarted_relay_sends_nothing_older_before_control_plane_responds() -> None:
    chain = settled(ResourceSet([GOOD]))
    newer = make_resource(CLUSTER_TYPE_URL, "a", "two")
    chain.publish(ResourceSet([newer]))
    older = chain.kept
    chain.finish()
    chain.kept = older
    chain.start_relay()
    while chain.envoy_to_relay() or chain.relay_to_envoy() or chain.envoy_handles():
        pass
    assert chain.envoy.has[CLUSTER_TYPE_URL] == {"a": (newer.version, "two")}
    chain.connect_relay()
    chain.finish()
    assert chain.envoy.has[CLUSTER_TYPE_URL] == {"a": (newer.version, "two")}
    assert chain.kept == ResourceSet([newer])


@pytest.mark.parametrize(
    "type_url", [CLUSTER_TYPE_URL, ENDPOINTS_TYPE_URL, LISTENER_TYPE_URL, ROUTES_TYPE_URL]
)
def test_envoy_keeps_resource_newer_than_disk_and_receives_later_changes(type_url: str) -> None:
    world = {
        CLUSTER_TYPE_URL: make_resource(CLUSTER_TYPE_URL, "a", "one"),
        ENDPOINTS_TYPE_URL: make_resource(ENDPOINTS_TYPE_URL, "a", "one"),
        LISTENER_TYPE_URL: make_resource(LISTENER_TYPE_URL, "l", "routes|one"),
        ROUTES_TYPE_URL: make_resource(ROUTES_TYPE_URL, "routes", "a|one"),
    }
    old = world[type_url]
    newer = make_resource(type_url, old.name, old.body.decode().replace("one", "two"))
    chain = settled(ResourceSet(world.values()))
    older = chain.kept
    chain.publish(ResourceSet((world | {type_url: newer}).values()))
    chain.finish()
    chain.kept = older
    chain.start_relay()
    while chain.step() or chain.wait():
        assert chain.envoy.has[type_url][old.name][0] == newer.version
    assert chain.kept == older
    added = make_resource(CLUSTER_TYPE_URL, "b", "one")
    chain.publish(ResourceSet([*(world | {type_url: newer}).values(), added]))
    chain.connect_relay()
    while chain.step():
        assert chain.envoy.has[type_url][old.name][0] == newer.version
        chain.envoy.time_out()
    assert chain.envoy.has[CLUSTER_TYPE_URL]["b"][0] == added.version
    assert versions(chain.kept) == chain.envoy_versions()


def test_divided_first_response_removes_no_resources() -> None:
    many = ResourceSet([make_resource(CLUSTER_TYPE_URL, f"c{n}", "x" * 300_000) for n in range(8)])
    chain = settled(many)
    before = dict(chain.envoy.has[CLUSTER_TYPE_URL])
    chain.kept = ResourceSet()
    chain.start_relay()
    for _ in range(1000):
        if not chain.step():
            break
        if chain.relay.node is not None and chain.server is None:
            chain.connect_relay()
        assert chain.envoy.has[CLUSTER_TYPE_URL] == before
    chain.finish()
    assert chain.envoy.has[CLUSTER_TYPE_URL] == before
    assert chain.kept == many


MANY = ResourceSet([make_resource(CLUSTER_TYPE_URL, f"c{n}", "x" * 600_000) for n in range(4)])
"""Resources for several responses."""


def with_first_response(relay_restarts: bool) -> Chain:
    """Return a chain in which the control plane is gone after the first of :data:`MANY` responses.

    ``relay_restarts``: the relay was replaced, too, and Envoy has connected to the next.
    """
    chain = Chain()
    chain.publish(MANY)
    while len(chain.envoy.has[CLUSTER_TYPE_URL]) == 0:
        assert chain.step()
        if chain.relay.node is not None and chain.server is None:
            chain.connect_relay()
    chain.disconnect_relay()
    while chain.envoy_to_relay() or chain.envoy_handles() or chain.envoy.time_out() or chain.disk():
        pass
    if relay_restarts:
        chain.start_relay()
        while chain.envoy_to_relay() or chain.envoy_handles():
            pass
    return chain


def incomplete(chain: Chain) -> bool:
    """Return whether the relay may get more."""
    return chain.relay.incomplete


@pytest.mark.parametrize("relay_restarts", [False, True])
@pytest.mark.parametrize("left", [4, 1], ids=["all", "what Envoy has"])
def test_relay_knows_whether_it_has_received_all(relay_restarts: bool, left: int) -> None:
    """The control plane answers on the next stream, too, if it has nothing more."""
    chain = with_first_response(relay_restarts)
    assert len(chain.envoy.has[CLUSTER_TYPE_URL]) == 1
    assert incomplete(chain)
    resources = MANY.by_type[CLUSTER_TYPE_URL].values()
    world = ResourceSet(list(resources)[:left])
    chain.publish(world)
    chain.connect_relay()
    while chain.step() or chain.wait():
        received = {name for _, name, _ in versions(chain.relay.held)}
        assert incomplete(chain) or received == world.by_type[CLUSTER_TYPE_URL].keys()
    assert not incomplete(chain)
    assert chain.kept == world


def test_new_envoy_gets_the_stored_resources_without_a_control_plane() -> None:
    chain = settled(ResourceSet([GOOD]))
    chain.disconnect_relay()
    chain.start_envoy()
    chain.start_relay()
    chain.finish()
    assert chain.envoy.has[CLUSTER_TYPE_URL] == {"a": (GOOD.version, "one")}
    assert not chain.relay.incomplete


@pytest.mark.parametrize("starting", [True, False])
def test_envoy_that_has_not_started_does_not_serve_for_the_control_plane(starting: bool) -> None:
    """It has resources, which an earlier control plane sent."""
    chain = Chain()
    chain.sidecars = (features.ENVOY_TRIALS,)
    chain.kept = ResourceSet([GOOD])
    chain.start_relay()
    chain.relay.is_starting = lambda: starting
    chain.publish(ResourceSet([BAD]))
    while chain.relay.node is None:
        chain.envoy_to_relay()
    chain.connect_relay()
    chain.finish()
    assert chain.server is not None
    assert chain.server.conversation.serving != starting
