"""Tunnels by HTTP CONNECT on a real Envoy: only hosted destinations can be reached."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from fakes import patience
from fakes.apiservers import Server, apiserver, server_name_at
from fakes.authority import Authority
from fakes.envoy_serving import Served, listening, serving
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import ConnectDestination, HttpConnectListener
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings
from gatehouse.dataplane.xds.resources import SCOPE_TYPE_URL

pytestmark = pytest.mark.process

FIELD = "X-Gardener-Destination"
GARDENER = "outbound|443||kube-apiserver.shoot--a.svc.cluster.local"
PORT = 8443


def destinations(*entries: tuple[str, str, Sequence[str]]) -> tuple[ConnectDestination, ...]:
    return tuple(ConnectDestination(n, c, tuple(s)) for n, c, s in sorted(entries))


def gateway(
    *entries: tuple[str, str, Sequence[str]],
    servers: Sequence[Server] = (),
    proxies: Sequence[str] = (),
    balancers: Sequence[str] = (),
) -> ir_gateway.GatewayConfiguration:
    listener = HttpConnectListener(PORT, destinations(*entries), tuple(proxies))
    clusters = (ir.Cluster(server.name, (server.endpoint,), "tcp") for server in servers)
    client = ClientAddress("proxy-protocol", tuple(balancers)) if balancers else None
    return ir_gateway.GatewayConfiguration(
        "ns/gw",
        http_connect_listeners=(listener,),
        clusters=tuple(sorted(clusters, key=lambda cluster: cluster.name)),
        settings=DataPlaneSettings(client_address=client),
    )


def head(target: str, *fields: str, method: str = "CONNECT", version: str = "1.1") -> bytes:
    lines = (f"{method} {target} HTTP/{version}", f"Host: {target}", *fields, "", "")
    return "\r\n".join(lines).encode("latin-1")


async def response(
    address: tuple[str, int], data: bytes, *, source: str = "", then: bytes = b"hello\n"
) -> tuple[int, bytes]:
    """Send a request. Return the status (0: none), and what follows the head of the response."""
    local = (source, 0) if source else None
    reader, writer = await asyncio.open_connection(*address, local_addr=local)
    try:
        async with patience.limit():
            writer.write(data)
            first = await reader.readuntil(b"\r\n\r\n")
            status = int(first.split()[1])
            if status != 200:
                return status, b""
            writer.write(then)
            return status, await reader.readline()
    except (EOFError, ConnectionError):
        return 0, b""
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def named(*names: str) -> AsyncIterator[list[Server]]:
    """Run backends that answer a line with their name."""

    async def answer(name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(f"{name}\n".encode())

    async with contextlib.AsyncExitStack() as stack:
        yield [
            Server(
                name, await stack.enter_async_context(listening(functools.partial(answer, name)))
            )
            for name in names
        ]


@contextlib.asynccontextmanager
async def two(**more: Sequence[str]) -> AsyncIterator[tuple[Served, tuple[str, int]]]:
    """Serve two destinations of `a` and two of `b`."""
    async with named("a", "b") as servers:
        config = gateway(
            (GARDENER, "a", ()), ("api.a.test:443", "a", ()),
            ("10.1.2.4:443", "b", ()), ("[fd00::5]:6443", "b", ()),
            servers=servers, **more,
        )  # fmt: skip
        async with serving(config) as served:
            yield served, (served.address, PORT)


async def test_destination_selects_cluster() -> None:
    async with two() as (_, address):
        ask = functools.partial(response, address)
        field = f"X-Gardener-Destination: {GARDENER}"
        assert await ask(head("api.seed.test:443", field)) == (200, b"a\n")
        assert await ask(head("api.seed.test:443", field.lower())) == (200, b"a\n")
        assert await ask(head("api.a.test:443")) == (200, b"a\n")
        assert await ask(head("10.1.2.4:443")) == (200, b"b\n")
        assert await ask(head("[fd00::5]:6443")) == (200, b"b\n")
        # The header wins, as with Gardener's own gateway.
        assert await ask(head("10.1.2.4:443", field)) == (200, b"a\n")
        # A client may send data before the response.
        assert await ask(head("10.1.2.4:443") + b"x\n", then=b"") == (200, b"b\n")


HOSTILE = [
    "api.seed.test:443", "api.a.test", "api.a.test:80", "api.a.test:0443", "api.a.test:443:443",
    "api.a.test.:443", "API.A.TEST:443", "x.api.a.test:443", "user@api.a.test:443",
    "10.1.2.4", "10.1.2.4:444", "010.1.2.4:443", "0x0a010204:443", "167838212:443", "10.1.516:443",
    "[::ffff:10.1.2.4]:443", "[fd00:0::5]:6443", "[FD00::5]:6443", "fd00::5:6443", "[fd00::5]",
    "[fd00::5%25lo]:6443", "127.0.0.1:443", "localhost:443", "169.254.169.254:80", "a", "b",
    "connect/8443/10.1.2.4:443", "connect/8443/api.a.test:443", "gh-broken", "*", "/", ":443",
    "http://api.a.test:443/", "https://api.a.test:443", "/../10.1.2.4:443", "10.1.2.4:443/",
    "10.1.2.4:443#", "10.1.2.4:443?", "api.a.test%3A443", "\xe4.test:443", "api.a.test:443\x00",
    "api.a.test:443 x", f"{'a' * 5000}:443", f"{'a' * 100_000}:443",
]  # fmt: skip


async def test_no_other_destination_can_be_reached() -> None:
    async with two() as (_, address):
        for target in HOSTILE:
            status, _ = await response(address, head(target))
            assert status in (0, 400, 404, 431), target
            if target.isascii() and not {*target} & {*"\x00\t "}:
                field = f"X-Gardener-Destination: {target}"
                status, _ = await response(address, head("10.1.2.4:443", field))
                assert status in (0, 400, 404, 431), target


async def test_malformed_and_smuggled_requests_reach_nothing() -> None:
    good = head("10.1.2.4:443")
    inner = f"Host: 10.1.2.4:443\r\nX-Gardener-Destination: {GARDENER}\r\n\r\n".encode()
    requests = {
        "other methods": head("10.1.2.4:443", method="GET"),
        "a path": b"GET / HTTP/1.1\r\n" + inner,
        "absolute form": b"GET http://10.1.2.4:443/ HTTP/1.1\r\n" + inner,
        "an upgrade": b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: CONNECT\r\n" + inner,
        "HTTP/1.0": head("10.1.2.4:443", version="1.0"),
        "HTTP/0.9": b"CONNECT 10.1.2.4:443\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 64,
        "two targets": b"CONNECT 10.1.2.4:443 api.a.test:443 HTTP/1.1\r\n" + inner,
        "a folded header": b"CONNECT x:1 HTTP/1.1\r\nX-A: 1\r\n Host: 10.1.2.4:443\r\n\r\n",
        "a space before the colon": b"CONNECT x:1 HTTP/1.1\r\nHost : 10.1.2.4:443\r\n\r\n",
        "Envoy's own header": head("x:1", "x-gh-scope: connect/8443/10.1.2.4:443"),
        "an underscore": head("x:1", "X_Gardener_Destination: " + GARDENER),
        "two headers": head("x:1", f"{FIELD}: x", f"{FIELD}: {GARDENER}"),
        "many headers": head("10.1.2.4:443", *(f"X-{n}: 1" for n in range(40))),
        "a long header": head("10.1.2.4:443", "X-A: " + "a" * 20_000),
        "a NUL": b"CONNECT 10.1.2.4:443\0 HTTP/1.1\r\n" + inner,
        "a bare line feed": b"CONNECT x:1\nHost: 10.1.2.4:443 HTTP/1.1\r\n" + inner,
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 508,
    }  # fmt: skip
    async with two() as (_, address):
        for what, data in requests.items():
            status, data = await response(address, data)
            assert status in (0, 400, 403, 404, 426, 431), what
            assert not data, what
        # A rejected request does not let the next one through unchecked.
        rejected = head("x:1") + b"CONNECT 10.9.9.9:443 HTTP/1.1\r\nHost: 10.9.9.9:443\r\n\r\n"
        assert (await response(address, rejected))[0] in (400, 404)
        # The Host header of a CONNECT request does not change its target.
        other = b"CONNECT x:1 HTTP/1.1\r\nHost: 10.1.2.4:443\r\n\r\n"
        assert (await response(address, other))[0] in (400, 404)
        assert await response(address, good) == (200, b"b\n")


@pytest.mark.slow
@pytest.mark.parametrize("data", [b"", b"CONNECT 10.1", b"CONNECT 10.1.2.4:443 HTTP/1.1\r\nA: b"])
async def test_slow_heads_end(data: bytes) -> None:
    async with two() as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        start = time.monotonic()
        writer.write(data)
        # Slowly sent bytes do not extend the time.
        async with patience.limit():
            task = asyncio.create_task(reader.read())
            while not task.done():
                if data:
                    writer.write(b"0")
                await patience.pause()
        with contextlib.suppress(ConnectionError):
            assert b" 200 " not in await task
        assert time.monotonic() - start > 3
        writer.transport.abort()


async def test_tunnel_carries_tls(tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    trust = ssl.create_default_context(cafile=str(authority.file))
    trust.check_hostname = False
    async with (
        apiserver(authority, "a") as a,
        serving(gateway(("10.1.2.3:443", "a", ()), servers=[a])) as served,
    ):
        reader, writer = await asyncio.open_connection(served.address, PORT)
        writer.write(head("10.1.2.3:443"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await writer.start_tls(trust)
        assert await reader.readline() == b"a -\n"
        writer.close()
        assert await server_name_at((served.address, PORT), trust, "10.1.2.3") == ""


async def test_sources_and_proxies_are_enforced() -> None:
    async with named("a", "b") as servers:
        config = gateway(
            ("10.1.2.3:443", "a", ["127.0.9.0/24"]), ("10.1.2.4:443", "b", ()),
            servers=servers, proxies=["127.0.9.0/24", "127.0.10.0/24"],
        )  # fmt: skip
        async with serving(config) as served:
            ask = functools.partial(response, (served.address, PORT))
            forged = "X-Forwarded-For: 127.0.9.1"
            assert await ask(head("10.1.2.3:443"), source="127.0.9.1") == (200, b"a\n")
            assert await ask(head("10.1.2.3:443", forged), source="127.0.10.1") == (403, b"")
            assert await ask(head("10.1.2.4:443"), source="127.0.10.1") == (200, b"b\n")
            assert await ask(head("10.1.2.4:443", forged), source="127.0.11.1") == (0, b"")
            # A list that is removed or added takes effect without a change of the listener.
            more = gateway(
                ("10.1.2.3:443", "a", ()), ("10.1.2.4:443", "b", ["127.0.9.0/24"]),
                servers=servers, proxies=["127.0.9.0/24", "127.0.10.0/24"],
            )  # fmt: skip
            changed = await served.serve(more)
            names = ("connect/8443/10.1.2.3:443", "connect/8443/10.1.2.4:443")
            assert changed == {(SCOPE_TYPE_URL, name) for name in names}
            assert await ask(head("10.1.2.3:443"), source="127.0.10.1") == (200, b"a\n")
            assert await ask(head("10.1.2.4:443"), source="127.0.10.1") == (403, b"")


async def test_client_address_comes_from_load_balancer() -> None:
    async with named("a") as servers:
        config = gateway(
            ("10.1.2.3:443", "a", ["198.51.100.0/24"]), servers=servers,
            proxies=["198.51.100.0/24", "203.0.113.0/24"], balancers=["127.0.9.0/24"],
        )  # fmt: skip
        async with serving(config) as served:
            ask = functools.partial(response, (served.address, PORT))

            def header(source: str) -> bytes:
                return f"PROXY TCP4 {source} 192.0.2.1 1234 8443\r\n".encode()

            request = head("10.1.2.3:443")
            assert await ask(header("198.51.100.7") + request, source="127.0.9.1") == (200, b"a\n")
            assert await ask(header("203.0.113.7") + request, source="127.0.9.1") == (403, b"")
            assert await ask(header("192.0.2.7") + request, source="127.0.9.1") == (0, b"")
            # Only the load balancer may send the header, and must.
            assert await ask(header("198.51.100.7") + request, source="127.0.8.1") == (0, b"")
            assert await ask(request, source="127.0.9.1") == (0, b"")


async def test_other_destinations_keep_tunnels_across_changes() -> None:
    async with named("a", "b") as servers:
        destination = ("10.1.2.3:443", "a", ())
        async with serving(gateway(destination, servers=servers[:1])) as served:
            reader, writer = await asyncio.open_connection(served.address, PORT)
            writer.write(head("10.1.2.3:443"))
            await reader.readuntil(b"\r\n\r\n")
            more = gateway(destination, ("10.1.2.4:443", "b", ()), servers=servers)
            changed = await served.serve(more)
            assert (SCOPE_TYPE_URL, "connect/8443/10.1.2.4:443") in changed
            assert not any("tcp/" in name for _, name in changed)
            answer = await response((served.address, PORT), head("10.1.2.4:443"))
            assert answer == (200, b"b\n")
            writer.write(b"x\n")
            assert await reader.readline() == b"a\n"
            # The tunnel survives the removal of its own destination.
            await served.serve(gateway(servers=servers))
            writer.write(b"x\n")
            assert await reader.readline() == b"a\n"
            assert (await response((served.address, PORT), head("10.1.2.3:443")))[0] == 404
            writer.transport.abort()
