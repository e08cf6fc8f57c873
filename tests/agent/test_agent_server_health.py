"""Reasons why kube-apiservers are not ready, found by an agent beside a real Envoy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509

from fakes import kube_upstream, patience
from fakes.envoy_agent import options, running
from fakes.envoy_running import EnvoyControlPlane
from fakes.kube_serving import HOST, World, world
from fakes.patience import until_equal
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.agent.envoy.server_health import ServerHealthMonitor, parse_ready_servers
from gatehouse.compiler.backends.envoy.kube_apiserver import clusters
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.unready_servers import UnreadyServers
from gatehouse.dataplane.xds.resources import ResourceSet

pytestmark = pytest.mark.process


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as result:
        yield result


class Reports:
    """A monitor and its last report."""

    def __init__(self, one: World) -> None:
        self.last: UnreadyServers = {}
        held = one.served.running.ads
        admin = AdminClient(one.directory / "admin.sock")
        self._monitor = ServerHealthMonitor(admin, lambda: held.resources, self._store)

    def _store(self, unready: UnreadyServers) -> None:
        self.last = unready

    async def poll(self) -> None:
        """Poll once."""
        await self._monitor.poll()

    async def until(self, expected: UnreadyServers) -> None:
        """Poll until the report is this one."""

        async def last() -> UnreadyServers | None:
            await self.poll()
            return self.last

        await until_equal(last, expected)


def server(port: int, host: str = "127.0.0.1") -> ir.KubeApiServer:
    return ir.KubeApiServer(f"https://{host}:{port}", host, port)


async def test_each_unready_server_has_its_reason(one: World) -> None:
    context = one.servers.server("kube", x509.DNSName("kube.test"))
    other = one.servers.server("other", x509.DNSName("other.test"))
    async with (
        kube_upstream.serving("unready", context) as unready,
        kube_upstream.serving("foreign", other) as foreign,
    ):
        unready.ready = False
        servers = (server(one.upstream.port), server(unready.port), server(foreign.port), server(1))
        reports = Reports(one)
        await one.serve(one.cluster(servers=servers))
        reasons = {
            f"127.0.0.1:{unready.port}": "/readyz: status 500",
            f"127.0.0.1:{foreign.port}": "TLS: certificate not valid: Hostname mismatch, "
            "certificate is not valid for 'kube.test'.",
            "127.0.0.1:1": "connection refused",
        }
        await reports.until({HOST: reasons})
        unready.ready = True
        del reasons[f"127.0.0.1:{unready.port}"]
        await reports.until({HOST: reasons})


async def test_wrong_authority_is_the_reason(one: World) -> None:
    reports = Reports(one)
    tls = ir.UpstreamTls("kube.test", trust="clients", certificate="gateway")
    await one.serve(one.cluster(tls=tls))
    why = "TLS: certificate not valid: self-signed certificate in certificate chain"
    await reports.until({HOST: {f"127.0.0.1:{one.upstream.port}": why}})


async def test_servers_get_the_token_and_names_are_resolved(one: World) -> None:
    reports = Reports(one)
    one.upstream.ready = False
    secrets = (ir_gateway.SecretFile("t", ir_gateway.SecretBytes(b"100% gateway\n")),)
    servers = (server(one.upstream.port), server(6443, "missing.invalid"))
    await one.serve(one.cluster(token="t", servers=servers), secrets=secrets)
    port = one.upstream.port
    expected: dict[str, Any] = {f"127.0.0.1:{port}": "/readyz: status 500"}
    async with patience.limit():
        while "missing.invalid:6443" not in reports.last.get(HOST, {}):
            await reports.poll()
            await patience.pause()
    reasons = dict(reports.last[HOST])
    assert reasons.pop("missing.invalid:6443").startswith("name not resolved: ")
    assert reasons == expected
    [*_, (_, _, headers)] = one.upstream.seen
    assert ("authorization", "Bearer 100% gateway") in headers


@pytest.mark.parametrize("text", ["", "[]", '{"cluster_statuses": [{"host_statuses": [{}]}]}'])
def test_invalid_status_is_ignored(text: str) -> None:
    assert parse_ready_servers(text) is None


async def test_agent_reports_unready_servers_to_the_control_plane(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    target = ir.ApiCluster(HOST, (HOST,), (server(1),), ())
    resources = ResourceSet(clusters.cluster_resources(target, "", runtime=False))
    async with running(options(plane, tmp_path)):
        plane.publish(resources)
        expected = {HOST: ("127.0.0.1:1: connection refused",)}
        report = await plane.until(lambda report: report.unready_servers == expected)
        assert not report.unhealthy
        plane.publish(ResourceSet([]))
        await plane.until(lambda report: not report.unready_servers)
