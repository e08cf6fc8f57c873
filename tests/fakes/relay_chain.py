"""A relay between a control plane and a modelled Envoy, taken through a history step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fakes.envoy_model import Ask, Envoy, Reply, make_resource, rejectable
from fakes.envoy_worlds import check
from gatehouse.agent.envoy.relay import Relay
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, SECRET_TYPE_URL, ResourceSet
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache


def versions(resources: ResourceSet) -> set[tuple[str, str, str]]:
    """Type, name and version of each."""
    named = resources.by_type.values()
    return {
        (resource.type_url, resource.name, resource.version)
        for own in named
        for resource in own.values()
    }


MOVES = (
    "envoy_to_relay",
    "relay_to_envoy",
    "relay_to_server",
    "server_to_relay",
    "relay_hears",
    "envoy_handles",
    "disk",
)
"""Steps of normal operation."""


class Chain:
    """A control plane, a relay and its disk, and a modelled Envoy."""

    sidecars: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.publication = SnapshotCache()
        self.refusable: set[str] = set()
        self.envoy = Envoy()
        self.kept = ResourceSet()
        self.unkept: set[tuple[str, str, str]] = set()
        """Type, name and version of what Envoy took and no relay that is there heard of."""
        self.start_relay()

    def start_relay(self) -> None:
        """Have another relay, which knows what is on the disk."""
        self.relay = Relay(self.kept, self.sidecars)
        self.down: deque[Reply] = deque()
        self.server: delta.DeltaStream | None = None
        self.connect_envoy()

    def start_envoy(self) -> None:
        """Have another Envoy, which knows nothing."""
        self.envoy = Envoy()
        self.connect_envoy()

    def connect_envoy(self) -> None:
        heard_of = versions(self.relay.cache.accepted)
        self.unkept |= {
            envoy_version
            for envoy_version in self.envoy_versions()
            if envoy_version not in heard_of
        }
        self.envoy.broken_by_rejection = self.refusable.__contains__
        self.envoy.connect()
        self.relay.opened()

    def envoy_versions(self) -> set[tuple[str, str, str]]:
        """Return type, name and version of Envoy's resources, without removed ones."""
        return {
            (type_url, name, version)
            for type_url, named in self.envoy.has.items()
            for name, (version, _) in named.items()
            if name not in self.envoy.orphaned[type_url]
        }

    def lose_disk(self) -> None:
        """Have another relay, which finds nothing on the disk."""
        self.kept = ResourceSet()
        self.start_relay()

    def disconnect_envoy(self) -> None:
        self.envoy.disconnect()
        if self.relay.stream is not None:
            self.relay.closed(self.relay.stream)

    def disconnect_relay(self) -> None:
        self.server = None
        self.down.clear()

    def connect_relay(self) -> None:
        if self.relay.node is not None:
            self.server = delta.DeltaStream(self.publication)
            self.down.clear()
            self.relay.connected()

    def publish(self, world: ResourceSet) -> None:
        for resource in world.by_type.get(CLUSTER_TYPE_URL, {}).values():
            if rejectable(resource):
                self.refusable.add(resource.name)
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
        if self.relay.needs_resubscribe:
            self.connect_relay()
        if self.server is None or not self.relay.requests:
            return False
        self.server.receive(self.relay.requests.pop(0))
        return True

    def server_to_relay(self) -> bool:
        message = self.server.next() if self.server else None
        if message is not None:
            self.down.append(Reply.FromString(message))
        return message is not None

    def relay_hears(self) -> bool:
        if not self.down:
            return False
        self.relay.on_message(self.down.popleft())
        return True

    def envoy_handles(self) -> bool:
        if not self.envoy.inbox:
            return False
        self.envoy.handle()
        return True

    def disk(self) -> bool:
        changes = self.relay.changes()
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
        dialogue = self.relay.stream
        if dialogue is not None and dialogue.conversation.deadline is not None:
            self.relay.on_deadline()
            return True
        if self.server is not None and self.server.conversation.deadline is not None:
            self.server.conversation.on_deadline()
            return True
        return False

    def finish(self) -> None:
        for _ in range(10_000):
            if not (self.step() or self.wait()):
                return
        raise AssertionError("it never comes to rest")


def run_steps(steps: Sequence[object]) -> Chain:
    """Take steps, one after another; of a world, that it is published."""
    chain = Chain()
    for step in steps:
        if isinstance(step, ResourceSet):
            chain.publish(step)
        else:
            getattr(chain, str(step))()
    return chain


def run_to_end(steps: Sequence[object]) -> tuple[Chain, ResourceSet]:
    """Go through steps, publish what was published last once more, and come to rest."""
    chain = run_steps(steps)
    last = next((step for step in reversed(steps) if isinstance(step, ResourceSet)), ResourceSet())
    chain.publish(ResourceSet([make_resource(SECRET_TYPE_URL, "nobody asks for this", "one")]))
    chain.publish(last)
    if chain.relay.stream is None:
        chain.connect_envoy()
    while chain.relay.node is None:
        chain.envoy_to_relay()
    if chain.server is None:
        chain.connect_relay()
    chain.finish()
    return chain, last


def assert_consistent(chain: Chain, last: ResourceSet) -> None:
    """Envoy has ``last``, less what it refuses; the control plane knows, and the disk has it."""
    assert chain.server is not None
    conversation = chain.server.conversation
    refused = [
        rejected_resource.resource for rejected_resource in conversation.rejected_resources()
    ]
    check(chain.envoy, last, refused)
    assert conversation.confirmed == last.version
    # Only a relay that sent an accepted version before a rejected one can write it to disk.
    dismissed = {resource.key for resource in refused}
    excused = {version for version in chain.unkept if version[:2] in dismissed}
    assert chain.envoy_versions() - excused <= versions(chain.kept)
    older = {
        version
        for version in versions(chain.kept)
        if version[:2] in {excused_version[:2] for excused_version in excused}
    }
    assert versions(chain.kept) - older <= chain.envoy_versions()


def settled(*worlds: ResourceSet) -> Chain:
    """A chain in which everybody has the last of ``worlds``."""
    chain = Chain()
    for world in worlds:
        chain.publish(world)
        while chain.relay.node is None:
            chain.envoy_to_relay()
        if chain.server is None:
            chain.connect_relay()
        chain.finish()
    return chain
