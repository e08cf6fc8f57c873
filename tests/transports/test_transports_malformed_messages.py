"""A hanging, lying or flooding agent does not affect others."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import uuid
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane, error_of
from fakes.agent_wire import WireAgent, answer, wire_agent
from gatehouse.dataplane.delivery import InstanceReport
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents.session import MAX_UNANSWERED_REQUESTS

OTHER = "shop/other"


@pytest.fixture
async def control_plane(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(
        tmp_path, apply_deadline=getattr(request, "param", patience.SECONDS)
    ) as plane:
        yield plane


def bundle(text: str, files: int = 0) -> FileSet:
    names = [f"gatehouse/sites/{'long-' * 20}{number}.conf" for number in range(files)]
    many = [File.make(name, f"{number}") for number, name in enumerate(names)]
    return FileSet([File.make("gatehouse/http.conf", text), *many])


@contextlib.asynccontextmanager
async def honest(plane: ControlPlane, token: str = "good:pod-1") -> AsyncIterator[list[str]]:
    async with wire_agent(plane, token) as agent, agent.applying() as requests:
        yield requests


async def has(plane: ControlPlane, gateway: str, instance: str, version: str) -> InstanceReport:
    async with patience.limit():
        while True:
            for report in plane.server.report(gateway).instances:
                if (report.instance, report.confirmed) == (instance, version):
                    return report
            await patience.pause()


async def assert_other_agents_are_served(plane: ControlPlane, changes: int = 10) -> None:
    """Change both Gateways; the honest ones get every version at once."""
    for number in range(changes):
        for gateway in (GATEWAY, OTHER):
            file_set = bundle(f"{gateway} {number}")
            plane.server.publish(gateway, file_set)
            await has(plane, gateway, "pod-1", file_set.version)


@pytest.mark.parametrize("control_plane", [1.0], indirect=True)
async def test_agent_that_never_reads_delays_no_other_agent_and_retains_no_file_sets(
    control_plane: ControlPlane,
) -> None:
    references: list[weakref.ref[FileSet]] = []
    async with (
        honest(control_plane),
        honest(control_plane, f"good:pod-1@{OTHER}"),
        wire_agent(control_plane, "good:pod-2") as deaf,
    ):
        await deaf.connect()
        call = deaf.subscribe()
        await control_plane.until(lambda report: len(report.instances) == 2)
        for number in range(16):
            file_set = bundle(f"{number}", files=1000)
            references.append(weakref.ref(file_set))
            control_plane.server.publish(GATEWAY, file_set)
            await has(control_plane, GATEWAY, "pod-1", file_set.version)
            if number < MAX_UNANSWERED_REQUESTS - 1:
                report = await control_plane.until(lambda report: bool(error_of(report, "pod-2")))
                assert error_of(report, "pod-2") == "no response within 1 s"
            del file_set
        await assert_other_agents_are_served(control_plane)
        # Messages for an agent that never reads are buffered, so the server must disconnect it.
        report = await control_plane.until(lambda report: len(report.instances) == 1)
        assert report.programmed
        gc.collect()
        assert (
            len(
                [
                    reference
                    for reference in references[:MAX_UNANSWERED_REQUESTS]
                    if reference() is not None
                ]
            )
            <= 1
        )
        call.cancel()


@pytest.mark.parametrize("control_plane", [1.0], indirect=True)
async def test_unsolicited_responses_are_ignored(control_plane: ControlPlane) -> None:
    correlations: list[str] = []

    def lies(correlation: str) -> list[Any]:
        correlations.append(correlation)
        others = [answer(str(uuid.uuid4()), error) for error in ("", "broken") * 20]
        return [
            *others,
            *(answer(correlation_id, "broken") for correlation_id in correlations[:-1]),
        ]

    def overheard(correlation: str) -> list[Any]:
        correlations.append(correlation)
        return [answer(correlation)]

    async with (
        wire_agent(control_plane, "good:pod-1") as good,
        good.applying(overheard),
        honest(control_plane, f"good:pod-1@{OTHER}"),
        wire_agent(control_plane, "good:pod-2") as liar,
        liar.applying(lies),
    ):
        await assert_other_agents_are_served(control_plane)
        report = await control_plane.until(lambda report: bool(error_of(report, "pod-2")))
        assert error_of(report, "pod-2") == "no response within 1 s"
        confirmed = {instance.instance: instance.confirmed for instance in report.instances}
        assert confirmed == {"pod-1": report.desired, "pod-2": ""}


async def test_unsent_version_is_not_confirmed(
    control_plane: ControlPlane,
) -> None:
    async with (
        honest(control_plane),
        honest(control_plane, f"good:pod-1@{OTHER}"),
        wire_agent(control_plane, "good:pod-2") as liar,
    ):
        control_plane.server.publish(OTHER, bundle("theirs"))
        await liar.connect()
        for version in ("made up", bundle("theirs").version, "x" * 1_000_000):
            await liar.send_served_version(version)
        call = liar.subscribe()
        await control_plane.until(lambda report: len(report.instances) == 2)
        await assert_other_agents_are_served(control_plane)
        report = control_plane.server.report(GATEWAY)
        assert {instance.instance: instance.confirmed for instance in report.instances}[
            "pod-2"
        ] == ""
        assert not report.programmed
        call.cancel()


async def test_flood_of_reports_and_streams_does_not_delay_other_agents(
    control_plane: ControlPlane,
) -> None:
    done = False
    total = 0
    refused: set[grpc.StatusCode] = set()

    async def shout(loud: WireAgent, number: int) -> None:
        nonlocal total
        while not done:
            total += 3
            try:
                await loud.send_health("well")
                await loud.send_status(f"1.31.{number}")
                await loud.send_served_version("made up")
            except grpc.aio.AioRpcError as error:
                refused.add(error.code())

    async with (
        honest(control_plane),
        honest(control_plane, f"good:pod-1@{OTHER}"),
        wire_agent(control_plane, "good:pod-2") as loud,
    ):
        await loud.connect()
        calls = [loud.subscribe() for _ in range(50)]
        shouting = [asyncio.create_task(shout(loud, number)) for number in range(20)]
        await assert_other_agents_are_served(control_plane, 50)
        done = True
        await asyncio.gather(*shouting)
        for call in calls:
            call.cancel()
    assert total > 100
    assert refused == {grpc.StatusCode.RESOURCE_EXHAUSTED}
