"""Probes of one Pod's real process: what they ask, when they turn, and what follows."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from fakes.durations import be_slow
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.kube import client as kube
from gatehouse.standalone import process_records
from gatehouse.standalone.node.probes import ProbeCounter, ProbeTiming, is_supported, timing_of
from gatehouse.standalone.node.runner import RECORD, Launch, PodRunner
from kube_base.runtime.time_limits import scaled

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
def test_probe_result_changes_after_consecutive_results(
    good: bool, success: int, failure: int, answers: str, turns: str
) -> None:
    tally = ProbeCounter(
        ProbeTiming(success_threshold=success, failure_threshold=failure), good=good
    )
    states = ""
    for answer in answers:
        turned = tally.count(good=answer == ".")
        states += answer if turned else "-"
    assert states == turns


def test_probe_timing_has_defaults_of_kubernetes() -> None:
    assert timing_of({"httpGet": {}, "periodSeconds": 0, "failureThreshold": 5}) == ProbeTiming(
        period_seconds=10, timeout_seconds=scaled(1), failure_threshold=5
    )


class Pod:
    """A Pod with one process, and the runner that keeps it."""

    def __init__(self, directory: Path, words: tuple[str, ...], **container: Any) -> None:
        self.directory = directory / "pod"
        self.directory.mkdir()
        self._words = words
        self.pod = {
            "metadata": {"name": "p", "namespace": "default", "uid": "1"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
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
            await self.runner.end()

    @property
    def pid(self) -> int:
        record = process_records.recorded(self.directory / RECORD)
        return record.pid if record else 0


class Server:
    """A server that a probe asks, and that is good or not."""

    def __init__(self) -> None:
        self.good = True
        self.delay = 0.0
        self.answered = 0
        """Number of probes that arrived."""
        self.agents: set[str] = set()
        self.probe: dict[str, Any] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        port = free_port()
        self.probe = {"httpGet": {"port": port, "path": "/readyz"}, **QUICK, "failureThreshold": 2}
        runner = web.ServerRunner(web.Server(self._answer))
        await runner.setup()
        await web.TCPSite(runner, HOST, port).start()
        try:
            yield self
        finally:
            await runner.cleanup()

    async def probed(self) -> None:
        """Wait until some more probes have arrived."""
        target = self.answered + 4
        await until(lambda: self.answered >= target)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        self.agents.add(request.headers["User-Agent"])
        self.answered += 1
        await be_slow(self.delay)
        if request.path != "/readyz":
            return web.Response(status=404)
        return web.Response(status=302 if self.good else 500, headers={"Location": "/other"})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().running() as health_server:
        yield health_server


async def test_readiness_follows_the_response(tmp_path: Path, server: Server) -> None:
    server.good = False
    pod = Pod(tmp_path, SLEEP, readinessProbe=server.probe)
    async with pod.running() as runner:
        await until(lambda: runner.state.running)
        await server.probed()
        assert not runner.state.ready
        for good in (True, False, True):
            server.good = good
            await until(lambda good=good: runner.state.ready is good)  # type: ignore[misc]
        assert runner.state.restarts == 0
    assert server.agents == {"kube-probe/gatehouse"}


async def test_readiness_needs_a_connection(tmp_path: Path, server: Server) -> None:
    probe = {"httpGet": {"port": free_port()}, **QUICK}
    # Both probes have the same period.
    pod = Pod(tmp_path, SLEEP, readinessProbe=probe, livenessProbe=server.probe)
    async with pod.running() as runner:
        await until(lambda: runner.state.running)
        await server.probed()
        assert not runner.state.ready


@pytest.mark.parametrize("probe", ["exec", "tcpSocket", "grpc"])
async def test_probe_of_another_kind_is_ignored(tmp_path: Path, server: Server, probe: str) -> None:
    left = tmp_path / "left"
    spec = {probe: {"command": ["touch", str(left)], "port": free_port()}, **QUICK}
    assert not is_supported(spec)
    pod = Pod(tmp_path, SLEEP, readinessProbe=spec, livenessProbe=spec)
    async with pod.running() as runner:
        await until(lambda: runner.state.ready)
        # The probe of another Pod has the same period.
        (tmp_path / "other").mkdir()
        async with Pod(tmp_path / "other", SLEEP, livenessProbe=server.probe).running():
            await server.probed()
        assert (runner.state.ready, runner.state.restarts) == (True, 0)
    assert not left.exists()


async def test_restart_back_off_grows_while_liveness_probe_fails(
    tmp_path: Path, server: Server
) -> None:
    pod = Pod(tmp_path, SLEEP, livenessProbe=server.probe)
    async with pod.running() as runner:
        await until(lambda: runner.state.ready)
        first = pod.pid
        server.good = False
        for restarts, pause in ((1, "0.3"), (2, "0.6")):
            await until(lambda n=restarts: runner.state.restarts == n)  # type: ignore[misc]
            assert (runner.state.running, runner.state.ready) == (False, False)
            assert runner.state.reason == "CrashLoopBackOff"
            assert runner.state.message == (f"liveness probe: status 500; restarting in {pause} s")
        server.good = True
        await until(lambda: runner.state.ready)
        assert pod.pid not in (0, first)
        assert runner.state.restarts == 2


def ignores_sigterm(pid: int) -> bool:
    text = Path(f"/proc/{pid}/status").read_text()
    ignored = int(text.partition("SigIgn:")[2].split()[0], 16)
    return bool(ignored >> (signal.SIGTERM - 1) & 1)


async def test_stuck_process_is_killed_after_hook_and_grace_period(
    tmp_path: Path, server: Server
) -> None:
    hook = {"preStop": {"sleep": {"seconds": 1}}}
    pod = Pod(tmp_path, STUBBORN, livenessProbe=server.probe, lifecycle=hook)
    async with pod.running() as runner:
        await until(lambda: runner.state.ready)
        # Python ignores SIGTERM only after its start.
        await until(lambda: ignores_sigterm(pod.pid))
        server.good = False
        await until(lambda: not runner.state.ready)
        began = time.monotonic()
        await until(lambda: runner.state.restarts == 1)
        # A second for the hook, and then two seconds as in Kubernetes, although less was stated.
        assert time.monotonic() - began > 2.5


async def test_late_response_fails_the_probe(tmp_path: Path, server: Server) -> None:
    server.delay = 1.0
    pod = Pod(tmp_path, SLEEP, livenessProbe={**server.probe, "timeoutSeconds": 0.2})
    async with pod.running() as runner:
        await until(lambda: runner.state.restarts == 1)
        assert runner.state.message.startswith("liveness probe: timeout after 0.2 s;")


async def test_restarted_node_keeps_status_of_running_container(
    tmp_path: Path, server: Server
) -> None:
    pod = Pod(tmp_path, SLEEP, readinessProbe={**server.probe, "failureThreshold": 5})
    first = asyncio.create_task(pod.runner.run())
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
        await server.probed()
        assert pod.pid == pid
        assert runner.state.ready
        assert (runner.state.restarts, runner.state.since) == (4, "2026-01-02T03:04:05Z")
        server.good = False
        await until(lambda: not runner.state.ready)
