"""One client's conversation: whatever the interleaving, it ends with what is published."""

from __future__ import annotations

from collections.abc import Iterable

from envoy_model import Envoy, Reply, made, refusable
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.xds import delta
from gatehouse.xds.publication import Publication
from gatehouse.xds.resources import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTES,
    SECRET,
    Resource,
    Resources,
)

NAMES = ("a", "b", "c")
GOOD = st.sampled_from(["one", "two"])
TEXTS = st.one_of(GOOD, GOOD, GOOD, st.sampled_from(["bad", "bad two", "ugly"]))


@st.composite
def worlds(draw: st.DrawFn) -> Resources:
    """Listeners that lead to clusters that are there; some of it is refused."""
    clusters = draw(st.dictionaries(st.sampled_from(NAMES), TEXTS, max_size=3))
    listeners = draw(st.dictionaries(st.sampled_from(["l", "m"]), GOOD, max_size=2))
    found: list[Resource] = []
    for name, text in clusters.items():
        found.append(made(CLUSTER, name, text))
        if draw(st.booleans()) or draw(st.booleans()):
            found.append(made(ENDPOINTS, name, draw(TEXTS)))
    for name, text in listeners.items():
        found.append(made(LISTENER, name, f"routes-{name}|{text}"))
        leads = draw(st.lists(st.sampled_from(sorted(clusters)), unique=True)) if clusters else []
        found.append(made(ROUTES, f"routes-{name}", f"{','.join(leads)}|{text}"))
    return Resources(found)


class Session:
    """A server and a modelled Envoy."""

    def __init__(self) -> None:
        self.publication = Publication()
        self.envoy = Envoy()
        self.refusable: set[str] = set()
        self.envoy.broken_by_refusal = self.refusable.__contains__
        self.connect()

    def connect(self) -> None:
        self.dialogue = delta.Dialogue(self.publication)
        self.envoy.connect()

    def publish(self, world: Resources) -> None:
        for each in world.by_type.get(CLUSTER, {}).values():
            if refusable(each):
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
        if self.dialogue.conversation.awaits is None:
            return False
        self.dialogue.conversation.impatient()
        return True

    def finish(self) -> None:
        for _ in range(10_000):
            if not (self.hear() or self.say() or self.handle() or self.wait()):
                return
        raise AssertionError("it never comes to rest")


def check(envoy: Envoy, world: Resources, refused: Iterable[Resource]) -> None:
    """The client has what is published, less what it refuses."""
    dismissed = {each.key for each in refused}
    assert {key for key in dismissed if not refusable(world.by_type[key[0]][key[1]])} == set()
    for type_url in (CLUSTER, LISTENER):
        published = world.by_type.get(type_url, {})
        assert envoy.has[type_url].keys() <= published.keys()
        for name, each in published.items():
            if refusable(each):
                assert each.key in dismissed
                assert envoy.has[type_url].get(name, ("",))[0] != each.version
            else:
                assert envoy.has[type_url][name][0] == each.version
    for type_url in (ENDPOINTS, ROUTES):
        for name in envoy._wanted(type_url):
            found = world.get(type_url, name)
            if found is not None and not refusable(found):
                assert envoy.has[type_url][name][0] == found.version


STEPS = st.one_of(worlds(), st.sampled_from(["hear", "say", "handle", "wait"]), st.just("connect"))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(worlds(), *[st.sampled_from(["hear", "say", "handle"])] * 5, STEPS)))
def test_whatever_happens_the_client_ends_with_what_is_published(steps: list[object]) -> None:
    session = Session()
    for step in steps:
        if isinstance(step, Resources):
            session.publish(step)
        else:
            getattr(session, str(step))()
    session.publish(Resources([made(SECRET, "nobody asks for this", "one")]))
    last = next((each for each in reversed(steps) if isinstance(each, Resources)), Resources())
    session.publish(last)
    session.finish()
    conversation = session.dialogue.conversation
    assert conversation.confirmed == last.version
    check(session.envoy, last, [each.resource for each in conversation.refused()])
    assert session.envoy.faults == []
