"""Probes of one Pod's real process: what they ask, when they turn, and what follows."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from gatehouse.kube import client as kube
from gatehouse.standalone import process_records
from gatehouse.standalone.free_ports import free_port
from gatehouse.standalone.node.probes import ProbeCounter, Timing, timing_of
from gatehouse.standalone.node.runner import RECORD, Launch, PodRunner

HOST = "127.0.0.1"
SLEEP = ("python3", "-c", "import time; time.sleep(600)")
STUBBORN = (
    *("python3", "-c"),
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
)
QUICK = {"periodSeconds": 0.1}


@pytest.mark.parametrize(
    ("good", "success", "failure", "answers", "turns"),
    [
        (True, 1, 3, "..x.xx.xxx", "---------x"),
        (True, 1, 1, ".x.x", "-x.x"),
        (False, 2, 3, "x.x..xx.xxx", "----.-----x"),
    ],
)
def test_a_verdict_turns_after_so_many_of_the_same_in_a_row(
    good: bool, success: int, failure: int, answers: str, turns: str
) -> None:
    tally = ProbeCounter(Timing(success_threshold=success, failure_threshold=failure), good=good)
    found = ""
    for answer in answers:
        turned = tally.count(good=answer == ".")
        found += answer if turned else "-"
    assert found == turns


def test_numbers_that_are_not_stated_are_the_usual_ones() -> None:
    assert timing_of({"exec": {}, "periodSeconds": 0, "failureThreshold": 5}) == Timing(
        period_seconds=10, timeout_seconds=1, failure_threshold=5
    )
    asked = timing_of({"terminationGracePeriodSeconds": 0})
    assert asked.termination_grace_period_seconds == 0


class Pod:
    """A Pod with one process, and the runner that keeps it."""

    def __init__(self, directory: Path, words: tuple[str, ...], **container: Any) -> None:
        self.directory = directory / "pod"
        self.directory.mkdir()
        self._words = words
        self.pod = {
            "metadata": {"name": "p", "namespace": "default", "uid": "1"},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "c", "image": "i", **container}],
            },
        }
        self.runner = self.new_runner()

    def new_runner(self) -> PodRunner:
        # Without volumes nothing is asked of the API server.
        client = cast(kube.Client, None)
        launch = Launch(self._words)
        return PodRunner(client, self.pod, HOST, self.directory, launch, lambda: None)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[PodRunner]:
        task = asyncio.create_task(self.runner.run())
        try:
            yield self.runner
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.runner.end(0.1)

    @property
    def pid(self) -> int:
        found = process_records.recorded(self.directory / RECORD)
        return found.pid if found else 0


async def until(holds: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


class Switch:
    """Something outside that a probe asks, and that is good or not."""

    probe: dict[str, Any]

    def __init__(self, directory: Path) -> None: ...

    async def turn(self, *, good: bool) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """Stop responding."""


class ByCommand(Switch):
    def __init__(self, directory: Path) -> None:
        self._file = directory / "good"
        self.probe = {"exec": {"command": ["test", "-e", str(self._file)]}}

    async def turn(self, *, good: bool) -> None:
        self._file.touch() if good else self._file.unlink(missing_ok=True)


class ByConnection(Switch):
    def __init__(self, _: Path) -> None:
        self._port = free_port()
        self._server: asyncio.Server | None = None
        self.probe = {"tcpSocket": {"port": self._port}}

    async def turn(self, *, good: bool) -> None:
        if good:
            taken = lambda _, writer: writer.close()  # noqa: E731
            self._server = await asyncio.start_server(taken, HOST, self._port)
        else:
            await self.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


class ByRequest(Switch):
    def __init__(self, _: Path) -> None:
        self._port, self._status = free_port(), 500
        self._runner: web.ServerRunner | None = None
        header = {"name": "X-Asked", "value": "yes"}
        self.probe = {"httpGet": {"port": self._port, "path": "/h", "httpHeaders": [header]}}

    async def turn(self, *, good: bool) -> None:
        self._status = 302 if good else 500
        if self._runner is None:
            self._runner = web.ServerRunner(web.Server(self._answer))
            await self._runner.setup()
            await web.TCPSite(self._runner, HOST, self._port).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        asked = request.path == "/h" and request.headers.get("X-Asked") == "yes"
        if request.path == "/there":
            return web.Response(status=399)
        return web.Response(status=self._status if asked else 404, headers={"Location": "/there"})


class ByCall(Switch):
    def __init__(self, _: Path) -> None:
        self._port, self._server = free_port(), grpc.aio.server()
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._server.add_insecure_port(f"{HOST}:{self._port}")
        self._started = False
        self.probe = {"grpc": {"port": self._port, "service": "web"}}

    async def turn(self, *, good: bool) -> None:
        if not self._started:
            await self._server.start()
            self._started = True
        status = health_pb2.HealthCheckResponse.ServingStatus
        await self._health.set("web", status.SERVING if good else status.NOT_SERVING)

    async def close(self) -> None:
        await self._server.stop(None)


@contextlib.asynccontextmanager
async def _closing(switch: Switch) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await switch.close()


@pytest.mark.parametrize("kind", [ByCommand, ByConnection, ByRequest, ByCall])
async def test_readiness_follows_what_is_asked(tmp_path: Path, kind: type[Switch]) -> None:
    switch = kind(tmp_path)
    probe = {**switch.probe, **QUICK, "failureThreshold": 2}
    pod = Pod(tmp_path, SLEEP, readinessProbe=probe)
    async with _closing(switch), pod.running() as runner:
        await until(lambda: runner.state.started)
        await asyncio.sleep(0.3)
        assert not runner.state.ready
        for good in (True, False, True):
            await switch.turn(good=good)
            await until(lambda good=good: runner.state.ready is good)  # type: ignore[misc]
        assert runner.state.restarts == 0


async def test_one_that_lives_no_more_is_started_again_less_and_less_often(tmp_path: Path) -> None:
    switch = ByCommand(tmp_path)
    await switch.turn(good=True)
    probe = {**switch.probe, **QUICK, "failureThreshold": 2}
    pod = Pod(tmp_path, SLEEP, livenessProbe=probe)
    async with pod.running() as runner:
        await until(lambda: runner.state.ready)
        first = pod.pid
        await switch.turn(good=False)
        for restarts, pause in ((1, "0.3"), (2, "0.6")):
            await until(lambda n=restarts: runner.state.restarts == n)  # type: ignore[misc]
            assert (runner.state.running, runner.state.ready) == (False, False)
            assert runner.state.reason == "CrashLoopBackOff"
            assert runner.state.message == (
                f"liveness probe: test exited with status 1; restarting in {pause} s"
            )
        await switch.turn(good=True)
        await until(lambda: runner.state.ready)
        assert pod.pid not in (0, first)
        assert runner.state.restarts == 2


async def test_one_that_does_not_end_is_killed_when_its_probe_says(tmp_path: Path) -> None:
    switch = ByCommand(tmp_path)
    left = tmp_path / "left"
    probe = {**switch.probe, **QUICK, "failureThreshold": 1, "terminationGracePeriodSeconds": 1}
    probe["initialDelaySeconds"] = 1
    hook = {"preStop": {"exec": {"command": ["touch", str(left)]}}}
    pod = Pod(tmp_path, STUBBORN, livenessProbe=probe, lifecycle=hook)
    async with pod.running() as runner:
        await until(lambda: runner.state.ready)
        assert not left.exists()
        await until(left.exists)
        began = time.monotonic()
        await until(lambda: runner.state.restarts == 1)
        # It had two seconds of its own, as in Kubernetes, although less was stated.
        assert time.monotonic() - began > 1.5


async def test_until_it_has_started_nothing_else_is_asked(tmp_path: Path) -> None:
    begun, alive = ByCommand(tmp_path), tmp_path / "alive"
    startup = {**begun.probe, **QUICK, "failureThreshold": 100}
    liveness = {"exec": {"command": ["test", "-e", str(alive)]}, **QUICK, "failureThreshold": 1}
    pod = Pod(tmp_path, SLEEP, startupProbe=startup, livenessProbe=liveness)
    async with pod.running() as runner:
        await until(lambda: runner.state.running)
        await asyncio.sleep(0.5)
        assert (runner.state.started, runner.state.ready, runner.state.restarts) == (False,) * 2 + (
            0,
        )
        alive.touch()
        await begun.turn(good=True)
        await until(lambda: runner.state.ready)
        assert (runner.state.started, runner.state.restarts) == (True, 0)
        alive.unlink()
        await until(lambda: runner.state.restarts == 1)


async def test_one_that_never_starts_is_given_up(tmp_path: Path) -> None:
    startup = {"tcpSocket": {"port": free_port()}, **QUICK, "failureThreshold": 3}
    pod = Pod(tmp_path, SLEEP, startupProbe=startup)
    async with pod.running() as runner:
        await until(lambda: runner.state.restarts == 1)
        assert runner.state.message.startswith("startup probe: ")
        assert not runner.state.started


async def test_a_command_that_hangs_is_a_failure(tmp_path: Path) -> None:
    probe = {"exec": {"command": ["sleep", "60"]}, "timeoutSeconds": 0.2, **QUICK}
    pod = Pod(tmp_path, SLEEP, livenessProbe={**probe, "failureThreshold": 2})
    async with pod.running() as runner:
        await until(lambda: runner.state.restarts == 1)
        assert runner.state.message.startswith("liveness probe: timeout after 0.2 s;")


async def test_a_node_that_finds_it_running_takes_nothing_back(tmp_path: Path) -> None:
    switch = ByCommand(tmp_path)
    pod = Pod(tmp_path, SLEEP, readinessProbe={**switch.probe, **QUICK, "failureThreshold": 5})
    first = asyncio.create_task(pod.runner.run())
    await switch.turn(good=True)
    await until(lambda: pod.runner.state.ready)
    pid = pod.pid
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    known = {"started": True, "ready": True, "restartCount": 4, "state": {"running": {}}}
    known["state"] = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
    pod.pod["status"] = {"containerStatuses": [known]}
    pod.runner = pod.new_runner()
    assert pod.runner.state.ready
    async with pod.running() as runner:
        await asyncio.sleep(0.3)
        assert pod.pid == pid
        assert runner.state.ready
        assert (runner.state.restarts, runner.state.since) == (4, "2026-01-02T03:04:05Z")
        await switch.turn(good=False)
        await until(lambda: not runner.state.ready)
