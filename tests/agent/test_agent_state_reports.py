"""Reports of NGINX's state: each change once, and nothing for an apply that changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from gatehouse.agent.nginx.state_reports import StateReports
from gatehouse.wire.mpi.v1 import command_pb2

Status = command_pb2.UpdateDataPlaneStatusRequest
Health = command_pb2.UpdateDataPlaneHealthRequest
HEALTHY, UNHEALTHY = 1, 2


class Nginx:
    """The state of an NGINX, and what was reported of it."""

    def __init__(self) -> None:
        self.worker, self.healthy = 100, True
        self.reports: list[str] = []
        self.failing = False
        self.state = StateReports(self)

    def resource(self) -> command_pb2.Resource:
        instance = command_pb2.Instance()
        instance.instance_runtime.instance_children.add(process_id=self.worker)
        return command_pb2.Resource(resource_id="pod", instances=[instance])

    def health(self) -> command_pb2.InstanceHealth:
        status = HEALTHY if self.healthy else UNHEALTHY
        return command_pb2.InstanceHealth(
            instance_id="nginx",
            instance_health_status=status,  # type: ignore[arg-type]
        )

    async def update_status(self, request: Status) -> None:
        self._fail_once()
        (instance,) = request.resource.instances
        (child,) = instance.instance_runtime.instance_children
        self.reports.append(f"worker {child.process_id}")

    async def update_health(self, request: Health) -> None:
        (health,) = request.instance_healths
        healthy = health.instance_health_status == HEALTHY
        self.reports.append("healthy" if healthy else "unhealthy")

    def _fail_once(self) -> None:
        if self.failing:
            self.failing = False
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, (), ())  # type: ignore[arg-type]

    async def settled(self) -> list[str]:
        """Return the reports since the last call, after all that are due."""
        for _ in range(20):
            await asyncio.sleep(0)
        reports, self.reports = self.reports, []
        return reports


@pytest.fixture
async def nginx() -> AsyncIterator[Nginx]:
    """An NGINX whose first health was reported."""
    state = Nginx()
    task = asyncio.create_task(state.state.run(state, state.resource()))  # type: ignore[arg-type]
    assert await state.settled() == ["healthy"]
    yield state
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_unchanged_state_is_not_reported_again(nginx: Nginx) -> None:
    """Each apply that NGINX rejects ends with a comparison of the state."""
    for _ in range(30):
        nginx.state.notify_changed()
        assert await nginx.settled() == []


async def test_change_is_reported_with_the_health(nginx: Nginx) -> None:
    nginx.worker = 101
    nginx.state.notify_changed()
    assert await nginx.settled() == ["worker 101", "healthy"]
    nginx.healthy = False
    nginx.state.notify_changed()
    assert await nginx.settled() == ["unhealthy"]


async def test_death_is_reported_if_nginx_runs_again_before(nginx: Nginx) -> None:
    nginx.healthy = False
    nginx.state.notify_changed()
    nginx.healthy = True
    nginx.state.notify_changed()
    assert await nginx.settled() == ["unhealthy", "healthy"]


async def test_requested_state_is_reported_unchanged(nginx: Nginx) -> None:
    nginx.state.request()
    assert await nginx.settled() == ["worker 100", "healthy"]
    nginx.state.notify_changed()
    assert await nginx.settled() == []


async def test_lost_report_is_repeated(nginx: Nginx) -> None:
    nginx.failing, nginx.worker = True, 101
    nginx.state.notify_changed()
    assert await nginx.settled() == []
    nginx.state.notify_changed()
    assert await nginx.settled() == ["worker 101", "healthy"]
