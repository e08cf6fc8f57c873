"""Kube-apiservers behind one Envoy: selection by SNI or destination, restricted by source."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from fakes import apiservers
from fakes.apiservers import ConnectionRejected, Server, apiserver, connect, server_name_at
from fakes.authority import Authority
from fakes.durations import last
from fakes.envoy_serving import serving
from fakes.patience import until
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import Destination, L4Backend, L4Host, ProxyProtocolListener
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
)

pytestmark = pytest.mark.process


@pytest.fixture
def authority() -> Iterator[Authority]:
    with tempfile.TemporaryDirectory() as name:
        yield Authority(Path(name))


@pytest.fixture
def trust(authority: Authority) -> ssl.SSLContext:
    """TLS context that verifies only the CA: the same server may have any name."""
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False
    return context


@contextlib.asynccontextmanager
async def servers(authority: Authority, *names: str) -> AsyncIterator[list[Server]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(apiserver(authority, name)) for name in names]


def named(hostname: str, *clusters: str, sources: Sequence[str] = ()) -> L4Host:
    backends = tuple(L4Backend(cluster) for cluster in clusters)
    return L4Host(hostname, backends, sources=tuple(sources))


def clusters(*upstreams: Server) -> tuple[ir.Cluster, ...]:
    return tuple(ir.Cluster(server.name, (server.endpoint,), "tcp") for server in upstreams)


def outside(hosts: Sequence[L4Host], *upstreams: Server) -> ir_gateway.GatewayConfiguration:
    ordered = tuple(sorted(hosts, key=lambda host: host.hostname))
    stream = ir_gateway.L4Listener(8443, "TLS", ordered)
    return ir_gateway.GatewayConfiguration(
        "ns/gw", l4_listeners=(stream,), clusters=clusters(*upstreams)
    )


def inside(
    destinations: Sequence[Destination], *upstreams: Server, proxies: Sequence[str] = ()
) -> ir_gateway.GatewayConfiguration:
    tunnel = ProxyProtocolListener(8443, tuple(destinations), tuple(proxies))
    return ir_gateway.GatewayConfiguration(
        "ns/gw", proxy_protocol_listeners=(tunnel,), clusters=clusters(*upstreams)
    )


async def test_sni_selects_cluster_and_other_connections_are_closed(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    async with servers(authority, "a", "b") as (a, b):
        gateway = outside([named(""), named("api.a.test", "a"), named("api.b.test", "b")], a, b)
        async with serving(gateway) as served:
            address = (served.address, 8443)
            assert await server_name_at(address, trust, "api.a.test") == "a"
            assert await server_name_at(address, trust, "api.b.test") == "b"
            assert await server_name_at(address, trust, "API.B.TEST") == "b"
            for sni in ("api.c.test", "a.test", None, "sni", "a", "gh-broken"):
                assert await server_name_at(address, trust, sni) == ""


async def test_client_certificate_reaches_server(authority: Authority) -> None:
    async with (
        apiserver(authority, "a", "api.a.test", needs_certificate=True) as a,
        serving(outside([named("api.a.test", "a")], a)) as served,
    ):
        trust = ssl.create_default_context(cafile=str(authority.file))
        trust.load_cert_chain(*authority.issue("alice", x509.DNSName("alice")))
        client = await connect((served.address, 8443), trust, "api.a.test")
        assert (client.server, client.shown) == ("a", "alice")
        client.close()


async def test_added_or_removed_hostname_changes_a_cluster_and_no_listener(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    async with servers(authority, "a", "b") as (a, b):
        hosts = [named(""), named("api.a.test", "a")]
        async with serving(outside(hosts, a)) as served:
            address = (served.address, 8443)
            connection = await connect(address, trust, "api.a.test")
            changed = await served.serve(outside([*hosts, named("api.b.test", "b")], a, b))
            assert changed == {
                (CLUSTER_TYPE_URL, "sni/8443/api.b.test"),
                (ENDPOINTS_TYPE_URL, "sni/8443/api.b.test"),
            }
            assert await server_name_at(address, trust, "api.b.test") == "b"
            moved = await served.serve(outside([*hosts, named("api.b.test", "a")], a))
            assert {type_url for type_url, _ in moved} == {ENDPOINTS_TYPE_URL}
            assert await server_name_at(address, trust, "api.b.test") == "a"
            await served.serve(outside(hosts, a))
            assert await server_name_at(address, trust, "api.b.test") == ""
            assert await connection.echo("still here") == "still here"
            connection.close()


async def test_hostnames_under_wildcards_have_their_own_chains(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    async with servers(authority, "a", "b", "c") as (a, b, c):
        hosts = [
            named("*.test", "c"),
            named("*.no.test"),
            named("api.a.test", "a"),
            named("api.b.other", "b"),
        ]
        async with serving(outside(hosts, a, b, c)) as served:
            address = (served.address, 8443)
            connection = await connect(address, trust, "api.b.other")
            assert await server_name_at(address, trust, "api.a.test") == "a"
            assert await server_name_at(address, trust, "other.test") == "c"
            assert await server_name_at(address, trust, "x.no.test") == ""
            assert await server_name_at(address, trust, "api.c.other") == ""
            for wide in ([named("", "c")], []):
                await served.serve(outside([*hosts[1:], *wide], a, b, c))
                assert await server_name_at(address, trust, "api.a.test") == "a"
                assert await server_name_at(address, trust, "x.no.test") == ""
                assert await server_name_at(address, trust, "api.b.other") == "b"
                assert await server_name_at(address, trust, "other.test") == ("c" if wide else "")
                assert await server_name_at(address, trust, None) == ("c" if wide else "")
            assert await connection.echo("still here") == "still here"
            connection.close()


async def test_sources_are_enforced_without_closing_other_connections(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    async with servers(authority, "a", "b") as (a, b):
        open_ = [named(""), named("api.a.test", "a"), named("api.b.test", "b")]
        listed = [*open_[:2], named("api.b.test", "b", sources=("127.0.9.0/24",))]
        other = [*open_[:2], named("api.b.test", "b", sources=("127.0.8.1/32", "127.0.7.0/24"))]
        async with serving(outside(open_, a, b)) as served:
            address = (served.address, 8443)
            connection = await connect(address, trust, "api.a.test")

            async def reached(source: str) -> str:
                return await server_name_at(address, trust, "api.b.test", source=source)

            assert await reached("127.0.8.1") == "b"
            for hosts, good, bad in (
                (listed, ["127.0.9.1", "127.0.9.250"], ["127.0.8.1", "127.0.10.1"]),
                (other, ["127.0.8.1", "127.0.7.3"], ["127.0.9.1", "127.0.8.2"]),
                (open_, ["127.0.8.2", "127.0.9.1"], []),
            ):
                await served.serve(outside(hosts, a, b))
                assert [await reached(client_address) for client_address in good] == ["b"] * len(
                    good
                )
                assert [await reached(client_address) for client_address in bad] == [""] * len(bad)
                assert await server_name_at(address, trust, "api.a.test", source="127.0.8.1") == "a"
            assert await connection.echo("still here") == "still here"
            connection.close()


@pytest.mark.parametrize("wide", [False, True], ids=["by-name", "for-all-names"])
async def test_proxy_header_is_read_from_trusted_proxies_only(
    authority: Authority, trust: ssl.SSLContext, wide: bool
) -> None:
    edge = DataPlaneSettings(
        client_address=ClientAddress("proxy-protocol", ("127.0.8.0/24", "127.0.7.1"))
    )
    async with servers(authority, "a", "b") as (a, b):
        hosts = [named("api.b.test", "b", sources=("203.0.113.0/24",)), named("", "a")]
        hosts += [] if wide else [named("api.a.test", "a")]
        hosts = hosts if wide else [hosts[0], named(""), hosts[2]]
        gateway = msgspec.structs.replace(outside(hosts, a, b), settings=edge)
        async with serving(gateway) as served:
            assert served.generated.unsupported == ()

            async def reached(proxy: str, client: str, name: str = "api.b.test") -> str:
                header = apiservers.version_1(client, "192.0.2.1", 443)
                address = (served.address, 8443)
                return await server_name_at(address, trust, name, source=proxy, header=header)

            for proxy in ("127.0.8.1", "127.0.7.1"):
                assert await reached(proxy, "203.0.113.9") == "b"
                assert await reached(proxy, "198.51.100.9") == ""
                assert await reached(proxy, "198.51.100.9", "api.a.test") == "a"
            for proxy in ("127.0.9.1", "127.0.7.2"):
                assert await reached(proxy, "203.0.113.9") == ""
                assert await reached(proxy, "203.0.113.9", "api.a.test") == ""


async def test_restricted_hostname_has_no_cluster_of_the_shared_chain(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    """The order of updates in Envoy does not matter: the shared chain selects ``sni/…`` clusters
    only."""
    async with servers(authority, "b") as (b,):
        hosts = [named(""), named("api.b.test", "b", sources=("127.0.9.0/24",))]
        async with serving(outside(hosts, b)) as served:
            resources = served.generated.resources
            assert [n for n in resources.by_type[CLUSTER_TYPE_URL] if n.startswith("sni/")] == []
            served.running.ads.publish(resources.changed(gone=[(LISTENER_TYPE_URL, "tcp/8443")]))
            await served.running.ads.settled()
            bare = served.generator.generate(outside([named("")])).resources
            served.running.ads.publish(
                resources.changed(new=bare.by_type[LISTENER_TYPE_URL].values())
            )
            await served.running.ads.settled()
            address = (served.address, 8443)
            assert await server_name_at(address, trust, "api.b.test", source="127.0.9.1") == ""


WANTED = (Destination("10.1.2.3", 443, "a"), Destination("fd00::5", 443, "b"))


@pytest.mark.parametrize(
    ("header", "server"),
    [
        (apiservers.version_1("192.0.2.1", "10.1.2.3", 443), "a"),
        (apiservers.version_2("192.0.2.1", "10.1.2.3", 443), "a"),
        (apiservers.version_1("2001:db8::1", "fd00::5", 443), "b"),
        (apiservers.version_1("2001:db8::1", "fd00:0:0:0::0005", 443), "b"),
        (apiservers.version_2("2001:db8::1", "fd00::5", 443), "b"),
        (apiservers.version_1("192.0.2.1", "10.1.2.3", 444), ""),
        (apiservers.version_2("192.0.2.1", "10.1.2.4", 443), ""),
        (apiservers.UNKNOWN, ""),
        (apiservers.LOCAL, ""),
        (b"", ""),
        (b"PROXY TCP4 nonsense\r\n", ""),
    ],
    ids=["v1", "v2", "v1-ipv6", "v1-ipv6-long", "v2-ipv6", "port", "address", "UNKNOWN", "LOCAL",
         "none", "broken"],
)  # fmt: skip
async def test_destination_selects_cluster_and_other_connections_are_closed(
    authority: Authority, trust: ssl.SSLContext, header: bytes, server: str
) -> None:
    async with servers(authority, "a", "b") as (a, b), serving(inside(WANTED, a, b)) as served:
        # An SNI, if any, has no effect here.
        for sni in (None, "kubernetes.default.svc.cluster.local"):
            assert await server_name_at((served.address, 8443), trust, sni, header=header) == server


async def test_destination_is_read_from_trusted_proxies_only(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    async with servers(authority, "a", "b") as (a, b):
        header = apiservers.version_2("192.0.2.1", "10.1.2.3", 443)
        gateway = inside(WANTED, a, b, proxies=("127.0.9.0/24",))
        async with serving(gateway) as served:
            address = (served.address, 8443)
            assert (
                await server_name_at(address, trust, None, header=header, source="127.0.9.7") == "a"
            )
            assert (
                await server_name_at(address, trust, None, header=header, source="127.0.8.7") == ""
            )


@pytest.mark.parametrize(
    ("proxies", "claimed", "peer", "server"),
    [
        (("127.0.9.0/24",), "192.0.2.7", "127.0.9.1", "a"),
        (("127.0.9.0/24",), "192.0.3.7", "127.0.9.1", ""),
        (("127.0.9.0/24",), "192.0.2.7", "127.0.8.1", ""),
        ((), "192.0.2.7", "127.0.8.1", ""),
        ((), "203.0.113.9", "127.0.7.1", "a"),
    ],
    ids=["listed", "not-listed", "proxy-not-trusted", "claimed-to-everybody", "peer-listed"],
)
async def test_sources_are_compared_with_trusted_address(
    authority: Authority, trust: ssl.SSLContext, proxies: tuple[str, ...], claimed: str,
    peer: str, server: str,
) -> None:  # fmt: skip
    sources = ("127.0.7.0/24", "192.0.2.0/24")
    destinations = (Destination("10.1.2.3", 443, "a", sources), Destination("10.1.2.4", 443, "b"))
    async with (
        servers(authority, "a", "b") as (a, b),
        serving(inside(destinations, a, b, proxies=proxies)) as served,
    ):
        address = (served.address, 8443)

        async def reached(destination: str, port: int = 443) -> str:
            header = apiservers.version_2(claimed, destination, port)
            return await server_name_at(address, trust, None, header=header, source=peer)

        assert await reached("10.1.2.3") == server
        assert await reached("10.1.2.3", 444) == ""
        believed = not proxies or peer.startswith("127.0.9.")
        assert await reached("10.1.2.4") == ("b" if believed else "")


async def test_changed_destination_keeps_other_connections(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    async with servers(authority, "a", "b") as (a, b):
        header = apiservers.version_1("192.0.2.1", "10.1.2.3", 443)
        other = apiservers.version_1("192.0.2.1", "10.1.2.9", 443)
        async with serving(inside(WANTED[:1], a)) as served:
            address = (served.address, 8443)
            connection = await connect(address, trust, None, header=header)
            more = (WANTED[0], Destination("10.1.2.9", 443, "b"))
            changed = await served.serve(inside(more, a, b))
            assert {type_url for type_url, _ in changed} == {CLUSTER_TYPE_URL, ENDPOINTS_TYPE_URL}
            assert await server_name_at(address, trust, None, header=other) == "b"
            await served.serve(inside(WANTED[:1], a))
            assert await server_name_at(address, trust, None, header=other) == ""
            assert await connection.echo("still here") == "still here"
            connection.close()


async def test_ports_do_not_share_hostnames(authority: Authority, trust: ssl.SSLContext) -> None:
    async with servers(authority, "a", "b") as (a, b):
        first = outside([named("api.a.test", "a")], a, b)
        second = ir_gateway.L4Listener(9443, "TLS", (named("api.b.test", "b"),))
        gateway = ir_gateway.GatewayConfiguration(
            "ns/gw", l4_listeners=(*first.l4_listeners, second), clusters=first.clusters
        )
        async with serving(gateway) as served:
            assert await server_name_at((served.address, 8443), trust, "api.a.test") == "a"
            assert await server_name_at((served.address, 8443), trust, "api.b.test") == ""
            assert await server_name_at((served.address, 9443), trust, "api.b.test") == "b"


async def test_connections_are_balanced_or_closed_without_endpoints(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    async with servers(authority, "a", "b") as (a, b):

        def of(*upstreams: Server) -> ir_gateway.GatewayConfiguration:
            whole = outside([named("api.test", "one")])
            one = ir.Cluster("one", tuple(sorted(server.endpoint for server in upstreams)), "tcp")
            return ir_gateway.GatewayConfiguration(
                "ns/gw", l4_listeners=whole.l4_listeners, clusters=(one,)
            )

        async with serving(of()) as served:
            address = (served.address, 8443)
            assert await server_name_at(address, trust, "api.test") == ""
            await served.serve(of(a, b))
            assert {await server_name_at(address, trust, "api.test") for _ in range(20)} == {
                "a",
                "b",
            }
            await served.serve(of(b))
            assert {await server_name_at(address, trust, "api.test") for _ in range(5)} == {"b"}


def _worlds(
    upstreams: list[Server], spare: Server, number: int
) -> tuple[list[L4Host], list[Destination]]:
    """Return the hosts and destinations after so many changes, beside the constant ones.

    They have hostnames with and without sources, wildcards that cover none of those, and
    destinations.
    """
    hosts = [named(""), *(named(f"api.{server.name}.test", server.name) for server in upstreams)]
    destinations = [
        Destination(f"10.8.0.{n}", 443, server.name) for n, server in enumerate(upstreams)
    ]
    for back in range(number % 7):
        sources = ("127.0.0.0/8",) if (number + back) % 3 == 0 else ()
        hosts.append(named(f"n{number - back}.test", spare.name, sources=sources))
        address = f"10.9.{number // 200}.{number % 200 + back}"
        destinations.append(Destination(address, 443, spare.name, sources))
    if number % 5 == 0:
        hosts.append(named("*.wide.test", spare.name))
    return hosts, destinations


@pytest.mark.long
async def test_connections_survive_hostname_changes_and_draining(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    """200 connections, 100 changes in 10 s; Envoy closes drained connections after a second."""
    async with servers(authority, "a", "b", "spare", "moved") as (a, b, spare, moved):

        def after(number: int) -> ir_gateway.GatewayConfiguration:
            hosts, destinations = _worlds([a, b], spare, number)
            ends = spare.endpoint, moved.endpoint
            rotating = ir.Cluster("spare", (ends[number % 2],), "tcp")
            # The destination of the open connections changes too.
            first = ir.Cluster("a", tuple(sorted((a.endpoint, ends[1])[: 1 + number % 2])), "tcp")
            return ir_gateway.GatewayConfiguration(
                "ns/gw",
                l4_listeners=outside(hosts).l4_listeners,
                proxy_protocol_listeners=(ProxyProtocolListener(9443, tuple(destinations)),),
                clusters=(first, *clusters(b), rotating),
            )

        async with serving(after(0), drain=1) as served:
            held = []
            for number in range(200):
                name = "ab"[number // 2 % 2]
                header = apiservers.version_1("192.0.2.1", f"10.8.0.{'ab'.index(name)}", 443)
                where = (served.address, 8443 if number % 2 else 9443)
                sni = f"api.{name}.test" if number % 2 else None
                held.append(await connect(where, trust, sni, header=b"" if number % 2 else header))
            begun = time.monotonic()
            for number in range(1, 101):
                await served.serve(after(number))
                some = held[number % 10 :: 10]
                assert [await connection.echo("here") for connection in some] == ["here"] * len(
                    some
                )
                await asyncio.sleep(max(0.0, begun + number * 0.1 - time.monotonic()))
            # Envoy would close drained connections meanwhile, as the test below shows.
            await last(3)
            assert [await connection.echo("still") for connection in held] == ["still"] * len(held)
            for connection in held:
                connection.close()


async def test_removed_chain_closes_only_its_connections(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    """Control for the test above: how it looks if a connection is closed."""
    async with servers(authority, "a", "b") as (a, b):
        hosts = [named("api.a.test", "a"), named("api.b.test", "b", sources=("127.0.0.0/8",))]
        async with serving(outside(hosts, a, b), drain=1) as served:
            address = (served.address, 8443)
            connection = await connect(address, trust, "api.a.test")
            ended = await connect(address, trust, "api.b.test")
            await served.serve(outside(hosts[:1], a))

            async def is_closed() -> bool:
                try:
                    return not await ended.echo("here")
                except ConnectionRejected:
                    return True

            await until(is_closed)
            assert await connection.echo("here") == "here"
            connection.close()
