"""Comparison of listeners by content: Envoy keeps their version while only filter chains change."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from envoy.config.listener.v3 import listener_pb2
from google.protobuf import json_format

from fakes.envoy_agent import options, running
from fakes.envoy_running import EnvoyControlPlane, backend, get, listener, website
from fakes.loopback import free_port
from fakes.patience import until, until_equal
from gatehouse.agent.envoy import served_check, served_listeners
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.agent.envoy.listener_digests import with_digests
from gatehouse.agent.envoy.paths import envoy_paths
from gatehouse.agent.envoy.served_listeners import ServedListeners
from gatehouse.dataplane.xds.distinct_scopes import DistinctScopes
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, XdsResource


def chained(*networks: str, port: int = 80, name: str = "http") -> XdsResource:
    """Return a listener with a filter chain for each network, and one for all other clients."""
    proto = listener_pb2.Listener.FromString(listener(name, port, "http").body)
    for network in networks:
        chain = proto.filter_chains.add()
        chain.CopyFrom(proto.filter_chains[0])
        chain.name = network
        prefix = chain.filter_chain_match.source_prefix_ranges.add(address_prefix=network)
        prefix.prefix_len.value = 24
    return XdsResource.make(LISTENER_TYPE_URL, name, proto.SerializeToString())


class FakeAdmin(AdminClient):
    """An admin interface that shows listeners."""

    def __init__(self) -> None:
        self.accepted: dict[str, XdsResource] = {}
        self.shown: dict[str, XdsResource] = {}
        """Active listeners."""
        self.warming: dict[str, XdsResource] = {}
        self.fails = False
        self.reads: list[str] = []
        self.versions: dict[str, set[str]] = {}
        self.listeners = ServedListeners(self, self.accepted.get)

    def confirm(self, resource: XdsResource, content: XdsResource | None = None) -> None:
        """Let Envoy confirm a listener, and have another one if it is given."""
        self.accepted[resource.name] = with_digests(resource)
        self.shown[resource.name] = with_digests(content or resource)

    async def find(self, path: str, pattern: re.Pattern[bytes]) -> list[str]:
        if self.fails:
            raise OSError("no response")
        (name,) = (name for name in self.shown if name in path)
        state = self.warming if "warming_state" in path else self.shown
        self.reads.append(name)
        if name not in state:
            return []
        # The fields whose type the agent does not know are not shown here.
        proto = listener_pb2.Listener.FromString(state[name].body)
        for chain in proto.filter_chains:
            del chain.filters[:]
        text = json.dumps(json_format.MessageToDict(proto), indent=1)
        return [match[1].decode() for match in pattern.finditer(text.encode())]

    async def differing(self, **texts: str) -> set[str]:
        """Compare while Envoy shows versions, with the time of the update after a slash. Return
        the names of the listeners that have another version."""
        versions = {}
        for name, text in texts.items():
            version, _, updated = text.partition("/")
            versions[name] = {version, f"{version} {updated}"}
        expected = {name: self.accepted[name].version for name in texts}
        self.left = await self.listeners.compare(expected, versions)
        return {name for name in texts if expected[name] not in versions[name]}


CONFIRMED = chained("10.0.0.0", "10.0.1.0")


@pytest.mark.parametrize(
    ("content", "differs"),
    [
        pytest.param(CONFIRMED, False, id="equal"),
        pytest.param(chained("10.0.0.0", "10.0.2.0"), True, id="other chain"),
        pytest.param(chained("10.0.0.0"), True, id="missing chain"),
        pytest.param(chained("10.0.0.0", "10.0.1.0", "10.0.2.0"), True, id="additional chain"),
        pytest.param(chained("10.0.0.0", "10.0.1.0", port=81), True, id="other address"),
    ],
)
async def test_content_decides_when_another_version_is_shown(
    content: XdsResource, differs: bool
) -> None:
    envoy = FakeAdmin()
    envoy.confirm(CONFIRMED, content)
    assert await envoy.differing(http="old/1") == ({"http"} if differs else set())


async def test_content_is_read_once_for_each_update() -> None:
    envoy = FakeAdmin()
    envoy.confirm(CONFIRMED)
    for updated, reads in (("1", 1), ("1", 1), ("2", 2), ("2", 2)):
        assert not await envoy.differing(http=f"old/{updated}")
        assert len(envoy.reads) == reads


async def test_content_is_not_read_while_each_update_shows_its_version() -> None:
    envoy = FakeAdmin()
    for number, resource in enumerate((CONFIRMED, chained(), CONFIRMED)):
        envoy.confirm(resource)
        assert not await envoy.differing(http=f"{resource.version}/{number}")
    assert not envoy.reads


async def test_version_proves_nothing_when_other_chains_had_it_before() -> None:
    """Envoy lost a change back to the first version."""
    first, second = chained("10.0.0.0"), chained("10.0.1.0")
    envoy = FakeAdmin()
    envoy.confirm(first)
    assert not await envoy.differing(http=f"{first.version}/1")
    envoy.confirm(second)
    assert not await envoy.differing(http=f"{first.version}/2")
    envoy.confirm(first, second)
    for _ in range(2):
        assert await envoy.differing(http=f"{first.version}/2") == {"http"}
    envoy.confirm(first)
    assert not await envoy.differing(http=f"{first.version}/3")


async def test_listener_that_gets_warm_has_the_confirmed_content() -> None:
    envoy = FakeAdmin()
    envoy.confirm(CONFIRMED, chained())
    envoy.warming = {"http": with_digests(CONFIRMED)}
    assert not await envoy.differing(http="old/1")


async def test_listener_sent_by_an_earlier_agent_is_no_difference() -> None:
    envoy = FakeAdmin()
    envoy.confirm(CONFIRMED, chained())
    envoy.accepted["http"] = CONFIRMED
    assert not await envoy.differing(http="old/1")


async def test_large_listeners_are_read_in_separate_comparisons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    envoy = FakeAdmin()
    names = ("one", "two", "three")
    for name in names:
        envoy.confirm(chained("10.0.0.0", name=name))
    monkeypatch.setattr(served_listeners, "MAX_READ_BYTES", 2 * len(envoy.accepted["three"].body))
    await envoy.differing(**dict.fromkeys(names, "old/1"))
    assert (envoy.reads, envoy.left) == (["one", "two"], {"three"})
    assert not await envoy.differing(**dict.fromkeys(names, "old/1"))
    assert (envoy.reads, envoy.left) == (["one", "two", "three"], set())


async def test_listener_is_compared_later_when_envoy_does_not_respond() -> None:
    envoy = FakeAdmin()
    envoy.confirm(CONFIRMED)
    envoy.fails = True
    await envoy.differing(http="old/1")
    assert envoy.left == {"http"}
    envoy.fails = False
    assert not await envoy.differing(http="old/1")
    assert not envoy.left


class Reads:
    """Queries of agents to the admin interface of a real Envoy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.digests: list[int] = []
        """Number of digests in each listener that was read."""
        self.comparisons = 0
        find, get_path = AdminClient.find, AdminClient.get

        async def record(client: AdminClient, path: str, pattern: re.Pattern[bytes]) -> list[str]:
            result = await find(client, path, pattern)
            self.digests.append(len(result))
            return result

        async def count(client: AdminClient, path: str, *, post: bool = False) -> tuple[int, str]:
            self.comparisons += "dynamic_listeners" in path
            return await get_path(client, path, post=post)

        monkeypatch.setattr(AdminClient, "find", record)
        monkeypatch.setattr(AdminClient, "get", count)
        monkeypatch.setattr(served_check, "DOUBT_SECONDS", 0.2)
        monkeypatch.setattr(served_check, "RANDOM_SECONDS", (0.0, 0.0))


@pytest.mark.process
async def test_changed_filter_chains_of_a_real_envoy_are_no_difference(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(monkeypatch)
    port = free_port()
    agent_options = options(plane, tmp_path)
    admin = AdminClient(envoy_paths(agent_options.root, agent_options.run_dir).admin)
    async with backend("one") as one, running(agent_options):
        await plane.served(website(port, one, chained("10.0.0.0", port=port)))
        for networks in (("10.0.0.0", "10.0.1.0"), ("10.0.1.0",), ("10.0.2.0", "10.0.1.0")):
            reads.digests.clear()
            await plane.served(website(port, one, chained(*networks, port=port)))
            # Those of the networks and of all other clients, and the listener itself.
            await until_equal(lambda: reads.digests, [len(networks) + 2])
        compared = reads.comparisons
        await until(lambda: reads.comparisons > compared + 2)
        assert len(reads.digests) == 1
        assert (plane.incidents, plane.report().unhealthy) == ([], "")
        assert await get(port) == (200, "one")
        _, stats = await admin.get("/stats?filter=^listener_manager")
        assert "listener_in_place_updated: 3" in stats
        # That of 10.0.0.0: no chain that stays is replaced.
        assert "total_filter_chains_draining: 1" in stats


@pytest.mark.process
async def test_filter_chains_that_differ_in_a_real_envoy_are_reported_and_corrected(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Envoy gets other chains than the ones that it confirms."""
    Reads(monkeypatch)
    copies = DistinctScopes.copies
    wrong: list[XdsResource] = []

    def exchange(
        self: DistinctScopes, resources: tuple[XdsResource, ...]
    ) -> tuple[XdsResource, ...]:
        if wrong and any(resource.key == wrong[0].key for resource in resources):
            resources = (with_digests(wrong.pop()),)
        return copies(self, resources)

    monkeypatch.setattr(DistinctScopes, "copies", exchange)
    port = free_port()
    async with backend("one") as one, running(options(plane, tmp_path)):
        await plane.served(website(port, one, chained("10.0.0.0", port=port)))
        for confirmed, present in (
            (("10.0.1.0",), ("10.0.2.0",)),
            (("10.0.1.0", "10.0.2.0"), ("10.0.1.0",)),
            (("10.0.1.0",), ("10.0.1.0", "10.0.3.0")),
            (("10.0.0.0",), ("10.0.1.0",)),
        ):
            wrong.append(chained(*present, port=port))
            plane.publish(website(port, one, chained(*confirmed, port=port)))
            report = await plane.until(lambda report: bool(report.unhealthy))
            assert report.unhealthy.endswith("other versions than confirmed: Listener http")
            assert not wrong
            await plane.until(lambda report: report.programmed and not report.unhealthy)
        assert await get(port) == (200, "one")
