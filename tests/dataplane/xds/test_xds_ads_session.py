"""ADS session of one client: every interleaving ends with the published resources."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.envoy_model import Envoy, Reply, make_resource, rejectable
from fakes.envoy_worlds import check, worlds
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_messages import AdsRequest
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    SECRET_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
    TRIAL_NAME,
    ResourceSet,
)
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache


class Session:
    """A server and a modelled Envoy."""

    def __init__(self) -> None:
        self.publication = SnapshotCache()
        self.envoy = Envoy()
        self.refusable: set[str] = set()
        self.envoy.broken_by_rejection = self.refusable.__contains__
        self.connect()

    def connect(self) -> None:
        self.dialogue = delta.DeltaStream(self.publication)
        self.envoy.connect()

    def publish(self, world: ResourceSet) -> None:
        for resource in world.by_type.get(CLUSTER_TYPE_URL, {}).values():
            if rejectable(resource):
                self.refusable.add(resource.name)
        self.publication.publish(world)

    def hear(self) -> bool:
        if not self.envoy.outbox:
            return False
        self.dialogue.receive(self.envoy.outbox.popleft())
        return True

    def say(self) -> bool:
        message = self.dialogue.next()
        if message is not None:
            self.envoy.inbox.append(Reply.FromString(message))
        return message is not None

    def handle(self) -> bool:
        if not self.envoy.inbox:
            return False
        self.envoy.handle()
        return True

    def wait(self) -> bool:
        """Let so much time pass that patience ends, if there is nothing else that can happen."""
        busy = self.envoy.outbox or self.envoy.inbox
        if busy or self.say():
            return False
        if self.envoy.time_out():
            return True
        if self.dialogue.conversation.deadline is None:
            return False
        self.dialogue.conversation.on_deadline()
        return True

    def finish(self) -> None:
        for _ in range(10_000):
            if not (self.hear() or self.say() or self.handle() or self.wait()):
                return
        raise AssertionError("it never comes to rest")


STEPS = st.one_of(worlds(), st.sampled_from(["hear", "say", "handle", "wait"]), st.just("connect"))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(worlds(), *[st.sampled_from(["hear", "say", "handle"])] * 5, STEPS)))
def test_client_has_published_resources_after_any_interleaving(steps: list[object]) -> None:
    session = Session()
    for step in steps:
        if isinstance(step, ResourceSet):
            session.publish(step)
        else:
            getattr(session, str(step))()
    session.publish(ResourceSet([make_resource(SECRET_TYPE_URL, "nobody asks for this", "one")]))
    last = next(
        (
            previous_step
            for previous_step in reversed(steps)
            if isinstance(previous_step, ResourceSet)
        ),
        ResourceSet(),
    )
    session.publish(last)
    session.finish()
    conversation = session.dialogue.conversation
    assert conversation.confirmed == last.version
    check(
        session.envoy,
        last,
        [rejected_resource.resource for rejected_resource in conversation.rejected_resources()],
    )
    assert session.envoy.faults == []
    assert session.envoy.waits == 0


def test_version_is_confirmed_only_after_late_endpoints_are_accepted() -> None:
    publication = SnapshotCache()
    publication.publish(
        ResourceSet(
            [
                make_resource(CLUSTER_TYPE_URL, "a", "one"),
                make_resource(ENDPOINTS_TYPE_URL, "a", "two"),
            ]
        )
    )
    conversation = AdsSession(publication)
    has = {"a": make_resource(CLUSTER_TYPE_URL, "a", "one").version}
    conversation.receive(AdsRequest(CLUSTER_TYPE_URL, versions=has))
    greeting = conversation.next()
    assert greeting is not None
    conversation.receive(AdsRequest(CLUSTER_TYPE_URL, nonce=greeting.nonce))
    assert conversation.next() is None
    older = {"a": make_resource(ENDPOINTS_TYPE_URL, "a", "one").version}
    conversation.receive(AdsRequest(ENDPOINTS_TYPE_URL, subscribe=("a",), versions=older))
    response = conversation.next()
    assert response is not None
    assert conversation.next() is None
    assert conversation.confirmed == ""
    conversation.receive(AdsRequest(ENDPOINTS_TYPE_URL, nonce=response.nonce))
    assert conversation.next() is None
    assert conversation.confirmed == publication.current.version


def test_client_serves_if_it_has_resources_from_an_earlier_stream() -> None:
    publication = SnapshotCache()
    publication.publish(ResourceSet([make_resource(CLUSTER_TYPE_URL, "a", "one")]))
    new, known = AdsSession(publication), AdsSession(publication)
    new.receive(AdsRequest(CLUSTER_TYPE_URL))
    known.receive(AdsRequest(CLUSTER_TYPE_URL, versions={"a": "older"}))
    assert (new.serving, known.serving) == (False, True)
    response = new.next()
    assert response is not None
    new.receive(AdsRequest(CLUSTER_TYPE_URL, nonce=response.nonce))
    assert new.next() is None
    assert new.serving


def test_whole_trial_is_sent_only_to_a_client_that_serves_nothing() -> None:
    publication = SnapshotCache()
    cluster = ResourceSet([make_resource(CLUSTER_TYPE_URL, "a", "one")])
    publication.publish(cluster.as_trial())
    new, known, unaware = (AdsSession(publication) for _ in range(3))
    new.knows_trials = known.knows_trials = True
    for conversation in (new, unaware):
        conversation.receive(AdsRequest(SIDECAR_CONFIG_TYPE_URL))
        conversation.receive(AdsRequest(CLUSTER_TYPE_URL))
    known.receive(AdsRequest(CLUSTER_TYPE_URL, versions={"a": "older"}))
    accept_all(new)
    assert (new.confirmed, new.serving) == (publication.current.version, False)
    assert known.next() is None
    assert unaware.next() is None, "it would become ready"
    publication.publish(cluster)
    assert known.next() is not None
    accept_all(new)
    assert (new.confirmed, new.serving) == (cluster.version, True)


def accept_all(conversation: AdsSession) -> None:
    """Acknowledge responses until there is none."""
    while (response := conversation.next()) is not None:
        conversation.receive(AdsRequest(response.type_url, nonce=response.nonce))


def test_client_that_has_a_trial_from_an_earlier_stream_serves_nothing() -> None:
    publication = SnapshotCache()
    publication.publish(ResourceSet([make_resource(CLUSTER_TYPE_URL, "a", "one")]))
    conversation = AdsSession(publication)
    conversation.receive(AdsRequest(SIDECAR_CONFIG_TYPE_URL, versions={TRIAL_NAME: "any"}))
    conversation.receive(AdsRequest(CLUSTER_TYPE_URL, versions={"a": "older"}))
    assert not conversation.serving


def test_client_that_rejects_a_resource_of_its_first_publication_does_not_serve_yet() -> None:
    publication = SnapshotCache()
    publication.publish(ResourceSet([make_resource(CLUSTER_TYPE_URL, "a", "one")]))
    conversation = AdsSession(publication)
    conversation.receive(AdsRequest(CLUSTER_TYPE_URL))
    response = conversation.next()
    assert response is not None
    conversation.receive(AdsRequest(CLUSTER_TYPE_URL, nonce=response.nonce, nack=Nack("bad a")))
    assert conversation.next() is None
    assert (conversation.confirmed, conversation.serving) == (publication.current.version, False)
