"""ADS session of one client: every interleaving ends with the published resources."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.envoy_model import Envoy, Reply, make_resource, rejectable
from fakes.envoy_worlds import check, worlds
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_session import AdsSession, Request
from gatehouse.dataplane.xds.resources import CLUSTER, ENDPOINTS, SECRET, ResourceSet
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
        for each in world.by_type.get(CLUSTER, {}).values():
            if rejectable(each):
                self.refusable.add(each.name)
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
    session.publish(ResourceSet([make_resource(SECRET, "nobody asks for this", "one")]))
    last = next((each for each in reversed(steps) if isinstance(each, ResourceSet)), ResourceSet())
    session.publish(last)
    session.finish()
    conversation = session.dialogue.conversation
    assert conversation.confirmed == last.version
    check(session.envoy, last, [each.resource for each in conversation.rejected_resources()])
    assert session.envoy.faults == []
    assert session.envoy.waits == 0


def test_version_is_confirmed_only_after_late_endpoints_are_accepted() -> None:
    publication = SnapshotCache()
    publication.publish(
        ResourceSet([make_resource(CLUSTER, "a", "one"), make_resource(ENDPOINTS, "a", "two")])
    )
    conversation = AdsSession(publication)
    has = {"a": make_resource(CLUSTER, "a", "one").version}
    conversation.receive(Request(CLUSTER, versions=has))
    greeting = conversation.next()
    assert greeting is not None
    conversation.receive(Request(CLUSTER, nonce=greeting.nonce))
    assert conversation.next() is None
    older = {"a": make_resource(ENDPOINTS, "a", "one").version}
    conversation.receive(Request(ENDPOINTS, subscribe=("a",), versions=older))
    told = conversation.next()
    assert told is not None
    assert conversation.next() is None
    assert conversation.confirmed == ""
    conversation.receive(Request(ENDPOINTS, nonce=told.nonce))
    assert conversation.next() is None
    assert conversation.confirmed == publication.current.version
