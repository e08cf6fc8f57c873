"""Kube-apiservers behind one NGINX: TLS passthrough by SNI, restricted by source."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes import patience
from fakes.apiservers import apiserver, server_name_at, version_1
from fakes.authority import Authority
from fakes.loopback import loopback_network
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import Destination, L4Backend, L4Host, ProxyProtocolListener
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings
from gatehouse.dataplane.origin import port_origin

pytestmark = pytest.mark.process

ADDRESS = (f"{loopback_network()}.1", 8443)


@contextlib.asynccontextmanager
async def serving(gateway: ir_gateway.GatewayConfiguration) -> AsyncIterator[None]:
    binary = nginx_binary.probe_nginx(nginx_binary.find_nginx_binary(None))
    generated = nginx.NginxGenerator(nginx.NginxCapabilities.parse(str(binary.version))).generate(
        gateway
    )
    assert generated.unsupported == ()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for path, file in generated.file_set.files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(file.content)
        (directory / "nginx.conf").write_text(
            f"daemon off; pid {directory}/pid; error_log stderr; events {{}}"
            "stream { include gatehouse/stream.conf; }"
        )
        process = await asyncio.create_subprocess_exec(
            str(binary.path), "-p", name, "-e", "stderr", "-c", f"{directory}/nginx.conf"
        )
        try:
            async with patience.limit():
                # Workers run once the master has written its PID file.
                while not (directory / "pid").exists():
                    await patience.pause()
            yield
        finally:
            process.terminate()
            await process.wait()


async def test_tls_passes_through_and_sources_are_enforced(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.file))
    trust.check_hostname = False
    async with apiserver(authority, "a") as a, apiserver(authority, "b") as b:
        hosts = (
            L4Host(""),
            L4Host("api.a.test", (L4Backend("a"),)),
            L4Host("api.b.test", (L4Backend("b"),), sources=("127.0.9.0/24",)),
        )
        gateway = ir_gateway.GatewayConfiguration(
            "ns/gw",
            ADDRESS[0],
            l4_listeners=(ir_gateway.L4Listener(ADDRESS[1], "TLS", hosts),),
            clusters=tuple(ir.Cluster(server.name, (server.endpoint,), "tcp") for server in (a, b)),
        )
        async with serving(gateway):
            assert await server_name_at(ADDRESS, trust, "api.a.test", source="127.0.8.1") == "a"
            assert await server_name_at(ADDRESS, trust, "api.b.test", source="127.0.9.1") == "b"
            assert await server_name_at(ADDRESS, trust, "api.b.test", source="127.0.8.1") == ""
            assert await server_name_at(ADDRESS, trust, "api.c.test", source="127.0.9.1") == ""
            assert await server_name_at(ADDRESS, trust, None, source="127.0.9.1") == ""


async def test_source_in_proxy_header_counts_from_trusted_proxy(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(cafile=str(authority.file))
    trust.check_hostname = False
    known = ClientAddress("proxy-protocol", ("127.0.8.0/24",))
    async with apiserver(authority, "b") as b:
        host = L4Host("api.b.test", (L4Backend("b"),), sources=("203.0.113.0/24",))
        gateway = ir_gateway.GatewayConfiguration(
            "ns/gw",
            ADDRESS[0],
            settings=DataPlaneSettings(client_address=known),
            l4_listeners=(ir_gateway.L4Listener(ADDRESS[1], "TLS", (host,)),),
            clusters=(ir.Cluster("b", (b.endpoint,), "tcp"),),
        )
        async with serving(gateway):

            async def reached(proxy: str, client: str) -> str:
                header = version_1(client, "192.0.2.1", 443)
                return await server_name_at(
                    ADDRESS, trust, "api.b.test", source=proxy, header=header
                )

            assert await reached("127.0.8.1", "203.0.113.9") == "b"
            assert await reached("127.0.8.1", "198.51.100.9") == ""
            assert await reached("127.0.9.1", "203.0.113.9") == ""


def test_proxy_protocol_port_is_not_supported() -> None:
    tunnel = ProxyProtocolListener(8443, (Destination("10.1.2.3", 443, "a"),))
    gateway = ir_gateway.GatewayConfiguration(
        "ns/gw", proxy_protocol_listeners=(tunnel,), clusters=(ir.Cluster("a", (), "tcp"),)
    )
    generated = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.0")).generate(gateway)
    assert [item.origin for item in generated.unsupported] == [port_origin("ns/gw", 8443)]
