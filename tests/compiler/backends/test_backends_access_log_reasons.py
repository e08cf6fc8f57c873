"""Reasons of requests that the data plane ended itself, on both proxies."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509

from fakes import patience
from fakes.authority import Authority
from fakes.envoy_serving import backend, host, listening, plain, route_to
from fakes.logged_gateways import PROXIES, LoggedGateway, logged
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings
from gatehouse.dataplane.origin import Origin

pytestmark = pytest.mark.process

SERVICE = Origin("Service", "shop", "web")


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.asynccontextmanager
async def silent(
    proxy: str, retry: ir.Retry | None = None
) -> AsyncIterator[tuple[LoggedGateway, asyncio.Event]]:
    """Serve routes to a backend that never responds, for an exact hostname and for a wildcard.

    Yield an event for its first request, too.
    """
    requested = asyncio.Event()

    async def keep_waiting(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        requested.set()
        await reader.read()

    routes = [
        route_to("c", "shop/web/0/0", "/slow", backend_timeout=0.5, retry=retry),
        route_to("c", "shop/web/1/0", "/patient"),
    ]
    async with listening(keep_waiting) as endpoint:
        cluster = ir.Cluster("c", (endpoint,), origin=SERVICE)
        hosts = [host(name, *routes) for name in ("a.example", "*.example")]
        async with logged(proxy, plain(hosts, [cluster])) as served:
            yield served, requested


async def ask(served: LoggedGateway, head: str, leave: asyncio.Event | None = None) -> bytes:
    """Send the head of a request, and return the response. ``leave``: event that ends waiting."""
    reader, writer = await asyncio.open_connection(served.address, 8080)
    writer.write(f"{head}\r\n\r\n".encode())
    try:
        async with patience.limit():
            if leave is None:
                return await reader.read()
            await leave.wait()
            return b""
    finally:
        writer.close()


async def test_reason_is_timeout_when_endpoint_does_not_respond(proxy: str) -> None:
    async with silent(proxy) as (served, _):
        head = "GET /slow HTTP/1.1\r\nHost: a.example\r\nConnection: close"
        assert (await ask(served, head)).startswith(b"HTTP/1.1 504")
        entry = await served.entry(path="/slow")
    assert (entry["status"], entry["reason"], entry["route"]) == (504, "timeout", "shop/web/0")


@pytest.mark.parametrize("codes", [(), (504,)])
async def test_reason_is_timeout_when_a_request_is_not_sent_again(
    proxy: str, codes: tuple[int, ...]
) -> None:
    async with silent(proxy, retry=ir.Retry(2, codes)) as (served, _):
        head = "POST /slow HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\nConnection: close"
        assert (await ask(served, head)).startswith(b"HTTP/1.1 504")
        entry = await served.entry(path="/slow")
    assert (entry["status"], entry["reason"], entry["attempts"]) == (504, "timeout", 1)
    assert (entry["route"], entry["backend"]) == ("shop/web/0", "Service/shop/web")


async def test_reason_is_client_closed_when_client_leaves(proxy: str) -> None:
    async with silent(proxy) as (served, requested):
        await ask(served, "GET /patient HTTP/1.1\r\nHost: a.example", requested)
        entry = await served.entry(path="/patient")
    assert (entry["reason"], entry["route"]) == ("client_closed", "shop/web/1")


BAD_REQUESTS = {
    "GET / HTTP/1.1 x\r\nHost: a.example": 400,
    "GET / HTTP/1.1\r\nHost: a.example\r\nContent-Length: x": 400,
    "GET / HTTP/1.1": 400,
}


async def test_reason_is_bad_request_when_request_is_no_http(proxy: str) -> None:
    async with silent(proxy) as (served, _):
        for count, (head, status) in enumerate(BAD_REQUESTS.items(), 1):
            answer = await ask(served, f"{head}\r\nConnection: close")
            assert answer.startswith(f"HTTP/1.1 {status}".encode()), head
            async with patience.limit():
                while len(served.entries()) < count:
                    await patience.pause()
        for entry in served.entries():
            assert (entry["status"], entry["reason"]) == (400, "bad_request"), entry


def https(
    authority: Authority, *, trust: ir_gateway.TrustBundle | None = None
) -> ir_gateway.GatewayConfiguration:
    """Return a gateway with two HTTPS listeners on one port."""
    chain, key = authority.issue("web", *map(x509.DNSName, ("a.example", "b.example")))
    secret = ir_gateway.SecretBytes(key.read_bytes())
    certificate = ir_gateway.Certificate("web", chain.read_bytes(), secret)
    hosts = [
        ir.VirtualHost(
            name,
            (ir.Route(f"shop/{name[0]}/0/0", ir.Match(ir.PathPrefix("/")), ir.Respond(204)),),
            ("web",),
            listener=name,
        )
        for name in ("a.example", "b.example")
    ]
    validation = ir_gateway.ClientValidation(trust.name) if trust is not None else None
    listener = ir_gateway.Listener(8080, "HTTPS", tuple(hosts), validation)
    return ir_gateway.GatewayConfiguration(
        "ns/gw",
        listeners=(listener,),
        certificates=(certificate,),
        trust_bundles=(trust,) if trust is not None else (),
    )


async def ask_https(
    served: LoggedGateway, trust: ssl.SSLContext, path: str, name: str = "a.example"
) -> int:
    """Return the status of the response to one request; 0 if the connection is closed."""
    try:
        reader, writer = await asyncio.open_connection(
            served.address, 8080, ssl=trust, server_hostname="a.example"
        )
        head = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.read()
        writer.close()
    except (ConnectionError, ssl.SSLError):
        return 0
    return int(answer.split(b" ")[1]) if answer else 0


async def test_entry_of_https_request_has_its_sni_and_misdirected_ones_a_reason(
    proxy: str, authority: Authority
) -> None:
    trust = ssl.create_default_context(cafile=str(authority.file))
    async with logged(proxy, https(authority)) as served:
        assert await ask_https(served, trust, "/here") == 204
        assert await ask_https(served, trust, "/there", "b.example") == 421
        here, there = await served.entry(path="/here"), await served.entry(path="/there")
    assert (here["sni"], here["reason"] or "") == ("a.example", "")
    assert (there["sni"], there["host"], there["status"]) == ("a.example", "b.example", 421)
    assert there["reason"] == "misdirected"


async def test_reason_is_client_certificate_when_it_is_missing_or_not_trusted(
    proxy: str, authority: Authority, tmp_path: Path
) -> None:
    clients = Authority(tmp_path, "clients")
    bundle = ir_gateway.TrustBundle("clients", clients.pem)
    async with logged(proxy, https(authority, trust=bundle)) as served:
        without = ssl.create_default_context(cafile=str(authority.file))
        assert await ask_https(served, without, "/") == 0
        first = await served.entry(reason="client_certificate")
        foreign = ssl.create_default_context(cafile=str(authority.file))
        foreign.load_cert_chain(*authority.issue_to("eve"))
        assert await ask_https(served, foreign, "/") == 0
        valid = ssl.create_default_context(cafile=str(authority.file))
        valid.load_cert_chain(*clients.issue_to("ann"))
        assert await ask_https(served, valid, "/valid") == 204
        await served.entry(path="/valid")
        entries = served.entries()
    assert (first["sni"], first["listener"], first["client"]) == (
        "a.example", "ns/gw:8080", "127.0.0.1",
    )  # fmt: skip
    reasons = [entry["reason"] or "" for entry in entries]
    assert sorted(reasons) == ["", "client_certificate", "client_certificate"]


async def test_entry_has_forwarded_client_beside_peer(proxy: str) -> None:
    forwarded = DataPlaneSettings(client_address=ClientAddress("x-forwarded-for", ("127.0.0.0/8",)))
    async with backend("one") as endpoint:
        cluster = ir.Cluster("c", (endpoint,), origin=SERVICE)
        served_hosts = [host("a.example", route_to("c", "shop/web/0/0"))]
        async with logged(proxy, plain(served_hosts, [cluster], settings=forwarded)) as served:
            head = "GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close"
            await ask(served, f"{head}\r\nX-Forwarded-For: 203.0.113.9")
            entry = await served.entry(path="/x")
    assert (entry["client"], entry["peer"]) == ("203.0.113.9", "127.0.0.1")


async def test_responses_of_filters_that_are_no_errors_have_no_reason(proxy: str) -> None:
    cors = ir.Cors(("https://app.example",), ("GET",))
    async with backend("one") as endpoint:
        cluster = ir.Cluster("c", (endpoint,), origin=SERVICE)
        served_hosts = [host("a.example", route_to("c", "shop/web/0/0", cors=cors))]
        async with logged(proxy, plain(served_hosts, [cluster])) as served:
            head = (
                "OPTIONS /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n"
                "Origin: https://app.example\r\nAccess-Control-Request-Method: GET"
            )
            answer = await ask(served, head)
            assert answer.split(b" ")[1] in (b"200", b"204")
            entry = await served.entry(path="/x")
    assert (entry["reason"] or "", entry["route"]) == ("", "shop/web/0")


@pytest.mark.parametrize("name", ["a.example", "b.example"])
@pytest.mark.parametrize("upgrade", ["x/1", "websocket, x/1"])
async def test_reason_is_rejected_for_upgrades_that_envoy_does_not_know(
    name: str, upgrade: str
) -> None:
    async with silent("envoy") as (served, _):
        fields = f"Host: {name}\r\nConnection: upgrade\r\nUpgrade: {upgrade}"
        assert (await ask(served, f"GET /slow HTTP/1.1\r\n{fields}")).startswith(b"HTTP/1.1 403")
        entry = await served.entry(reason="rejected")
    assert (entry["status"], entry["route"]) == (403, "shop/web/0")
