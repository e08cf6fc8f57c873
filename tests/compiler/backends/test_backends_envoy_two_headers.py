"""PROXY headers of a load balancer and of a node proxy on one connection, on a real Envoy."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from fakes.apiservers import Server, apiserver, server_name_at, version_1, version_2
from fakes.authority import Authority
from fakes.envoy_serving import Served, serving
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings

pytestmark = pytest.mark.process

BALANCER, DIRECT, OTHER = "127.0.9.1", "127.0.10.1", "127.0.8.1"
NODE, FOREIGN_NODE = "198.51.100.7", "203.0.113.7"
POD, FOREIGN_POD = "10.244.1.7", "10.99.1.7"
OPEN, LISTED = "10.1.2.3", "10.1.2.4"


def gateway(servers: Sequence[Server], *proxies: str) -> ir.GatewayConfiguration:
    destinations = (
        ir.Destination(OPEN, 443, "a"),
        ir.Destination(LISTED, 443, "b", ("10.244.0.0/16",)),
    )
    listener = ir.ProxyProtocolListener(8443, destinations, proxies)
    client = ClientAddress("proxy-protocol", ("127.0.9.0/24",))
    return ir.GatewayConfiguration(
        "ns/gw",
        proxy_protocol_listeners=(listener,),
        clusters=tuple(Cluster(server.name, (server.endpoint,), "tcp") for server in servers),
        settings=DataPlaneSettings(client_address=client),
    )


def outer(node: str, destination: str = "192.0.2.1") -> bytes:
    return version_1(node, destination, 8443)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def ask(
    served: Served, trust: ssl.SSLContext, source: str, *headers: bytes, sni: str | None = None
) -> str:
    address = (served.address, 8443)
    return await server_name_at(address, trust, sni, source=source, header=b"".join(headers))


@pytest.fixture
def trust(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False
    return context


async def test_inner_header_counts_and_both_proxies_must_be_trusted(
    authority: Authority, trust: ssl.SSLContext, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    async with apiserver(authority, "a") as a, apiserver(authority, "b") as b:
        config = gateway([a, b], "127.0.10.0/24", "198.51.100.0/24")
        async with serving(config, output=log) as served:
            reach = functools.partial(ask, served, trust)
            inner, listed = version_2(POD, OPEN, 443), version_2(POD, LISTED, 443)
            assert await reach(BALANCER, outer(NODE), inner) == "a"
            assert await reach(BALANCER, outer(NODE), version_1(POD, OPEN, 443)) == "a"
            assert await reach(BALANCER, version_2(NODE, "192.0.2.1", 8443), inner) == "a"
            assert await reach(BALANCER, outer(NODE), listed) == "b"
            # A node in the list of sources does not help a Pod outside it.
            foreign = version_2(FOREIGN_POD, LISTED, 443)
            assert await reach(BALANCER, outer(NODE), foreign) == ""
            # The load balancer proves the address of the node proxy.
            assert await reach(BALANCER, outer(FOREIGN_NODE), inner) == ""
            assert await reach(BALANCER, outer(FOREIGN_NODE), listed) == ""
            # No other peer may send the outer header.
            for source in (OTHER, DIRECT):
                assert await reach(source, outer(NODE), inner) == ""
                assert await reach(source, outer(NODE), listed) == ""
            # The load balancer always sends two, and no third is read.
            assert await reach(BALANCER, inner) == ""
            assert await reach(BALANCER, outer(NODE)) == ""
            assert await reach(BALANCER, outer(NODE), outer(NODE), inner) == ""
            # The destination of the outer header has no effect.
            assert await reach(BALANCER, outer(NODE, LISTED), inner) == ""
            # A node proxy without load balancer sends one.
            assert await reach(DIRECT, inner) == "a"
            assert await reach(DIRECT, listed) == "b"
            assert await reach(OTHER, inner) == ""
    first = msgspec.json.decode(log.read_bytes().splitlines()[0])
    assert (first["client"], first["destination"]) == (POD, f"{OPEN}:443")


async def test_restricted_destination_needs_trusted_node_proxies(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    async with (
        apiserver(authority, "a") as a,
        apiserver(authority, "b") as b,
        serving(gateway([a, b])) as served,
    ):
        reach = functools.partial(ask, served, trust)
        assert await reach(BALANCER, outer(NODE), version_2(POD, OPEN, 443)) == "a"
        assert await reach(BALANCER, outer(NODE), version_2(POD, LISTED, 443)) == ""
        assert await reach(OTHER, version_2(POD, OPEN, 443)) == "a"
        assert await reach(OTHER, version_2(POD, LISTED, 443)) == ""
