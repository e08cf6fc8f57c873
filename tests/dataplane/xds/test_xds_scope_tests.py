"""Trials of a client that serves: it gets copies of scopes, one at a time, and nothing else."""

from __future__ import annotations

from envoy.config.route.v3 import scoped_route_pb2

from fakes.envoy_model import make_resource
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.ads_messages import AdsRequest, Response
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    SCOPE_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.scope_tests import TRIAL_SCOPE
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache

SERVED = "served before"
BAD = "bad"
"""Status text of a virtual host that the client rejects."""


def scope(name: str, text: str = "") -> XdsResource:
    """Return a scope whose content is ``text``."""
    proto = scoped_route_pb2.ScopedRouteConfiguration(name=name)
    proto.key.fragments.add(string_key=name)
    proto.route_configuration.virtual_hosts.add(name=text or name, domains=["*"])
    origins = tuple(Origin("HTTPRoute", "ns", name, f"rules[{rule}]") for rule in range(2))
    return XdsResource.make(SCOPE_TYPE_URL, name, proto.SerializeToString(), origins=origins)


class Client:
    """A client that serves, with scopes of an earlier stream."""

    def __init__(self, *scopes: str) -> None:
        self.publication = SnapshotCache()
        self.has = {name: scope(name, SERVED) for name in scopes}
        self.received: list[Response] = []
        self.connect()

    def connect(self) -> None:
        """Start a stream."""
        self.session = AdsSession(self.publication)
        self.session.knows_trials = self.session.tests_scopes = True
        self.session.names_rejections = True
        versions = {name: resource.version for name, resource in self.has.items()}
        self.session.receive(AdsRequest(CLUSTER_TYPE_URL))
        self.session.receive(AdsRequest(SCOPE_TYPE_URL, versions=versions))

    def publish(self, *resources: XdsResource, trial: bool = False) -> list[Response]:
        """Publish a set and answer all responses. Return these."""
        published = ResourceSet(resources)
        self.publication.publish(published.as_trial() if trial else published)
        self.received = []
        while (response := self.session.next()) is not None:
            self.received.append(response)
            self.answer(response)
        return self.received

    def answer(self, response: Response) -> None:
        """Accept a response, except scopes with :data:`BAD`."""
        reasons = {}
        for resource in response.resources:
            if BAD.encode() in resource.body:
                reasons[resource.name] = "no such status"
            else:
                self.has[resource.name] = resource
        for name in response.removed:
            self.has.pop(name, None)
        nack = Nack("rejected", reasons) if reasons else None
        self.session.receive(AdsRequest(response.type_url, nonce=response.nonce, nack=nack))

    def tests(self) -> tuple[bool, list[str]]:
        """Return whether a trial is tested, and the names of the scopes that are rejected."""
        tests = self.session.tests
        return tests.finished, [rejected.resource.name for rejected in tests.rejected()]


def sent(responses: list[Response]) -> list[tuple[str, ...]]:
    """Return the names of the resources in each response."""
    return [tuple(resource.name for resource in response.resources) for response in responses]


def test_only_copies_of_rejected_scopes_are_sent() -> None:
    client = Client("a", "b", "c")
    client.publish(scope("a", BAD), scope("b", BAD), scope("c"))
    cluster = make_resource(CLUSTER_TYPE_URL, "new", "anything")
    bare = scope("c", "without policies")
    responses = client.publish(scope("a", "half"), scope("b", "half"), bare, cluster, trial=True)
    assert sent(responses) == [(TRIAL_SCOPE,), (TRIAL_SCOPE,)]
    assert client.tests() == (True, [])
    assert (client.has["a"], client.has["c"]) == (scope("a", SERVED), scope("c"))


def test_copy_differs_from_its_scope_in_name_and_key_only() -> None:
    client = Client("a")
    client.publish(scope("a", BAD))
    client.publish(scope("a", "half"), trial=True)
    copy = scoped_route_pb2.ScopedRouteConfiguration.FromString(client.has[TRIAL_SCOPE].body)
    original = scoped_route_pb2.ScopedRouteConfiguration.FromString(scope("a", "half").body)
    assert copy.route_configuration == original.route_configuration
    assert copy.key.fragments[0].string_key.endswith("\n"), "a header has no line break"
    assert client.has[TRIAL_SCOPE].origins == scope("a").origins


def test_rejected_copy_is_reported_as_its_scope() -> None:
    client = Client("a", "b")
    client.publish(scope("a", BAD), scope("b", BAD))
    client.publish(scope("a", BAD + " half"), scope("b", "half"), trial=True)
    assert client.tests() == (True, ["a"])
    assert TRIAL_SCOPE not in {r.resource.name for r in client.session.rejected_resources()}


def test_scope_of_which_the_result_is_known_is_not_sent_again() -> None:
    client = Client("a", "b")
    client.publish(scope("a", BAD), scope("b", BAD))
    client.publish(scope("a", "half"), scope("b", BAD), trial=True)
    assert client.tests() == (True, ["b"])
    responses = client.publish(scope("a", "half"), scope("b", "half"), trial=True)
    assert sent(responses) == [(TRIAL_SCOPE,)]
    assert client.tests() == (True, [])


def test_client_has_no_copy_after_the_last_trial() -> None:
    client = Client("a")
    client.publish(scope("a", BAD))
    client.publish(scope("a", "half"), trial=True)
    assert TRIAL_SCOPE in client.has
    client.publish(scope("a", "good"))
    assert client.has == {"a": scope("a", "good")}


def test_copy_that_is_accepted_after_the_last_trial_is_removed() -> None:
    client = Client("a")
    client.publish(scope("a", BAD))
    client.publication.publish(ResourceSet([scope("a", "half")]).as_trial())
    copy = client.session.next()
    assert copy is not None
    client.publish(scope("a", "good"))
    client.answer(copy)
    client.publish(scope("a", "edited"))
    assert client.has == {"a": scope("a", "edited")}


def test_trial_on_a_new_stream_is_tested_by_what_the_client_lacks() -> None:
    client = Client("a")
    client.publish(scope("a", BAD))
    client.publish(scope("a", "half"), trial=True)
    client.connect()
    client.publish(scope("a", BAD + " half"), trial=True)
    assert client.tests() == (True, ["a"])
    client.publish(scope("a", "good"))
    assert client.has == {"a": scope("a", "good")}


def test_trial_is_not_tested_before_the_client_answers() -> None:
    client = Client("a")
    client.publish(scope("a", BAD))
    client.publication.publish(ResourceSet([scope("a", "half")]).as_trial())
    assert client.session.next() is not None
    assert client.tests() == (False, [])
    assert client.session.next() is None


def test_client_without_scopes_passes_every_trial() -> None:
    client = Client("a")
    client.publish(scope("a"))
    assert client.publish(trial=True) == []
    assert client.tests() == (True, [])
