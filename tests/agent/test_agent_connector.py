"""An agent whose NGINX reaches backends through a TLS connector sidecar."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest
from cryptography import x509

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.authority import Authority
from fakes.connector_agent import ABLE, ADDRESS, agent, without
from fakes.https_server import serving
from fakes.loopback import free_port
from fakes.nginx_agent import spawn
from fakes.patience import until
from fakes.tls_connector_process import Endpoint, echo
from gatehouse.agent import sidecars, timeouts
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.file_set import FileSet
from gatehouse.runtime import procfs
from gatehouse.sidecars.base import control

pytestmark = pytest.mark.process

REAL = "spiffe://mesh/real"
SPIFFE = x509.UniformResourceIdentifier(REAL)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def bundle(
    port: int, authority: Authority, *endpoints: int, name: str = REAL, protocol: Any = "http"
) -> FileSet:
    """Return a file set whose NGINX forwards requests to `port`."""
    trust = ir_gateway.TrustBundle(f"ca-{authority.file.stem}", authority.file.read_bytes())
    tls = ir.BackendTls("front.internal", trust.name, (ir.SubjectName("uri", name),))
    targets = tuple(sorted(ir.Endpoint(ADDRESS, endpoint) for endpoint in endpoints))
    route = ir.Route("a/b/0/0", ir.Match(), ir.Forward((ir.Backend("c-app"),)))
    host = ir.VirtualHost("", (route,))
    gateway = ir_gateway.GatewayConfiguration(
        GATEWAY,
        bind_address=ADDRESS,
        listeners=(ir_gateway.Listener(port, "HTTP", (host,)),),
        clusters=(ir.Cluster("c-app", targets, protocol, tls),),
        trust_bundles=(trust,),
    )
    return nginx.NginxGenerator(ABLE).generate(gateway).file_set


def stream(port: int, authority: Authority, *endpoints: int) -> FileSet:
    """Return a file set whose NGINX forwards connections to `port` unchanged."""
    whole = ir_gateway.L4Host("", (ir_gateway.L4Backend("c-app"),))
    trust = ir_gateway.TrustBundle("ca-tcp", authority.pem)
    tls = ir.BackendTls("front.internal", trust.name, (ir.SubjectName("uri", REAL),))
    targets = tuple(sorted(ir.Endpoint(ADDRESS, endpoint) for endpoint in endpoints))
    gateway = ir_gateway.GatewayConfiguration(
        GATEWAY,
        bind_address=ADDRESS,
        l4_listeners=(ir_gateway.L4Listener(port, "TCP", (whole,)),),
        clusters=(ir.Cluster("c-app", targets, "tcp", tls),),
        trust_bundles=(trust,),
    )
    return nginx.NginxGenerator(ABLE).generate(gateway).file_set


def by_system(port: int, endpoint: int, *names: ir.SubjectName) -> FileSet:
    """Return a file set whose NGINX verifies its backend with the system's CA certificates."""
    tls = ir.BackendTls("front.internal", "", names)
    route = ir.Route("a/b/0/0", ir.Match(), ir.Forward((ir.Backend("c-app"),)))
    listener = ir_gateway.Listener(port, "HTTP", (ir.VirtualHost("", (route,)),))
    cluster = ir.Cluster("c-app", (ir.Endpoint(ADDRESS, endpoint),), "http", tls)
    gateway = ir_gateway.GatewayConfiguration(
        GATEWAY, bind_address=ADDRESS, listeners=(listener,), clusters=(cluster,)
    )
    return nginx.NginxGenerator(ABLE).generate(gateway).file_set


async def post(port: int, body: bytes = b"hello") -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"http://{ADDRESS}:{port}/", data=io.BytesIO(body)) as response,
    ):
        return response.status, await response.read()


def connector_pid(directory: Path) -> int | None:
    return control.pid(directory / "run" / "connectors")


async def test_requests_reach_only_backends_with_the_right_name(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port, body = free_port(), os.urandom(8 << 20)
    with serving(authority.server("real", SPIFFE)) as endpoint:
        async with agent(control_plane, tmp_path):
            await control_plane.programmed(bundle(port, authority, endpoint))
            assert await post(port, body) == (200, body)
            await control_plane.programmed(bundle(port, authority, endpoint, name="spiffe://other"))
            assert (await post(port))[0] == 502
            text = (tmp_path / "run" / "connector.log").read_text()
            assert "cluster c-app" in text
            assert "none of the names spiffe://other; it has URI:spiffe://mesh/real" in text
            pid = connector_pid(tmp_path)
            assert pid is not None
    assert not procfs.is_alive(pid)
    assert list((tmp_path / "run" / "connectors").iterdir()) == []


async def test_ca_change_applies_to_next_request(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port, later = free_port(), Authority(tmp_path, "later")
    with serving(authority.server("real", SPIFFE)) as endpoint:
        async with agent(control_plane, tmp_path):
            await control_plane.programmed(bundle(port, authority, endpoint))
            assert await post(port) == (200, b"hello")
            pid = connector_pid(tmp_path)
            await control_plane.programmed(bundle(port, later, endpoint))
            assert (await post(port))[0] == 502
            await control_plane.programmed(bundle(port, authority, endpoint))
            assert await post(port) == (200, b"hello")
            assert connector_pid(tmp_path) == pid


async def test_config_rejected_by_connector_changes_nothing(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port, broken = free_port(), Authority(tmp_path, "broken")
    broken.file.write_text("no certificate")
    with serving(authority.server("real", SPIFFE)) as endpoint:
        async with agent(control_plane, tmp_path):
            good = bundle(port, authority, endpoint)
            await control_plane.programmed(good)
            control_plane.server.publish(GATEWAY, bundle(port, broken, endpoint))
            report = await control_plane.until(lambda report: bool(report.error))
            assert "connector: cluster c-app: gatehouse/tls/ca-broken.pem: " in report.error
            assert report.instances[0].confirmed == good.version
            assert await post(port) == (200, b"hello")
            await control_plane.programmed(without(port))
            assert (await post(port))[0] == 204


async def test_connector_start_failure_is_reported_with_its_last_message(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port = free_port()
    async with agent(control_plane, tmp_path):
        await control_plane.programmed(without(port))
        (tmp_path / "run" / "connectors").rmdir()
        control_plane.server.publish(GATEWAY, bundle(port, authority, free_port()))
        report = await control_plane.until(lambda report: bool(report.error))
        assert "connector: exited at start: FileNotFoundError" in report.error
        assert (await post(port))[0] == 204


async def test_killed_connector_is_restarted(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port = free_port()
    with serving(authority.server("real", SPIFFE)) as endpoint:
        async with agent(control_plane, tmp_path):
            await control_plane.programmed(bundle(port, authority, endpoint))
            pid = connector_pid(tmp_path)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            async with patience.limit():
                while await post(port) != (200, b"hello"):
                    await patience.pause()
            assert connector_pid(tmp_path) not in (None, pid)


async def test_hanging_connector_is_reported_and_restarted(
    control_plane: ControlPlane,
    tmp_path: Path,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    with serving(authority.server("real", SPIFFE)) as endpoint:
        async with agent(control_plane, tmp_path):
            await control_plane.programmed(bundle(port, authority, endpoint))
            pid = connector_pid(tmp_path)
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            monkeypatch.setattr(sidecars, "CONTROL_TIMEOUT_SECONDS", 0.3)
            control_plane.server.publish(GATEWAY, bundle(port, authority, endpoint, free_port()))
            report = await control_plane.until(lambda report: bool(report.error))
            assert "connector: no response within 0.3 s" in report.error
            monkeypatch.undo()
            async with patience.limit():
                while await post(port) != (200, b"hello"):
                    await patience.pause()
            assert connector_pid(tmp_path) not in (None, pid)


async def test_connector_survives_agent_kill_and_is_adopted(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port = free_port()
    environ = control_plane.environment(tmp_path)
    with serving(authority.server("real", SPIFFE)) as endpoint:
        with spawn(environ) as first:
            await control_plane.until(lambda report: bool(report.instances))
            await control_plane.programmed(bundle(port, authority, endpoint))
            pid = connector_pid(tmp_path)
            assert pid is not None
            first.kill()
            await asyncio.to_thread(first.wait)
            await control_plane.until(lambda report: not report.instances)
            assert await post(port) == (200, b"hello")
        with spawn(environ) as second:
            await control_plane.until(lambda report: report.programmed)
            await control_plane.programmed(bundle(port, authority, endpoint, free_port()))
            assert connector_pid(tmp_path) == pid
            os.kill(pid, signal.SIGKILL)
            await until(lambda: connector_pid(tmp_path) not in (None, pid))
            fresh = connector_pid(tmp_path)
            assert fresh is not None
            second.terminate()
            assert await asyncio.to_thread(second.wait) == 0
            assert not procfs.is_alive(fresh)


async def test_connector_exits_when_no_configuration_needs_it(
    control_plane: ControlPlane,
    tmp_path: Path,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "sidecar_drain_seconds", lambda _drain: 0.5)
    port = free_port()
    with serving(authority.server("real", SPIFFE)) as endpoint:
        async with agent(control_plane, tmp_path):
            await control_plane.programmed(without(port))
            assert connector_pid(tmp_path) is None
            for _ in range(2):
                await control_plane.programmed(bundle(port, authority, endpoint))
                assert await post(port) == (200, b"hello")
                pid = connector_pid(tmp_path)
                assert pid is not None
                await control_plane.programmed(without(port))
                await until(lambda pid=pid: not procfs.is_alive(pid))  # type: ignore[misc]
                assert connector_pid(tmp_path) is None


async def test_requests_succeed_through_connector_while_endpoints_change(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    port, answers, done = free_port(), list[int](), False

    async def client() -> None:
        async with aiohttp.ClientSession() as session:
            while not done:
                async with session.post(f"http://{ADDRESS}:{port}/", data=b"x") as response:
                    answers.append(response.status)

    with (
        serving(authority.server("one", SPIFFE)) as one,
        serving(authority.server("two", SPIFFE)) as two,
    ):
        async with agent(control_plane, tmp_path):
            await control_plane.programmed(bundle(port, authority, one))
            clients = [asyncio.create_task(client()) for _ in range(4)]
            for endpoints in ((two,), (one, two), (one,), (two,)):
                await control_plane.programmed(bundle(port, authority, *endpoints))
                count = len(answers)
                await until(lambda count=count: len(answers) > count + 20)  # type: ignore[misc]
            done = True
            await asyncio.gather(*clients)
    assert set(answers) == {200}


async def test_connector_forwards_grpc_calls(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    async def answer(request: bytes, _context: Any) -> bytes:
        return request[::-1]

    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {"C": handler}),))
    certificate, key = (path.read_bytes() for path in authority.issue("real", SPIFFE))
    endpoint = server.add_secure_port(
        f"{ADDRESS}:0", grpc.ssl_server_credentials([(key, certificate)])
    )
    await server.start()
    port = free_port()
    async with agent(control_plane, tmp_path):
        await control_plane.programmed(bundle(port, authority, endpoint, protocol="grpc"))
        async with grpc.aio.insecure_channel(f"{ADDRESS}:{port}") as channel:
            call: Any = channel.unary_unary("/a.B/C")
            assert await call(b"abc") == b"cba"
    await server.stop(None)


async def test_connector_forwards_http2(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    endpoint, port = free_port(), free_port()
    directory = tmp_path / "backend"
    directory.mkdir()
    certificate, key = authority.issue("real", SPIFFE)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temp = " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)
    (directory / "nginx.conf").write_text(
        f"daemon off; pid {directory}/pid; events {{}} http {{ access_log off; {temp} server {{"
        f"listen {ADDRESS}:{endpoint} ssl; http2 on; ssl_certificate {certificate}; "
        f"ssl_certificate_key {key}; return 200 $server_protocol; }} }}"
    )
    binary = str(nginx_binary.find_nginx_binary(None))
    words = (binary, "-p", str(directory), "-c", str(directory / "nginx.conf"), "-e", "stderr")
    server = await asyncio.create_subprocess_exec(*words, stderr=subprocess.DEVNULL)
    try:
        async with agent(control_plane, tmp_path):
            await control_plane.programmed(bundle(port, authority, endpoint, protocol="h2c"))
            assert await post(port) == (200, b"HTTP/2.0")
    finally:
        server.terminate()
        await server.wait()


async def test_connector_forwards_tcp_connections(
    control_plane: ControlPlane, tmp_path: Path, authority: Authority
) -> None:
    body, port = os.urandom(1 << 20), free_port()
    endpoint = Endpoint(authority.server("real", SPIFFE), echo)
    async with agent(control_plane, tmp_path):
        await control_plane.programmed(stream(port, authority, endpoint.port))
        reader, writer = await asyncio.open_connection(ADDRESS, port)
        writer.write(body)
        assert await reader.readexactly(len(body)) == body
        writer.close()
    endpoint.close()


@pytest.mark.parametrize("names", [(), (ir.SubjectName("uri", REAL),)], ids=["nginx", "connector"])
async def test_connector_uses_system_ca_certificates(
    control_plane: ControlPlane,
    tmp_path: Path,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[ir.SubjectName, ...],
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    port, other = free_port(), Authority(tmp_path, "other")
    san = (SPIFFE, x509.DNSName("front.internal"))
    with (
        serving(authority.server("real", *san)) as endpoint,
        serving(other.server("forged", *san)) as forged,
    ):
        async with agent(control_plane, tmp_path):
            await control_plane.programmed(by_system(port, endpoint, *names))
            assert await post(port) == (200, b"hello")
            await control_plane.programmed(by_system(port, forged, *names))
            assert (await post(port))[0] == 502
