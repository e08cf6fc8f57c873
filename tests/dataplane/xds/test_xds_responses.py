"""Content and order of the responses to one client."""

from __future__ import annotations

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import scoped_route_pb2
from envoy.service.discovery.v3 import discovery_pb2

from fakes.envoy_model import make_resource
from fakes.xds_client import A2, A, B, Client
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_messages import AdsRequest, Response
from gatehouse.dataplane.xds.ads_session import CLUSTER_WARMING_SECONDS, AdsSession
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    ROUTES_TYPE_URL,
    SCOPE_TYPE_URL,
    SECRET_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.snapshot_cache import REMEMBERED_CHANGES, SnapshotCache
from gatehouse.dataplane.xds.subscription import RESPONSE_BYTES


def test_first_request_without_names_subscribes_to_wildcard() -> None:
    client = Client(A, B)
    client.ask(CLUSTER_TYPE_URL)
    assert client.hears() == (["a", "b"], [])


def test_named_type_has_no_wildcard_subscription() -> None:
    client = Client(make_resource(ENDPOINTS_TYPE_URL, "a", "one"))
    client.ask(ENDPOINTS_TYPE_URL)
    assert client.hears() == ([], [])
    client.ask(ENDPOINTS_TYPE_URL, "a")
    assert client.hears() == (["a"], [])


def test_wildcard_among_names_subscribes_to_all_resources() -> None:
    client = Client(
        make_resource(ENDPOINTS_TYPE_URL, "a", "one"), make_resource(ENDPOINTS_TYPE_URL, "b", "one")
    )
    client.ask(ENDPOINTS_TYPE_URL, "*", "b")
    assert sorted(client.hears()[0]) == ["a", "b"]


def test_named_subscription_remains_after_wildcard_is_unsubscribed() -> None:
    client = Client(A, B)
    client.ask(CLUSTER_TYPE_URL, "*", "b")
    client.hears()
    client.accept()
    client.conversation.receive(AdsRequest(CLUSTER_TYPE_URL, unsubscribe=("*",)))
    client.publish(A2, make_resource(CLUSTER_TYPE_URL, "b", "two"))
    assert client.hears() == (["b"], [])


def test_unsubscribed_name_gets_no_updates() -> None:
    client = Client(make_resource(ENDPOINTS_TYPE_URL, "a", "one"))
    client.ask(ENDPOINTS_TYPE_URL, "a")
    client.hears()
    client.accept()
    client.conversation.receive(AdsRequest(ENDPOINTS_TYPE_URL, unsubscribe=("a",)))
    client.publish(make_resource(ENDPOINTS_TYPE_URL, "a", "two"))
    assert client.hears() == ([], [])


def test_unsubscribed_name_that_wildcard_covers_is_sent_again() -> None:
    client = Client(A)
    client.ask(CLUSTER_TYPE_URL, "*", "a")
    client.hears()
    client.accept()
    client.conversation.receive(AdsRequest(CLUSTER_TYPE_URL, unsubscribe=("a",)))
    assert client.hears() == (["a"], [])


def test_secrets_are_sent_singly_when_client_does_not_name_rejections() -> None:
    secrets = make_resource(SECRET_TYPE_URL, "a", "one"), make_resource(SECRET_TYPE_URL, "b", "one")
    envoy, relay = Client(*secrets), Client(*secrets)
    relay.conversation.names_rejections = True
    envoy.ask(SECRET_TYPE_URL, "a", "b")
    assert envoy.hears() == (["a"], [])
    envoy.accept()
    assert envoy.hears() == (["b"], [])
    relay.ask(SECRET_TYPE_URL, "a", "b")
    assert relay.hears() == (["a", "b"], [])


def test_repeated_subscription_sends_resource_again() -> None:
    client = Client(make_resource(SECRET_TYPE_URL, "a", "one"))
    client.ask(SECRET_TYPE_URL, "a")
    client.hears()
    client.ask(SECRET_TYPE_URL, "a")
    assert client.conversation.next() is None, "one response at a time"
    client.accept()
    assert client.hears() == (["a"], [])


def test_missing_name_is_reported_removed_once() -> None:
    client = Client(A)
    client.ask(ENDPOINTS_TYPE_URL, "x")
    assert client.hears() == ([], ["x"])
    client.accept()
    assert client.hears() == ([], [])
    client.publish(A, make_resource(ENDPOINTS_TYPE_URL, "x", "one"))
    assert client.hears() == (["x"], [])


def test_session_is_silent_before_publish_and_after_withdraw() -> None:
    publication = SnapshotCache()
    conversation = AdsSession(publication)
    conversation.receive(AdsRequest(CLUSTER_TYPE_URL, versions={"a": A.version}))
    assert conversation.next() is None
    publication.publish(ResourceSet([A, B]))
    assert conversation.next() is not None
    publication.withdraw()
    conversation.receive(AdsRequest(CLUSTER_TYPE_URL, nonce="1"))
    conversation.receive(AdsRequest(LISTENER_TYPE_URL))
    assert conversation.next() is None


def test_empty_resource_set_is_sent_once() -> None:
    client = Client()
    client.ask(CLUSTER_TYPE_URL)
    assert client.hears() == ([], [])
    assert client.last == Response(CLUSTER_TYPE_URL, "1")
    client.accept()
    assert client.conversation.next() is None


def test_reconnected_client_gets_only_differences() -> None:
    client = Client(A2, B)
    versions = {"a": A.version, "b": B.version, "gone": "some version"}
    client.ask(CLUSTER_TYPE_URL, "*", versions=versions)
    client.ask(LISTENER_TYPE_URL)
    assert client.hears() == (["a"], [])
    client.accept()
    assert client.hears() == ([], [])
    assert client.last == Response(LISTENER_TYPE_URL, "2")
    client.accept()
    assert client.hears() == ([], ["gone"])


def test_acknowledgement_of_unknown_nonce_is_ignored() -> None:
    client = Client(A)
    client.ask(CLUSTER_TYPE_URL)
    client.hears()
    client.conversation.receive(AdsRequest(CLUSTER_TYPE_URL, nonce="7"))
    client.publish(A2)
    assert client.conversation.next() is None
    assert client.conversation.confirmed == ""


def test_changes_published_while_response_is_pending_are_sent_together() -> None:
    client = Client(A)
    client.ask(CLUSTER_TYPE_URL)
    client.ask(LISTENER_TYPE_URL)
    client.hears()
    for text in ("two", "three", "four"):
        client.publish(make_resource(CLUSTER_TYPE_URL, "a", text), B)
    client.accept()
    assert sorted(client.hears()[0]) == ["a", "b"]
    assert client.last is not None
    assert {resource.body for resource in client.last.resources} == {b"four", b"one"}


def test_pending_empty_response_is_replaced_by_published_resource() -> None:
    client = Client()
    client.ask(CLUSTER_TYPE_URL)
    assert client.hears() == ([], [])
    client.ask(LISTENER_TYPE_URL)
    client.publish(make_resource(LISTENER_TYPE_URL, "l", "one"))
    client.accept()
    assert client.hears() == (["l"], [])


def test_late_secrets_do_not_wait_for_their_clusters() -> None:
    client = Client(A)
    client.ask(CLUSTER_TYPE_URL)
    client.hears()
    client.ask(SECRET_TYPE_URL, "s")
    assert client.hears() == ([], ["s"])
    client.accept()
    client.publish(
        A,
        make_resource(SECRET_TYPE_URL, "s", "one"),
        make_resource(SECRET_TYPE_URL, "other", "one"),
    )
    assert client.hears() == (["s"], [])


def test_large_response_is_divided() -> None:
    many = [make_resource(CLUSTER_TYPE_URL, f"c{n}", "x" * (RESPONSE_BYTES // 2)) for n in range(7)]
    client = Client(*many)
    client.ask(CLUSTER_TYPE_URL)
    sent_names: list[str] = []
    while names := client.hears()[0]:
        assert len(names) == 2 or len(sent_names) == 6
        sent_names += names
        assert client.conversation.next() is None
        client.accept()
    assert sent_names == [resource.name for resource in many]


def test_oversized_resource_is_sent_in_its_own_response() -> None:
    client = Client(A, make_resource(CLUSTER_TYPE_URL, "large", "x" * (2 * RESPONSE_BYTES)), B)
    client.ask(CLUSTER_TYPE_URL)
    for expected in (["a"], ["large"], ["b"]):
        assert client.hears() == (expected, [])
        client.accept()


def test_routes_wait_for_clusters_and_endpoints_do_not() -> None:
    listener, routes = (
        make_resource(LISTENER_TYPE_URL, "l", "routes"),
        make_resource(ROUTES_TYPE_URL, "routes", "a"),
    )
    first, second = (
        make_resource(ENDPOINTS_TYPE_URL, "a", "one"),
        make_resource(ENDPOINTS_TYPE_URL, "a", "two"),
    )
    client = Client(A, first, listener, routes)
    for type_url in (CLUSTER_TYPE_URL, LISTENER_TYPE_URL):
        client.ask(type_url)
    client.ask(ENDPOINTS_TYPE_URL, "a")
    client.ask(ROUTES_TYPE_URL, "routes")
    heard = []
    for _ in range(4):
        client.hears()
        assert client.last is not None
        heard.append(client.last.type_url)
        client.accept()
    assert heard == [CLUSTER_TYPE_URL, ENDPOINTS_TYPE_URL, LISTENER_TYPE_URL, ROUTES_TYPE_URL]
    client.publish(A, B, first, listener, make_resource(ROUTES_TYPE_URL, "routes", "a,b"))
    assert client.hears() == (["b"], [])
    clusters = client.last
    client.publish(A, B, second, listener, make_resource(ROUTES_TYPE_URL, "routes", "a,b"))
    assert client.hears() == (["a"], [])
    client.accept()
    assert client.conversation.next() is None
    client.last = clusters
    client.accept()
    assert client.hears() == (["routes"], [])


def test_cold_clusters_delay_routes_only_until_deadline() -> None:
    listener = make_resource(LISTENER_TYPE_URL, "l", "routes")
    client = Client(A, listener)
    client.ask(CLUSTER_TYPE_URL)
    client.ask(LISTENER_TYPE_URL)
    client.hears()
    awaited = client.conversation.deadline
    assert awaited is not None
    assert awaited.seconds == CLUSTER_WARMING_SECONDS
    assert client.conversation.next() is None
    client.conversation.on_deadline()
    assert client.hears() == (["l"], [])
    client.accept()
    assert client.conversation.next() is None
    assert client.conversation.confirmed == ""
    assert client.conversation.deadline is None


def test_removed_resource_is_removed_after_its_users() -> None:
    client = Client(A, make_resource(LISTENER_TYPE_URL, "l", "routes"))
    client.ask(CLUSTER_TYPE_URL)
    client.ask(LISTENER_TYPE_URL)
    for _ in range(2):
        client.hears()
        client.accept()
    client.publish(B)
    assert client.hears() == (["b"], [])
    client.accept()
    assert client.hears() == ([], ["l"])
    assert client.conversation.next() is None
    client.accept()
    assert client.hears() == ([], ["a"])
    client.accept()
    assert client.conversation.next() is None
    assert client.conversation.confirmed == ResourceSet([B]).version


IN_USE = "cannot bind '127.0.0.1:80': Address already in use"


def _scope(text: str = "") -> XdsResource:
    proto = scoped_route_pb2.ScopedRouteConfiguration(name="s")
    proto.route_configuration.name = text
    return XdsResource.make(SCOPE_TYPE_URL, "s", proto.SerializeToString())


def test_scope_is_never_sent_twice_with_the_same_content() -> None:
    """Envoy would skip it, though its workers may not have it. Its version stays the same."""
    bodies = []
    for _stream in range(2):
        client = Client(_scope("first"))
        client.ask(SCOPE_TYPE_URL)
        for text in ("first", "second", "first"):
            client.publish(_scope(text))
            assert client.hears() == (["s"], [])
            client.refuse("something")
            assert client.last is not None
            (sent,) = client.last.resources
            proto = scoped_route_pb2.ScopedRouteConfiguration.FromString(sent.body)
            assert proto.route_configuration.name == text
            assert sent.version == _scope(text).version
            bodies.append(sent.body)
    assert len(set(bodies)) == 6


def test_relay_gets_scopes_unchanged() -> None:
    client = Client(_scope())
    client.conversation.names_rejections = True
    client.ask(SCOPE_TYPE_URL)
    client.hears()
    assert client.last is not None
    assert client.last.resources == (_scope(),)


@pytest.mark.parametrize(("reason", "uncertain"), [(IN_USE, set()), ("no such cipher", {"bad"})])
def test_client_certainly_lacks_a_listener_whose_port_is_in_use(
    reason: str, uncertain: set[str]
) -> None:
    client = Client(*(make_resource(LISTENER_TYPE_URL, name, "one") for name in ("good", "bad")))
    client.ask(LISTENER_TYPE_URL)
    client.hears()
    client.refuse(f"Error adding/updating listener(s) bad: {reason}\n")
    assert client.hears() == (["good"], [])
    client.accept()
    state = client.conversation.subscription(LISTENER_TYPE_URL)
    assert state is not None
    assert (set(state.rejected), state.uncertain) == ({"bad"}, uncertain)


def test_response_says_whether_more_of_its_type_follows() -> None:
    many = [make_resource(CLUSTER_TYPE_URL, f"c{n}", "x" * (RESPONSE_BYTES // 2)) for n in range(5)]
    client = Client(*many)
    client.ask(CLUSTER_TYPE_URL)
    incomplete: list[bool] = []
    while (response := client.conversation.next()) is not None:
        incomplete.append(response.incomplete)
        client.ask(CLUSTER_TYPE_URL, nonce=response.nonce)
    assert incomplete == [True, True, False]


def test_response_is_complete_if_the_client_has_the_rest() -> None:
    many = [make_resource(CLUSTER_TYPE_URL, f"c{n}", "x" * (RESPONSE_BYTES // 2)) for n in range(5)]
    client = Client(*many)
    has = {resource.name: resource.version for resource in many[2:]}
    client.ask(CLUSTER_TYPE_URL, versions=has)
    response = client.conversation.next()
    assert response is not None
    assert (len(response.resources), response.incomplete) == (2, False)


@pytest.mark.parametrize("incomplete", [True, False])
def test_written_response_says_whether_it_is_incomplete(incomplete: bool) -> None:
    response = Response(CLUSTER_TYPE_URL, "3", incomplete=incomplete)
    written = delta.encode_delta_response(response, "version")
    read = discovery_pb2.DeltaDiscoveryResponse.FromString(written)
    assert delta.is_incomplete(read) == incomplete


def test_written_response_parses_with_protobuf_library() -> None:
    secret = make_resource(SECRET_TYPE_URL, "ü", "text")
    written = delta.encode_delta_response(
        Response(SECRET_TYPE_URL, "3", (secret,), ("x", "y")), "version"
    )
    read = discovery_pb2.DeltaDiscoveryResponse.FromString(written)
    assert (read.type_url, read.nonce, read.system_version_info) == (
        SECRET_TYPE_URL,
        "3",
        "version",
    )
    assert list(read.removed_resources) == ["x", "y"]
    (resource,) = read.resources
    assert (resource.name, resource.version) == ("ü", secret.version)
    assert (resource.resource.type_url, resource.resource.value) == (SECRET_TYPE_URL, b"text")


def test_node_message_describes_client() -> None:
    node = base_pb2.Node(user_agent_name="envoy", client_features=["f"])
    node.user_agent_build_version.version.major_number = 1
    node.user_agent_build_version.version.minor_number = 40
    node.extensions.add(name="b")
    node.extensions.add(name="a")
    info = delta.node_info(node)
    assert info == delta.NodeInfo("envoy/1.40.0", ("a", "b"), frozenset({"f"}))


def test_snapshot_cache_returns_changes_since_version() -> None:
    publication = SnapshotCache()
    publication.publish(ResourceSet([A, B]))
    for n in range(5):
        publication.publish(ResourceSet([make_resource(CLUSTER_TYPE_URL, "a", str(n)), B]))
    assert not publication.publish(ResourceSet([B, make_resource(CLUSTER_TYPE_URL, "a", "4")]))
    assert publication.changes_since(4) == {(CLUSTER_TYPE_URL, "a")}
    assert publication.changes_since(publication.number) == set()
    for n in range(REMEMBERED_CHANGES + 1):
        publication.publish(ResourceSet([A, make_resource(CLUSTER_TYPE_URL, "b", str(n))]))
    assert publication.changes_since(4) is None


def test_changed_set_equals_set_built_from_same_resources() -> None:
    first = ResourceSet([A, B, make_resource(SECRET_TYPE_URL, "s", "one")])
    changed = first.changed(
        [A2, make_resource(LISTENER_TYPE_URL, "l", "one")], [B.key, (ROUTES_TYPE_URL, "never was")]
    )
    rebuilt = ResourceSet(
        [
            A2,
            make_resource(LISTENER_TYPE_URL, "l", "one"),
            make_resource(SECRET_TYPE_URL, "s", "one"),
        ]
    )
    assert changed == rebuilt
    assert changed.by_type[SECRET_TYPE_URL] is first.by_type[SECRET_TYPE_URL]
    assert first.differing(changed) == {A.key, B.key, (LISTENER_TYPE_URL, "l")}
