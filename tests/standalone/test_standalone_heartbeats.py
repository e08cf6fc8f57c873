"""The supervisor of `gatehouse up` notices a process that hangs, and replaces it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.agent.liveness import LivenessPolicy, LivenessTracker
from gatehouse.runtime import heartbeat, procfs
from gatehouse.runtime.heartbeat import HeartbeatPipe
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State
from gatehouse.standalone.supervisor import ControlPlaneProcess, PartProcess

QUICK = LivenessPolicy(period_seconds=1.5, kill_seconds=3.0)


def apiserver(state: State) -> tuple[str, ...]:
    return (
        *("--storage", str(state.directory / "db"), "--bind-address", f"127.0.0.1:{free_port()}"),
        *("--client-ca-file", str(state.pki.ca().cert)),
    )


def controller(state: State) -> tuple[str, ...]:
    """Return options of a controller that waits for its API server."""
    state.write_kubeconfigs(f"https://127.0.0.1:{free_port()}")
    return (
        *("--kubeconfig", str(state.controller_kubeconfig)),
        *("--agent-bind-address", "127.0.0.1:0", "--agent-advertise-address", "127.0.0.1:1"),
        *("--agent-ca-file", str(state.pki.ca().cert)),
    )


@pytest.fixture(params=[apiserver, controller], ids=lambda part: part.__name__)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PartProcess]:
    """A process of the control plane under supervision."""
    state, name = State(tmp_path), request.param.__name__
    state.pki.ensure()
    leaf = state.pki.leaf(pki.APISERVER)
    pair = ("--tls-cert-file", str(leaf.cert), "--tls-private-key-file", str(leaf.key))
    part = ControlPlaneProcess(name, (name, *pair, *request.param(state)))
    process = PartProcess(part, tmp_path, QUICK)
    task = asyncio.create_task(process.run())
    yield process
    process.ending.set()
    await process.end(signal.SIGTERM)
    await task


@pytest.mark.process
async def test_stopped_process_is_killed_and_replaced(
    server: PartProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses: list[bool] = []
    observe = LivenessTracker.observe

    def record(tracker: LivenessTracker, silent: Any, now: float) -> None:
        responses.append(not silent)
        observe(tracker, silent, now)

    monkeypatch.setattr(LivenessTracker, "observe", record)
    with capture_logs() as logs:
        await until(lambda: responses[-2:] == [True, True])
        first = server.process
        assert (server.restarts, first is not None) == (0, True)
        assert first is not None
        first.signal(signal.SIGSTOP)
        await until(lambda: procfs.state(first.pid) == "T")
        await until(lambda: server.process not in (None, first))
        responses.clear()
        await until(lambda: True in responses)
    (killed,) = [entry for entry in logs if entry["event"] == "hung process killed"]
    assert killed["pid"] == first.pid
    assert killed["part"] == server.part.name
    assert killed["reason"] == "no heartbeat for at least 3 s"
    assert server.restarts == 1


async def test_heartbeats_arrive_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "PERIOD_SECONDS", 0.01)
    pipe = HeartbeatPipe()
    monkeypatch.setenv(heartbeat.HEARTBEAT_VARIABLE, str(os.dup(pipe.writing)))
    task = asyncio.create_task(heartbeat.send_heartbeats())
    for _ in range(3):
        await until(pipe.has_beaten)
    # Programs that the process starts must not write heartbeats for it.
    assert heartbeat.HEARTBEAT_VARIABLE not in os.environ
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    pipe.has_beaten()
    assert not pipe.has_beaten()
    pipe.close()


async def test_full_pipe_does_not_block_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "PERIOD_SECONDS", 0.0)
    pipe = HeartbeatPipe()
    writing = os.dup(pipe.writing)
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, bytes(65536))
    monkeypatch.setenv(heartbeat.HEARTBEAT_VARIABLE, str(writing))
    task = asyncio.create_task(heartbeat.send_heartbeats())
    await asyncio.sleep(0)
    assert pipe.has_beaten()
    assert not task.done()
    await until(pipe.has_beaten)
    pipe.close()
    # Without a reader, the process goes on without heartbeats.
    await until(task.done)
    await task
