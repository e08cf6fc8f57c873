"""A new instance starts with a configuration that another instance has confirmed."""

from __future__ import annotations

import asyncio

import pytest

from fakes import patience
from gatehouse.dataplane import features
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import session
from gatehouse.transports.agents.fleet import AgentFleet
from gatehouse.transports.agents.fleet_events import FleetEvents
from gatehouse.transports.agents.stream import Apply, Stream
from gatehouse.transports.agents.token_auth import Identity

GATEWAY = "ns/gw"
GOOD, BAD, MENDED = (
    FileSet([File.make("gatehouse/http.conf", text)]) for text in ("good", "bad", "mended")
)


class Plane:
    """A fleet with instances that give configured answers."""

    def __init__(self) -> None:
        self.fleet = AgentFleet(60.0, asyncio.get_running_loop().time, FleetEvents())
        self.streams: dict[str, Stream] = {}

    def connect(self, name: str, *agent_features: str) -> None:
        identity = Identity(GATEWAY, name)
        about = session.Register("id", "nginx/1.31.3", features=frozenset(agent_features))
        self.fleet.on_connect(identity, about)
        stream = self.fleet.open(identity)
        assert stream is not None
        self.streams[name] = stream

    async def request(self, name: str) -> Apply:
        """Return the next request to an instance."""
        request = await asyncio.wait_for(self.streams[name].next(), patience.SECONDS)
        assert isinstance(request, Apply)
        return request

    async def answer(self, name: str, error: str = "") -> str:
        """Let an instance answer its next request. Return the requested version."""
        request = await self.request(name)
        self.fleet.receive(
            Identity(GATEWAY, name), session.ApplyResponse(request.correlation, error)
        )
        return request.version

    async def idle(self, name: str) -> bool:
        try:
            await asyncio.wait_for(self.streams[name].next(), 0.05)
        except TimeoutError:
            return True
        return False


@pytest.fixture
async def plane() -> Plane:
    """One instance that serves a good file set and rejects the newest one."""
    control_plane = Plane()
    control_plane.fleet.publish(GATEWAY, GOOD)
    control_plane.connect("old")
    assert await control_plane.answer("old") == GOOD.version
    control_plane.fleet.publish(GATEWAY, BAD)
    assert await control_plane.answer("old", "nginx: [emerg] bad") == BAD.version
    return control_plane


async def test_new_instance_gets_the_known_good_file_set_first(plane: Plane) -> None:
    plane.connect("new")
    assert await plane.answer("new") == GOOD.version
    report = plane.fleet.report(GATEWAY)
    assert {instance.instance: instance.confirmed for instance in report.instances} == {
        "old": GOOD.version,
        "new": GOOD.version,
    }
    assert await plane.answer("new", "nginx: [emerg] bad") == BAD.version


async def test_all_instances_get_the_version_that_replaces_a_rejected_one(plane: Plane) -> None:
    plane.connect("new")
    plane.fleet.publish(GATEWAY, MENDED)
    assert await plane.answer("old") == MENDED.version
    assert await plane.answer("new") in (GOOD.version, MENDED.version)
    if not plane.fleet.report(GATEWAY).programmed:
        assert await plane.answer("new") == MENDED.version
    assert plane.fleet.report(GATEWAY).programmed


async def test_files_of_the_known_good_version_can_be_fetched(plane: Plane) -> None:
    for number in range(20):
        plane.fleet.publish(GATEWAY, FileSet([File.make("gatehouse/http.conf", str(number))]))
    plane.connect("new")
    assert (await plane.request("new")).version == GOOD.version
    (file,) = GOOD.files.values()
    assert plane.fleet.find(Identity(GATEWAY, "new"), file.digest) == file


async def test_newest_version_is_sent_if_none_is_known_to_be_good() -> None:
    plane = Plane()
    plane.fleet.publish(GATEWAY, BAD)
    plane.connect("new")
    assert await plane.answer("new", "nginx: [emerg] bad") == BAD.version
    plane.fleet.publish(GATEWAY, MENDED)
    assert await plane.answer("new") == MENDED.version


async def test_new_instance_gets_the_newest_version_once_it_is_confirmed(plane: Plane) -> None:
    plane.fleet.publish(GATEWAY, MENDED)
    await plane.answer("old")
    plane.connect("new")
    assert await plane.answer("new") == MENDED.version
    assert await plane.idle("new")


async def test_rejection_is_reported_with_its_version_after_another_was_published() -> None:
    plane = Plane()
    plane.fleet.publish(GATEWAY, BAD)
    plane.connect("pod")
    request = await plane.request("pod")
    plane.fleet.publish(GATEWAY, MENDED)
    answer = session.ApplyResponse(request.correlation, "nginx: [emerg] bad", rejected=True)
    plane.fleet.receive(Identity(GATEWAY, "pod"), answer)
    (instance,) = plane.fleet.report(GATEWAY).instances
    assert (instance.rejected_version, instance.rejection) == (BAD.version, "nginx: [emerg] bad")
    assert instance.error == ""
    assert await plane.answer("pod") == MENDED.version
    (instance,) = plane.fleet.report(GATEWAY).instances
    assert (instance.rejected_version, instance.confirmed) == ("", MENDED.version)


async def test_instance_serves_once_it_reports_or_confirms_a_version() -> None:
    control_plane = Plane()
    control_plane.fleet.publish(GATEWAY, GOOD)
    for name in ("fresh", "restarted"):
        control_plane.connect(name)
    control_plane.fleet.receive(Identity(GATEWAY, "fresh"), session.HasVersion(""))
    control_plane.fleet.receive(Identity(GATEWAY, "restarted"), session.HasVersion("older"))

    def serving() -> dict[str, bool]:
        report = control_plane.fleet.report(GATEWAY)
        return {instance.instance: instance.serving for instance in report.instances}

    assert serving() == {"fresh": False, "restarted": True}
    assert await control_plane.answer("fresh", "nginx: [emerg] bad") == GOOD.version
    assert serving() == {"fresh": False, "restarted": True}
    control_plane.fleet.publish(GATEWAY, MENDED)
    assert await control_plane.answer("fresh") == MENDED.version
    assert serving() == {"fresh": True, "restarted": True}


async def test_trial_is_sent_only_to_instances_that_do_not_serve_it() -> None:
    """An agent with the feature only tests it; another one serves whatever it gets."""
    control_plane = Plane()
    identity = Identity(GATEWAY, "serving")
    control_plane.fleet.publish(GATEWAY, GOOD.as_trial())
    control_plane.connect("testing", features.TRIALS)
    control_plane.fleet.receive(Identity(GATEWAY, "testing"), session.HasVersion("older"))
    control_plane.fleet.receive(identity, session.HasVersion("older"))
    for name in ("new", "serving"):
        control_plane.connect(name)
    assert await control_plane.idle("serving")
    for name in ("testing", "new"):
        assert await control_plane.answer(name) == GOOD.as_trial().version
    report = control_plane.fleet.report(GATEWAY)
    assert {item.instance: (item.serving, item.takes_trials) for item in report.instances} == {
        "new": (False, True),
        "serving": (True, False),
        "testing": (True, True),
    }
    control_plane.fleet.publish(GATEWAY, MENDED)
    for name in ("testing", "new", "serving"):
        assert await control_plane.answer(name) == MENDED.version


async def test_trial_is_not_known_to_be_good() -> None:
    control_plane = Plane()
    control_plane.fleet.publish(GATEWAY, GOOD.as_trial())
    control_plane.connect("testing", features.TRIALS)
    await control_plane.answer("testing")
    control_plane.fleet.publish(GATEWAY, MENDED)
    control_plane.connect("new", features.TRIALS)
    assert await control_plane.answer("new") == MENDED.version


async def test_trial_waits_for_no_instance_that_reports_late_that_it_serves() -> None:
    control_plane = Plane()
    control_plane.connect("serving")
    control_plane.fleet.receive(Identity(GATEWAY, "serving"), session.HasVersion("older"))
    control_plane.fleet.publish(GATEWAY, GOOD.as_trial())
    assert await control_plane.idle("serving")
