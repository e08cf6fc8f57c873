"""Access logs from the proxy to the output of the agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from fakes import agent_command, patience
from fakes.agent_control_plane import ControlPlane
from fakes.authority import Authority
from fakes.durations import pace
from fakes.envoy_serving import host, route_to
from fakes.logged_gateways import ABLE
from fakes.loopback import free_port
from fakes.nginx_agent import get
from gatehouse.agent import drained_file
from gatehouse.agent.access_log import LogForwarder
from gatehouse.compiler.backends.nginx import NginxGenerator
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.origin import Origin


@contextlib.asynccontextmanager
async def forwarding(log: LogForwarder) -> AsyncIterator[None]:
    task = asyncio.create_task(log.forward())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _until(path: Path, content: bytes) -> None:
    async with patience.limit():
        while path.read_bytes() != content:  # noqa: ASYNC240 (a file of the test)
            await patience.pause()


async def test_entries_are_copied_and_the_file_is_emptied(tmp_path: Path) -> None:
    spool, output = tmp_path / "access.log", tmp_path / "output"
    lines = b"".join(b"%d%s\n" % (number, b"x" * number) for number in range(6000))
    with output.open("ab") as target, spool.open("ab", buffering=0) as proxy:
        proxy.write(lines)
        async with forwarding(LogForwarder(spool, target.fileno())):
            await _until(output, lines)
            proxy.write(b"more\nincomp")
            await _until(output, lines + b"more\n")
            proxy.write(b"lete\n")
            await _until(output, lines + b"more\nincomplete\n")
            await _until(spool, b"")


async def test_next_agent_continues_where_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not emptied while the proxy writes, so that no entry is lost."""
    monkeypatch.setattr(os, "ftruncate", lambda *_: None)
    spool, output = tmp_path / "access.log", tmp_path / "output"
    expected = b""
    with output.open("ab") as target, spool.open("ab", buffering=0) as proxy:
        for part in (b"first\n", b"second\nthi", b"rd\n"):
            proxy.write(part)
            expected += part
            async with forwarding(LogForwarder(spool, target.fileno())):
                await _until(output, expected[: expected.rfind(b"\n") + 1])
                # The position follows the entries.
                await patience.until(lambda: _position(spool) == output.stat().st_size)


@pytest.mark.parametrize("damage", [b"", b"x", b"\xff" * 60, b"1 2", b"%d 99" % 2**64])
async def test_without_a_valid_position_all_entries_are_copied(
    tmp_path: Path, damage: bytes
) -> None:
    spool, output = tmp_path / "access.log", tmp_path / "output"
    spool.write_bytes(b"entry\n")
    _record(spool).write_bytes(damage)
    with output.open("ab") as target:
        async with forwarding(LogForwarder(spool, target.fileno())):
            await _until(output, b"entry\n")


async def test_large_file_is_emptied_while_the_proxy_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drained_file, "MAX_TAKEN_BYTES", 1000)
    spool, output = tmp_path / "access.log", tmp_path / "output"
    largest = 0
    with output.open("ab") as target, spool.open("ab", buffering=0) as proxy:
        async with forwarding(LogForwarder(spool, target.fileno())):
            for number in range(40):
                proxy.write(b"%099d\n" % number)
                largest = max(largest, spool.stat().st_size)
                await pace(0.05)
            await _until(output, b"".join(b"%099d\n" % number for number in range(40)))
    assert 1000 <= largest < 4000


def _record(spool: Path) -> Path:
    return spool.with_name(f"{spool.name}.position")


def _position(spool: Path) -> int:
    return int(_record(spool).read_bytes().split()[1])


async def test_blocked_output_neither_blocks_the_agent_nor_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drained_file, "MAX_WAITING_BYTES", 100_000)
    spool = tmp_path / "access.log"
    reader, writer = os.pipe()
    log = LogForwarder(spool, writer)
    with spool.open("ab", buffering=0) as proxy:
        async with forwarding(log):
            proxy.write(b"x" * 99 + b"\n")
            for _ in range(10):
                proxy.write((b"y" * 999 + b"\n") * 100)
                await pace(0.05)
            await patience.until(
                lambda: (
                    not (not log.dropped or spool.stat().st_size > drained_file.MAX_WAITING_BYTES)
                )
            )
            data = os.read(reader, 1 << 20)
            assert data.startswith(b"x" * 99 + b"\ny")
            assert data.endswith(b"y\n")
    os.close(reader)
    os.close(writer)


def _gateway(port: int, status: int) -> ir_gateway.GatewayConfiguration:
    route = ir.Route("shop/web/0/0", ir.Match(ir.PathPrefix("/")), ir.Respond(status))
    listener = ir_gateway.Listener(port, "HTTP", (host("", route),))
    return ir_gateway.GatewayConfiguration("ns/gw", bind_address="127.0.0.1", listeners=(listener,))


def _untrusted(
    directory: Path, backend: int, port: int, *names: ir.SubjectName
) -> ir_gateway.GatewayConfiguration:
    """Return a gateway with a backend whose certificate is of an unknown CA."""
    trust = ir_gateway.TrustBundle("trust", Authority(directory).pem)
    tls = ir.BackendTls("app.internal", "trust", names)
    cluster = ir.Cluster(
        "app", (ir.Endpoint("127.0.0.1", backend),), "http", tls,
        origin=Origin("Service", "shop", "app"),
    )  # fmt: skip
    listener = ir_gateway.Listener(port, "HTTP", (host("", route_to("app", "shop/app/0/0")),))
    return ir_gateway.GatewayConfiguration(
        "ns/gw", bind_address="127.0.0.1", listeners=(listener,), clusters=(cluster,),
        trust_bundles=(trust,),
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("names", [(), (ir.SubjectName("dns", "other.internal"),)])
async def test_rejected_certificate_is_named_while_an_agent_runs_and_by_the_next_one(
    control_plane: ControlPlane, tmp_path: Path, names: tuple[ir.SubjectName, ...]
) -> None:
    """NGINX verifies the name that it sends, and a TLS connector other names."""
    port, log = free_port(), tmp_path / "output"
    environment = control_plane.environment(tmp_path)
    able = msgspec.structs.replace(ABLE, connectors=True)
    (tmp_path / "other").mkdir()
    chain, key = Authority(tmp_path / "other").issue("app", x509.DNSName("app.internal"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)

    def reasons() -> dict[str, str]:
        lines = [line for line in log.read_text().splitlines() if line.startswith('{"time"')]
        entries = map(json.loads, lines)
        return {entry["path"]: entry["reason"] for entry in entries}

    async def is_named(path: str) -> None:
        await patience.until(lambda: path in reasons())
        assert reasons()[path] == "backend_certificate", path

    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    async with server:
        gateway = _untrusted(tmp_path, server.sockets[0].getsockname()[1], port, *names)
        async with agent_command.agent(environment, log) as process:
            await control_plane.until(lambda report: bool(report.instances))
            await control_plane.programmed(NginxGenerator(able).generate(gateway).file_set)
            assert (await get(port, "/first"))[0] == 502
            await is_named("/first")
            process.kill()
            await asyncio.to_thread(process.wait)
            assert (await get(port, "/without-agent"))[0] == 502
        async with agent_command.agent(environment, log):
            await is_named("/without-agent")
            assert (await get(port, "/adopted"))[0] == 502
            await is_named("/adopted")


@pytest.mark.process
async def test_log_continues_after_a_reload_and_a_restart_of_the_agent(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "output"
    generator = NginxGenerator(ABLE)
    environment = control_plane.environment(tmp_path)

    async def serve(status: int) -> None:
        files = generator.generate(_gateway(port, status)).file_set
        await control_plane.programmed(files)
        assert (await get(port, f"/{status}"))[0] == status

    def logged(path: str) -> bool:
        lines = [line for line in log.read_text().splitlines() if line.startswith('{"time"')]
        return any(json.loads(line)["path"] == path for line in lines)

    async def is_logged(path: str) -> None:
        await patience.until(lambda: logged(path))

    def connected(report: DataPlaneReport) -> bool:
        return bool(report.instances)

    async with agent_command.agent(environment, log) as process:
        await control_plane.until(connected)
        await serve(201)
        await is_logged("/201")
        await serve(202)
        await is_logged("/202")
        process.kill()
        await asyncio.to_thread(process.wait)
        await get(port, "/without-agent")
    async with agent_command.agent(environment, log):
        await is_logged("/without-agent")
        await get(port, "/adopted")
        await is_logged("/adopted")
        await serve(204)
        await is_logged("/204")
    # The agent asks NGINX for its version and status again and again.
    assert not logged("/version")
    assert not logged("/status")
