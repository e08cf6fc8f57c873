"""Hand-over of the listening sockets of a real NGINX to the agent."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from fakes import patience
from fakes.load import Load
from fakes.loopback import free_port
from fakes.nginx_agent import get
from fakes.patience import until
from gatehouse.agent.nginx import binary as binaries
from gatehouse.agent.nginx import handover
from gatehouse.agent.nginx import master as masters
from gatehouse.agent.nginx.main_conf import render_main_conf
from gatehouse.agent.nginx.paths import NginxPaths
from gatehouse.agent.nginx.supervisor import NginxSupervisor
from gatehouse.runtime import procfs, socket_sender
from gatehouse.runtime.watched_process import WatchedProcess

pytestmark = pytest.mark.process

HANDOVERS = 50


def nginx_binary() -> binaries.NginxBinary:
    return binaries.probe_nginx(binaries.find_nginx_binary(os.environ.get("GATEHOUSE_TEST_NGINX")))


def configure(paths: NginxPaths, listen: str, text: str = "ok") -> None:
    """Write a configuration with one HTTP server."""
    (paths.root / "current" / "gatehouse").mkdir(parents=True, exist_ok=True)
    files = {"gatehouse/http.conf": f"server {{ {listen} return 200 {text}; }}"}
    user = "" if os.geteuid() else "root"
    main = render_main_conf(nginx_binary(), paths, "v1", files, shutdown=5, workers="2", user=user)
    for name, content in (files | {"nginx.conf": main}).items():
        (paths.root / "current" / name).write_text(content)


@contextlib.asynccontextmanager
async def serving(directory: Path, listen: str) -> AsyncIterator[tuple[NginxPaths, WatchedProcess]]:
    """Run a master that has workers."""
    paths = NginxPaths(directory / "root", directory / "run")
    paths.prepare()
    configure(paths, listen)
    master = masters.start_master(nginx_binary(), paths, handover.write_sender(paths))
    try:
        await until(lambda: any(map(masters.is_worker, master.children())))
        master.detach()
        yield paths, master
    finally:
        await master.end(signal.SIGTERM, 10, master.children())


def names(descriptors: list[int]) -> set[object]:
    """Close sockets and return their addresses."""
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    result = {bound.getsockname() for bound in sockets}
    for sock in sockets:
        sock.close()
    return result


async def test_handovers_under_load_fail_no_request(tmp_path: Path) -> None:
    port = free_port()
    async with serving(tmp_path, f"listen 127.0.0.1:{port};") as (paths, master):
        expected = {("127.0.0.1", port), str(paths.version_socket)}
        workers = master.children()
        async with Load(port) as load:
            started_at = time.monotonic()
            for _ in range(HANDOVERS):
                assert names(await handover.receive_sockets(paths, master)) == expected
                assert masters.read_pid_file(paths) == master.pid
                assert paths.pid.exists()
            seconds = time.monotonic() - started_at
            assert master.children() == workers
            assert not load.failed
            configure(paths, f"listen 127.0.0.1:{port};", "changed")
            master.signal(signal.SIGHUP)
            await until(lambda: load.answered["changed"] > 0)
        print(f"{HANDOVERS} hand-overs of {1000 * seconds / HANDOVERS:.0f} ms: {load}")
        assert {path.name for path in paths.run.iterdir() if "handover" in path.name} == set()


async def test_sockets_of_all_kinds_and_any_number_are_received(tmp_path: Path) -> None:
    port = free_port()
    number = socket_sender.DESCRIPTORS_PER_MESSAGE + 10
    listen = [f"listen unix:{tmp_path}/{index}.sock;" for index in range(number)]
    listen += [f"listen 127.0.0.1:{port} reuseport;", f"listen [::1]:{port};"]
    async with serving(tmp_path, "\n".join(listen)) as (paths, master):
        descriptors = await handover.receive_sockets(paths, master)
        inheritable = {
            inode
            for inode, descriptor in procfs.sockets(master.pid).items()
            if procfs.is_inheritable(master.pid, descriptor)
        }
        assert {os.fstat(descriptor).st_ino for descriptor in descriptors} == inheritable
        # One of each worker on the port with `reuseport`.
        assert len(descriptors) == number + 2 + 1 + 1
        assert len(names(descriptors)) == number + 1 + 1 + 1


async def test_sockets_are_handed_over_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, other = free_port(), free_port()
    calls = 0
    original = handover.receive_sockets

    async def receive(paths: NginxPaths, master: WatchedProcess) -> list[int]:
        nonlocal calls
        calls += 1
        return await original(paths, master)

    monkeypatch.setattr(handover, "receive_sockets", receive)
    async with serving(tmp_path, f"listen 127.0.0.1:{port};") as (paths, master):
        supervisor = NginxSupervisor(nginx_binary(), paths, 1.0)
        assert await supervisor.adopt()
        await supervisor.hold_sockets()
        for text, ports, expected in (("a", (port,), 1), ("b", (port, other), 2)):
            configure(paths, "".join(f"listen 127.0.0.1:{number};" for number in ports), text)
            await supervisor.reload()
            async with patience.limit():
                while await get(port) != (200, text):
                    await patience.pause()
            for _ in range(3):
                await supervisor.hold_sockets()
            assert calls == expected
        await master.end(signal.SIGKILL, 5)
        for number in (port, other):
            socket.create_connection(("127.0.0.1", number)).close()
        await supervisor.quit(1.0)


async def handles_signal(master: WatchedProcess, paths: NginxPaths) -> None:
    """Wait until the master has handled a signal, and so all earlier ones."""
    for _ in range(2):
        # It handles SIGUSR1 before SIGUSR2 if both are pending.
        paths.error_log.unlink()
        master.signal(signal.SIGUSR1)
        await until(paths.error_log.exists)


async def test_nginx_without_sender_gets_no_signal(tmp_path: Path) -> None:
    """An earlier version of the agent started it. SIGUSR2 would start a second NGINX."""
    paths = NginxPaths(tmp_path / "root", tmp_path / "run")
    paths.prepare()
    port = free_port()
    configure(paths, f"listen 127.0.0.1:{port};")
    master = masters.start_master(nginx_binary(), paths, None)
    try:
        await until(lambda: any(map(masters.is_worker, master.children())))
        master.detach()
        supervisor = NginxSupervisor(nginx_binary(), paths, 1.0)
        assert await supervisor.adopt()
        children = master.children()
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                await supervisor.hold_sockets()
                await handles_signal(master, paths)
                assert (master.children(), paths.old_pid.exists()) == (children, False)
        assert [log["event"] for log in logs] == ["listening sockets not held"]
        assert await get(port) == (200, "ok")
    finally:
        await master.end(signal.SIGTERM, 10, master.children())


async def test_failing_sender_leaves_traffic_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "RECEIVING_SECONDS", 1.0)
    port = free_port()
    async with serving(tmp_path, f"listen 127.0.0.1:{port};") as (paths, master):
        shutil.copy("/bin/false", paths.senders[0])
        async with Load(port) as load:
            with pytest.raises(TimeoutError, match="no sockets received"):
                await handover.receive_sockets(paths, master)
            assert masters.read_pid_file(paths) == master.pid
            assert not load.failed
            configure(paths, f"listen 127.0.0.1:{port};", "changed")
            master.signal(signal.SIGHUP)
            await until(lambda: load.answered["changed"] > 0)


def test_pid_file_is_read_during_a_handover(tmp_path: Path) -> None:
    paths = NginxPaths(tmp_path / "root", tmp_path / "run")
    paths.prepare()
    assert masters.read_pid_file(paths) is None
    paths.old_pid.write_text("17\n")
    assert masters.read_pid_file(paths) == 17
    paths.pid.write_text("18\n")
    assert masters.read_pid_file(paths) == 18
