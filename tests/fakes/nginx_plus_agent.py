"""An agent beside what passes for NGINX Plus, and what a test does to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from fakes import nginx_plus_binary
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.nginx_plus import Call, Fault
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.agent.options import AgentOptions, options_from_environment
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.dataplane.origin import NO_ORIGIN, Origin

CAPABILITIES = nginx.NginxCapabilities.parse("1.29.3 (nginx-plus-r36)", named_endpoints=True)


class FakeProgram:
    """A program that passes for NGINX Plus, under ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "plus"
        self.program = nginx_plus_binary.install(
            self.directory, nginx_binary.find_nginx_binary(None)
        )
        self.socket = directory / "run" / "api" / "plus.sock"

    def options(self, plane: ControlPlane, directory: Path, health: int = 0) -> AgentOptions:
        """Return the options of an agent with this program. ``health`` is its port, 0 for none."""
        environ = plane.environment(directory) | {"GATEHOUSE_AGENT_NGINX": str(self.program)}
        if health:
            environ["GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS"] = f"127.0.0.1:{health}"
        return options_from_environment(environ)

    def fail(self, *faults: Fault) -> None:
        """Set the faults of following requests; none removes them."""
        new = self.directory / "new"
        new.write_bytes(msgspec.json.encode(faults))
        new.rename(self.directory / "faults.json")

    def calls(self) -> list[Call]:
        """Return the API calls that request a change."""
        path = self.directory / "calls.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        result = [msgspec.json.decode(line, type=Call) for line in lines]
        return [call for call in result if call.method != "GET"]

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the API as any client may."""
        connector = aiohttp.UnixConnector(str(self.socket), force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, f"http://nginx/api/9{path}", json=body) as answer,
        ):
            raw = await answer.read()
            return msgspec.json.decode(raw) if raw else None

    async def servers(self, upstream: str, kind: str = "http") -> list[str]:
        """Return the addresses of an upstream."""
        response = await self.ask("GET", f"/{kind}/upstreams/{upstream}/servers")
        return [server["server"] for server in response]


def forwarding(
    port: int,
    *shares: tuple[tuple[ir.Endpoint, ...], int],
    cluster: str = "c",
    capabilities: nginx.NginxCapabilities = CAPABILITIES,
    files: tuple[File, ...] = (),
    origin: Origin = NO_ORIGIN,
) -> FileSet:
    """Return the files of a Gateway with one route to some clusters."""
    clusters = tuple(
        ir.Cluster(f"{cluster}-{n}", endpoints, origin=origin)
        for n, (endpoints, _) in enumerate(shares)
    )
    backends = tuple(
        ir.Backend(known.name, weight) for known, (_, weight) in zip(clusters, shares, strict=True)
    )
    route = ir.Route("ns/r/0/0", ir.Match(), ir.Forward(backends))
    listener = ir_gateway.Listener(port, "HTTP", (ir.VirtualHost("", (route,)),))
    gateway = ir_gateway.GatewayConfiguration(GATEWAY, "127.0.0.1", (listener,), clusters=clusters)
    file_set = nginx.NginxGenerator(capabilities).generate(gateway).file_set
    return FileSet([*file_set.files.values(), *files])


def streaming(port: int, endpoints: tuple[ir.Endpoint, ...]) -> FileSet:
    """Return the files of a Gateway that forwards TCP connections."""
    cluster = ir.Cluster("raw", endpoints, protocol="tcp")
    host = ir_gateway.L4Host("", (ir_gateway.L4Backend("raw", 1),))
    listener = ir_gateway.L4Listener(port, "TCP", (host,))
    gateway = ir_gateway.GatewayConfiguration(
        GATEWAY, "127.0.0.1", (), clusters=(cluster,), l4_listeners=(listener,)
    )
    return nginx.NginxGenerator(CAPABILITIES).generate(gateway).file_set


async def metric_value(health: int, name: str, **labels: str) -> float:
    """Return a metric of an agent, by some of its labels."""
    url = f"http://127.0.0.1:{health}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        families = text_string_to_metric_families(await answer.text())
        (value,) = [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
    return value


@contextlib.asynccontextmanager
async def assert_no_reload(health: int) -> AsyncIterator[None]:
    """Hold that the agent asks for no reload within."""
    before = await metric_value(health, "gatehouse_agent_reloads_total")
    yield
    assert await metric_value(health, "gatehouse_agent_reloads_total") == before
