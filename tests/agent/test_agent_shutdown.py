"""Operation of the agent command with a real NGINX: files, permissions, shutdown, metrics, log."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes.agent_command import agent
from fakes.agent_control_plane import GATEWAY, ControlPlane, answering
from fakes.loopback import free_port
from fakes.nginx_agent import get
from fakes.patience import SECONDS, until
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.runtime import procfs

pytestmark = pytest.mark.process

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of their own take root")

SECRET = File.make("gatehouse/tls/a.key", b"key material", secret=True)


def walk(top: Path) -> list[Path]:
    return [top, *top.rglob("*")]


def naming(words: str) -> Callable[[DataPlaneReport], bool]:
    return lambda report: words in report.error


def effective_user(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Uid:"))
    return int(line.split()[2])


def environment(plane: ControlPlane, directory: Path) -> dict[str, str]:
    return plane.environment(directory) | {
        "GATEHOUSE_LOG_FORMAT": "json",
        "POD_NAMESPACE": "shop",
        "GATEHOUSE_AGENT_GATEWAY": "web",
    }


async def test_files_outside_allowed_directories_are_rejected_by_name(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with agent(environment(control_plane, tmp_path), tmp_path / "log"):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "good"))
        for path in (
            "../escaped",
            "gatehouse/../../../escaped",
            f"{tmp_path}/escaped",
            "gatehouse/./escaped",
        ):
            bad = FileSet([File.make(path, b""), *answering(port, "bad").files.values()])
            control_plane.server.publish(GATEWAY, bad)
            report = await control_plane.until(naming(f"/etc/nginx/{path}"))
            assert "normalized path" in report.error or "in a subdirectory" in report.error
            assert await get(port) == (200, "good")
    assert not [path for path in walk(tmp_path) if path.name == "escaped"]


@pytest.mark.parametrize("moved", ["objects", "generations"])
async def test_agent_does_not_write_through_symbolic_links(
    control_plane: ControlPlane, tmp_path: Path, moved: str
) -> None:
    port, root, outside = free_port(), tmp_path / "root", tmp_path / "outside"
    async with agent(environment(control_plane, tmp_path), tmp_path / "log"):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "good"))
        (root / moved).rename(outside)
        (root / moved).symlink_to(outside)
        held = sorted(outside.iterdir())
        control_plane.server.publish(GATEWAY, answering(port, "bad"))
        report = await control_plane.until(lambda report: bool(report.error))
        assert f"{root / moved} is a symbolic link" in report.error
        assert sorted(outside.iterdir()) == held
        assert await get(port) == (200, "good")
        (root / moved).unlink()
        outside.rename(root / moved)
        await control_plane.programmed(answering(port, "better"))


async def test_directories_and_keys_are_private(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with agent(environment(control_plane, tmp_path), tmp_path / "log"):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(free_port(), "one", SECRET))
        for top in (tmp_path / "root", tmp_path / "run"):
            for path in walk(top):
                mode = stat.S_IMODE(path.lstat().st_mode)
                if path.is_dir() and not path.is_symlink():
                    assert mode == 0o700, path
                elif path.is_file() and path.read_bytes() == SECRET.content:
                    assert mode == 0o600, path
        assert (tmp_path / "root/current/gatehouse/tls/a.key").read_bytes() == SECRET.content


async def test_foreign_files_in_agent_directories_stay(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    root, run = tmp_path / "root", tmp_path / "run"
    foreign = [
        root / "note",
        root / "objects" / "theirs",
        root / "objects" / ".theirs",
        root / "generations" / "99" / "theirs",
        root / "generations" / ".theirs" / "file",
        run / "theirs.log",
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as dead:
        listening.bind(str(run / "live.sock"))
        listening.listen()
        dead.bind(str(run / "dead.sock"))
        dead.close()
        async with agent(environment(control_plane, tmp_path), tmp_path / "log"):
            await control_plane.until(lambda report: bool(report.instances))
            for text in ("one", "two", "three"):
                await control_plane.programmed(answering(free_port(), text))
        assert [path.read_text() for path in foreign] == ["theirs"] * len(foreign)
        assert (run / "live.sock").is_socket()
        assert not (run / "dead.sock").exists(), "NGINX could not listen there again"


def inner(process: subprocess.Popen[bytes]) -> int:
    """Return the agent process that `unshare` runs as PID 1 of a namespace."""
    (result,) = procfs.children(process.pid)
    return result


async def test_request_longer_than_drain_timeout_is_aborted(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port, requested = free_port(), asyncio.Event()

    async def keep_waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.set()
        await reader.read()
        writer.close()

    environ = environment(control_plane, tmp_path) | {"GATEHOUSE_AGENT_DRAIN_SECONDS": "1"}
    async with (
        await asyncio.start_server(keep_waiting, "127.0.0.1", 0) as backend,
        agent(environ, tmp_path / "log") as process,
    ):
        await control_plane.until(lambda report: bool(report.instances))
        host, backend_port = backend.sockets[0].getsockname()
        slow = f"location /slow {{ proxy_pass http://{host}:{backend_port}; }}\n"
        extra = File.make("gatehouse/sites/b.conf", slow)
        await control_plane.programmed(answering(port, "one", extra))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readuntil(b"one")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        await requested.wait()
        process.terminate()
        assert await asyncio.to_thread(process.wait, SECONDS) == 0
        assert await reader.read() == b""
        writer.close()
    assert '"drain timeout exceeded"' in (tmp_path / "log").read_text()


@needs_root
async def test_agent_as_pid_1_reaps_orphans_restarts_nginx_and_drains(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    inside = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    environ = environment(control_plane, tmp_path)
    async with agent(environ, tmp_path / "log", inside=inside) as process:
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "one"))
        first = inner(process)
        # A grandchild whose parent exits becomes a child of PID 1.
        words = ("nsenter", "-t", str(first), "-p", "sh", "-c", "setsid sleep 0.2 & exit")
        await asyncio.to_thread(subprocess.run, words, check=True)
        await until(lambda: any(_sleeps(pid) for pid in procfs.children(first)))
        await until(lambda: not any(_sleeps(pid) for pid in procfs.children(first)))
        await until(lambda: procfs.zombies(first) == [])
        # So do the workers of a killed master.
        (master,) = procfs.children(first)
        os.kill(master, signal.SIGKILL)
        await until(lambda: bool(procfs.children(first) - {master}))
        await until(lambda: procfs.zombies(first) == [])
        await control_plane.programmed(answering(port, "two"))
        assert await get(port) == (200, "two")
        os.kill(first, signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, SECONDS) == 0
        log = (tmp_path / "log").read_text()
        assert '"draining"' in log
        assert '"stopped"' in log


def _sleeps(pid: int) -> bool:
    return procfs.command_line(pid).startswith("sleep")


def _opened_interpreter(place: Path) -> str:
    """Return commands of a mount namespace that let each user execute the interpreter.

    It may be in the home directory of root, which others cannot enter.
    """
    base = Path(sys.base_prefix).resolve()
    closed = [path for path in reversed(base.parents) if not path.stat().st_mode & stat.S_IXOTH]
    if not closed:
        return ""
    place.mkdir()
    return (
        f"mount --bind {base} {place}; mount -t tmpfs -o mode=0755 tmpfs {closed[0]}; "
        f"mkdir -p {base}; mount --move {place} {base}; "
    )


@needs_root
async def test_agent_runs_without_root_on_read_only_file_system(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    drop = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    command = [*drop, sys.executable, "-c", "import gatehouse.wire"]
    if (await asyncio.to_thread(subprocess.run, command, check=False)).returncode:
        pytest.skip("only its owner may enter the directory of this checkout")
    port, writable = free_port(), tmp_path / "data"
    writable.mkdir()
    for path in (tmp_path, control_plane.directory):
        path.chmod(0o755)
    # The directory is a separate file system. All other file systems become read-only.
    script = (
        f"set -e; mount --make-rprivate /; {_opened_interpreter(tmp_path / 'python')}"
        "mount -t tmpfs -o mode=0777 tmpfs $0; "
        "for m in / /tmp /dev/shm /run; do "
        "mountpoint -q $m && mount -o remount,bind,ro $m; done; "
        'exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs "$@"'
    )
    inside = ("unshare", "--mount", "sh", "-c", script, str(writable))
    environ = environment(control_plane, writable) | {"HOME": "/nonexistent"}
    async with agent(environ, tmp_path / "log", inside=inside) as process:
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "one", SECRET))
        await control_plane.programmed(answering(port, "two", SECRET))
        assert await get(port) == (200, "two")
        assert effective_user(process.pid) == 65534
        # The agent cannot write anywhere else.
        probe = ("nsenter", "-t", str(process.pid), "-m", "touch", str(tmp_path / "elsewhere"))
        tried = await asyncio.to_thread(subprocess.run, probe, capture_output=True, check=False)
        assert b"Read-only file system" in tried.stderr
    assert '"stopped"' in (tmp_path / "log").read_text()


async def test_every_metric_has_data_plane_labels(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    health = free_port()
    environ = environment(control_plane, tmp_path) | {
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}"
    }

    async def samples() -> dict[str, list[tuple[dict[str, str], float]]]:
        status, text = await get(health, "/metrics")
        assert status == 200
        result: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = dict(sample.labels)
                own = [labels.pop(name) for name in ("namespace", "pod", "gateway")]
                assert own == ["shop", "pod-1", "web"], sample
                result.setdefault(sample.name, []).append((labels, sample.value))
        return result

    async with agent(environ, tmp_path / "log"):
        await control_plane.until(lambda report: bool(report.instances))
        configuration = answering(free_port(), "one")
        await control_plane.programmed(configuration)
        control_plane.server.publish(
            GATEWAY, FileSet([File.make("gatehouse/http.conf", "no_such_directive on;\n")])
        )
        await control_plane.until(lambda report: bool(report.error))
        result = await samples()
        assert result["gatehouse_agent_control_plane_connected"] == [({}, 1)]
        assert result["gatehouse_agent_ready"] == [({}, 1)]
        assert result["nginx_up"] == [({}, 1)]
        assert result["gatehouse_agent_configuration_info"] == [
            ({"version": configuration.version}, 1)
        ]
        assert result["gatehouse_agent_apply_failures_total"][0][1] >= 1
        assert (
            result["gatehouse_agent_applies_total"][0][1]
            == result["gatehouse_agent_apply_failures_total"][0][1] + 1
        )
        assert result["gatehouse_agent_reloads_total"] == [({}, 1)]
        counts = {
            labels["step"]: value
            for labels, value in result["gatehouse_agent_apply_duration_seconds_count"]
        }
        assert counts["fetch"] >= 2
        assert counts["test"] >= 1
        assert (counts["reload"], counts["confirm"]) == (1, 1)
        sums = {
            labels["step"]: value
            for labels, value in result["gatehouse_agent_apply_duration_seconds_sum"]
        }
        assert all(0 < sums[step] < 60 for step in ("fetch", "test", "reload", "confirm"))
        up = {labels["sidecar"]: value for labels, value in result["gatehouse_agent_sidecar_up"]}
        assert up == {"connector": 0, "authenticator": 0, "picker": 0}
        assert (await get(health, "/"))[0] == 404


def _with_status() -> str:
    """Return an NGINX built with stub_status, which the packaged one lacks.

    Empty if there is none.
    """
    for name in (os.environ.get("GATEHOUSE_TEST_NGINX", ""), "nginx"):
        path = shutil.which(name) if name else None
        if path is None:
            continue
        result = subprocess.run([path, "-V"], capture_output=True, text=True, check=False)
        if "http_stub_status_module" in result.stderr:
            return path
    return ""


@pytest.mark.skipif(not _with_status(), reason="no nginx on PATH that has stub_status")
async def test_nginx_metrics_are_exported_when_available(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    health, port = free_port(), free_port()
    environ = environment(control_plane, tmp_path) | {
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}",
        "GATEHOUSE_AGENT_NGINX": _with_status(),
    }

    async def figure(name: str) -> float:
        _, text = await get(health, "/metrics")
        (line,) = (line for line in text.splitlines() if line.startswith(f"{name}{{"))
        return float(line.split()[-1])

    async with agent(environ, tmp_path / "log"):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(port, "one"))
        names = (
            "nginx_connections_accepted",
            "nginx_connections_handled",
            "nginx_http_requests_total",
        )
        before = [await figure(name) for name in names]
        for _ in range(20):
            await get(port)
        after = [await figure(name) for name in names]
        assert all(late - early >= 20 for early, late in zip(before, after, strict=True))
        assert await figure("nginx_connections_active") >= 1
        assert await figure("nginx_connections_writing") >= 1
        assert await figure("nginx_connections_reading") == 0
        assert await figure("nginx_connections_waiting") >= 0


@pytest.mark.parametrize("style", ["json", "text"])
async def test_log_has_configured_format_and_level(
    control_plane: ControlPlane, tmp_path: Path, style: str
) -> None:
    environ = environment(control_plane, tmp_path) | {"GATEHOUSE_LOG_FORMAT": ""}
    arguments = ("--log-format", style, "--log-level", "warn")
    file = tmp_path / "agent.yaml"
    # One option exists only in NGINX Agent: it is logged and ignored.
    file.write_text("features: [configuration, metrics]\ncollector: {enabled: true}\n")
    async with agent(environ, tmp_path / "log", *arguments, "--config", str(file)):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(answering(free_port(), "one"))
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines
    if style == "json":
        events = [json.loads(line) for line in lines]
        assert {event["level"] for event in events} <= {"warning", "error"}
        (left_out,) = (event["options"] for event in events if "options" in event)
        assert left_out == ["collector.enabled", "features.metrics"]
    else:
        assert not any(line.startswith("{") for line in lines)
        assert "unsupported options ignored" in lines[0]


@pytest.mark.parametrize("strict", ["true", "false"])
async def test_nginx_warning_is_rejected_when_configured(
    control_plane: ControlPlane, tmp_path: Path, strict: str
) -> None:
    port = free_port()
    key = "NGINX_AGENT_DATA_PLANE_CONFIG_NGINX_TREAT_WARNINGS_AS_ERRORS"
    server = f"server {{ listen 127.0.0.1:{port}; server_name twice.example; }}\n"
    doubtful = FileSet([File.make("gatehouse/http.conf", 2 * server)])
    async with agent(environment(control_plane, tmp_path) | {key: strict}, tmp_path / "log"):
        await control_plane.until(lambda report: bool(report.instances))
        if strict == "false":
            await control_plane.programmed(doubtful)
            return
        control_plane.server.publish(GATEWAY, doubtful)
        report = await control_plane.until(lambda report: bool(report.error))
        assert 'conflicting server name "twice.example"' in report.error
