"""A control plane, a relay and an Envoy in a row, that take their steps one by one."""

from __future__ import annotations

from collections import deque

from envoy_model import Ask, Envoy, Reply, refusable
from hypothesis import strategies as st

from gatehouse.agent.envoy.relay import Relay
from gatehouse.xds import delta
from gatehouse.xds.publication import Publication
from gatehouse.xds.resources import CLUSTER, Resources


class Chain:
    """A control plane, a relay and its disk, and a modelled Envoy."""

    companions: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.publication = Publication()
        self.refusable: set[str] = set()
        self.envoy = Envoy()
        self.kept = Resources()
        self.start_relay()

    def start_relay(self) -> None:
        """Have another relay, which knows what is on the disk."""
        self.relay = Relay(self.kept, self.companions)
        self.down: deque[Reply] = deque()
        self.server: delta.Dialogue | None = None
        self.connect_envoy()

    def start_envoy(self) -> None:
        """Have another Envoy, which knows nothing."""
        self.envoy = Envoy()
        self.connect_envoy()

    def connect_envoy(self) -> None:
        self.envoy.broken_by_refusal = self.refusable.__contains__
        self.envoy.connect()
        self.relay.opened()

    def connect_relay(self) -> None:
        if self.relay.node is not None:
            self.server = delta.Dialogue(self.publication)
            self.down.clear()
            self.relay.connected()

    def publish(self, world: Resources) -> None:
        for each in world.by_type.get(CLUSTER, {}).values():
            if refusable(each):
                self.refusable.add(each.name)
        self.publication.publish(world)

    def envoy_to_relay(self) -> bool:
        if not self.envoy.outbox:
            return False
        self.relay.receive(Ask.FromString(self.envoy.outbox.popleft().SerializeToString()))
        return True

    def relay_to_envoy(self) -> bool:
        message = self.relay.next()
        if message is not None:
            self.envoy.inbox.append(Reply.FromString(message))
        return message is not None

    def relay_to_server(self) -> bool:
        if self.relay.doubtful:
            self.connect_relay()
        if self.server is None or not self.relay.asks:
            return False
        self.server.receive(self.relay.asks.pop(0))
        return True

    def server_to_relay(self) -> bool:
        message = self.server.next() if self.server else None
        if message is not None:
            self.down.append(Reply.FromString(message))
        return message is not None

    def relay_hears(self) -> bool:
        if not self.down:
            return False
        self.relay.hear(self.down.popleft())
        return True

    def envoy_handles(self) -> bool:
        if not self.envoy.inbox:
            return False
        self.envoy.handle()
        return True

    def disk(self) -> bool:
        changes, self.relay.changes = self.relay.changes, []
        for change in changes:
            self.kept = self.kept.changed(change.new, change.gone)
        return bool(changes)

    def step(self) -> bool:
        return (
            self.envoy_to_relay()
            or self.relay_to_server()
            or self.server_to_relay()
            or self.relay_hears()
            or self.relay_to_envoy()
            or self.envoy_handles()
            or self.disk()
        )

    def wait(self) -> bool:
        """Let time pass, after everything happened that can happen without."""
        if self.step() or self.envoy.time_out():
            return True
        self.relay.quiet()
        if self.step():
            return True
        dialogue = self.relay.dialogue
        if dialogue is not None and dialogue.conversation.awaits is not None:
            self.relay.impatient()
            return True
        if self.server is not None and self.server.conversation.awaits is not None:
            self.server.conversation.impatient()
            return True
        return False

    def finish(self) -> None:
        for _ in range(10_000):
            if not (self.step() or self.wait()):
                return
        raise AssertionError("it never comes to rest")


MOVES = st.sampled_from(
    [
        "envoy_to_relay",
        "relay_to_envoy",
        "relay_to_server",
        "server_to_relay",
        "relay_hears",
        "envoy_handles",
        "disk",
    ]
)
