"""Reasons of requests that failed between the data plane and a real backend, on both proxies."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import h2.config
import h2.connection
import h2.errors
import h2.events
import msgspec
import pytest
from cryptography import x509

from fakes import patience
from fakes.authority import Authority
from fakes.envoy_serving import host, plain, route_to
from fakes.logged_gateways import ABLE, PROXIES, LoggedGateway, logged
from fakes.loopback import free_port
from gatehouse.agent.nginx.endpoint_failures import EndpointFailures
from gatehouse.agent.nginx.failed_attempts import failed_attempts
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import Origin

pytestmark = pytest.mark.process

TLS = ir.BackendTls("app.internal", "trust")
GRPC = {"Content-Type": "application/grpc", "TE": "trailers"}

CONNECTION, CERTIFICATE, HANDSHAKE, PROTOCOL = (
    "connection_failure",
    "backend_certificate",
    "backend_tls",
    "backend_protocol",
)


class Case(msgspec.Struct, frozen=True):
    """A cluster, its backend, and the reason of a request."""

    server: str
    reason: str
    protocol: Any = "http"
    tls: ir.BackendTls | None = None


CASES = {
    "refused": Case("nothing", CONNECTION),
    "refused TLS": Case("nothing", CONNECTION, tls=TLS),
    "closed": Case("closing", CONNECTION),
    "closed in the handshake": Case("hanging up", CONNECTION, tls=TLS),
    "reset in the handshake": Case("resetting", CONNECTION, tls=TLS),
    "unknown authority": Case("other authority", CERTIFICATE, tls=TLS),
    "other name": Case("tls", CERTIFICATE, tls=ir.BackendTls("x.internal", "trust")),
    "expired": Case("expired", CERTIFICATE, tls=TLS),
    "gRPC and expired": Case("expired", CERTIFICATE, "grpc", TLS),
    "TLS to a plain port": Case("plain", HANDSHAKE, tls=TLS),
    "plain to a TLS port": Case("alerting", PROTOCOL),
    "HTTP/2 to HTTP/1.1": Case("plain", PROTOCOL, "h2c"),
    "gRPC to HTTP/1.1": Case("plain", PROTOCOL, "grpc"),
    "HTTP/1.1 to HTTP/2": Case("http2", PROTOCOL),
}


_COUNTED = r'reason="(\w+)",backend="Service/shop/(c\d+)"'


WHY = {
    "unknown authority": "unable_to_get_local_issuer_certificate",
    "other name": "SAN_matcher",
    "expired": "certificate_has_expired",
    "gRPC and expired": "certificate_has_expired",
    "TLS to a plain port": "WRONG_VERSION_NUMBER",
}
"""Word in the text of Envoy about a failure."""


async def _serve(kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Behave like usual servers of that kind, to a client of another protocol."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        if kind == "alerting":
            # The alert of a TLS server about a request that is no handshake.
            await reader.readuntil(b"\r\n\r\n")
            writer.write(bytes.fromhex("15030100020246"))
        elif kind in ("hanging up", "resetting"):
            await reader.read(1 << 16)
            if kind == "resetting":
                # The end of the connection is a reset.
                linger = struct.pack("ii", 1, 0)
                own = writer.get_extra_info("socket")
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        elif kind == "closing":
            await reader.readuntil(b"\r\n\r\n")
        elif kind == "http2":
            await reader.readuntil(b"\r\n\r\n")
            state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
            state.initiate_connection()
            state.close_connection(h2.errors.ErrorCodes.PROTOCOL_ERROR)
            writer.write(state.data_to_send())
        else:
            line = await reader.readline()
            valid = line.endswith(b"HTTP/1.1\r\n")
            if valid:
                await reader.readuntil(b"\r\n\r\n")
            status = b"200 OK" if valid else b"400 Bad Request"
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def server(kind: str, context: ssl.SSLContext | None) -> AsyncIterator[ir.Endpoint]:
    if kind == "nothing":
        yield ir.Endpoint("127.0.0.1", free_port())
        return
    running = await asyncio.start_server(
        lambda reader, writer: _serve(kind, reader, writer), "127.0.0.1", 0, ssl=context
    )
    async with running:
        yield ir.Endpoint("127.0.0.1", running.sockets[0].getsockname()[1])


def _context(authority: Authority, **more: Any) -> ssl.SSLContext:
    # Envoy quotes the names of a rejected certificate. They must not look like another reason.
    names = map(x509.DNSName, ("app.internal", "timeout.internal"))
    chain, key = authority.issue("app", *names, **more)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    return context


def _contexts(authority: Authority, directory: Path) -> dict[str, ssl.SSLContext]:
    (directory / "other").mkdir()
    return {
        "tls": _context(authority),
        "expired": _context(authority, ends=-datetime.timedelta(hours=1)),
        "other authority": _context(Authority(directory / "other", "stranger")),
    }


@contextlib.asynccontextmanager
async def failing(
    proxy: str, directory: Path
) -> AsyncIterator[tuple[LoggedGateway, dict[str, str]]]:
    """Serve a route to the backend of each case. Yield the case of each endpoint, too."""
    authority = Authority(directory)
    contexts = _contexts(authority, directory)
    trust = ir_gateway.TrustBundle("trust", authority.pem)
    async with contextlib.AsyncExitStack() as stack:
        clusters, routes, endpoints = [], [], {}
        for number, (title, case) in enumerate(CASES.items()):
            name = f"c{number}"
            endpoint = await stack.enter_async_context(
                server(case.server, contexts.get(case.server))
            )
            endpoints[f"{endpoint.address}:{endpoint.port}"] = title
            clusters.append(
                ir.Cluster(
                    name,
                    (endpoint,),
                    case.protocol,
                    case.tls,
                    origin=Origin("Service", "shop", name),
                )
            )
            grpc = {"grpc": True} if case.protocol == "grpc" else {}
            routes.append(route_to(name, f"shop/{name}/0/0", f"/{name}", **grpc))
        gateway = plain([host("", *routes)], clusters, trust_bundles=(trust,))
        yield await stack.enter_async_context(logged(proxy, gateway)), endpoints


async def _requests_on_one_connection(address: str, paths: Sequence[str]) -> None:
    """Send requests by HTTP/2 at once, and wait for the responses."""
    state = h2.connection.H2Connection()
    state.initiate_connection()
    reader, writer = await asyncio.open_connection(address, 8080)
    for path in paths:
        pairs = {"method": "GET", "path": path, "scheme": "http", "authority": "a.example"}
        headers = [(f":{name}", value) for name, value in pairs.items()]
        state.send_headers(state.get_next_available_stream_id(), headers, end_stream=True)
    writer.write(state.data_to_send())
    ended = 0
    async with patience.limit():
        while ended < len(paths):
            events = state.receive_data(await reader.read(1 << 16))
            ended += sum(isinstance(event, h2.events.StreamEnded) for event in events)
            writer.write(state.data_to_send())
    writer.close()


async def test_requests_of_one_http2_connection_have_their_own_reasons(tmp_path: Path) -> None:
    long = f"/c{[*CASES].index('expired')}?{'x' * 3000}"
    numbers = {f"/c{number}": name for number, name in enumerate(CASES)}
    own = {path: name for path, name in numbers.items() if "gRPC" not in name}
    async with failing("nginx", tmp_path) as (served, _):
        await _requests_on_one_connection(served.address, [*own, *own])
        await patience.until(lambda: len(served.entries()) == 2 * len(own))
        reasons = {(entry["path"], entry["reason"]) for entry in served.entries()}
        assert reasons == {(path, CASES[name].reason) for path, name in own.items()}
        # NGINX cuts the line of its error log before the endpoint.
        await _requests_on_one_connection(served.address, [long])
        await patience.until(lambda: len(served.entries()) == 2 * len(own) + 1)
        assert served.entries()[-1]["reason"] == CERTIFICATE


async def test_reason_is_that_of_the_last_attempt(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    expired = _context(authority, ends=-datetime.timedelta(hours=1))
    trust = ir_gateway.TrustBundle("trust", authority.pem)
    entries = []
    async with server("nothing", None) as refusing, server("expired", expired) as rejected:
        cluster = ir.Cluster("c0", (refusing, rejected), "http", TLS)
        retried = route_to("c0", "shop/c0/0/0", "/", retry=ir.Retry(2))
        gateway = plain([host("", retried)], [cluster], trust_bundles=(trust,))
        async with logged("nginx", gateway) as served, aiohttp.ClientSession() as client:
            for path in map("/{}".format, range(8)):
                async with client.get(f"http://{served.address}:8080{path}"):
                    entries.append(await served.entry(path=path))
    assert all(entry["attempts"] > 1 for entry in entries)
    assert {(entry["endpoint"], entry["reason"]) for entry in entries} == {
        (f"{refusing.address}:{refusing.port}", CONNECTION),
        (f"{rejected.address}:{rejected.port}", CERTIFICATE),
    }


def test_agents_that_replace_no_marks_get_none() -> None:
    gateway = plain([host("", route_to("c0", "shop/c0/0/0", "/"))], [ir.Cluster("c0", ())])
    earlier = msgspec.structs.replace(ABLE, failure_causes=False)
    marked = {
        able.failure_causes: [
            path
            for path, file in nginx.NginxGenerator(able).generate(gateway).file_set.files.items()
            if b"gh_log_mark" in file.content
        ]
        for able in (ABLE, earlier, nginx.NginxCapabilities.common([ABLE, earlier]))
        if able is not None
    }
    assert marked[False] == []
    assert sorted(marked[True]) == ["gatehouse/access_log.conf", "gatehouse/request_log.conf"]


@pytest.mark.parametrize("proxy", PROXIES)
async def test_reason_names_the_failure_between_the_data_plane_and_the_backend(
    proxy: str, tmp_path: Path
) -> None:
    expected = {name: case.reason for name, case in CASES.items()}
    reasons: dict[str, str] = {}
    counted: dict[str, str] = {}
    in_error_log: dict[str, str] = {}
    async with failing(proxy, tmp_path) as (served, endpoints), aiohttp.ClientSession() as client:
        for number, name in enumerate(CASES):
            headers = GRPC if CASES[name].protocol == "grpc" else {}
            url = f"http://{served.address}:8080/c{number}"
            # NGINX forwards a response that is no HTTP as it is.
            with contextlib.suppress(aiohttp.ClientResponseError):
                async with client.post(url, headers=headers) as response:
                    await response.read()
            reasons[name] = (await served.entry(path=f"/c{number}"))["reason"]
        async with patience.limit():
            while len(counted) < len(CASES):
                await patience.pause()
                counted = {
                    backend: reason
                    for reason, backend in re.findall(_COUNTED, served.requests.text())
                }
        if served.error_log is not None:
            failures = EndpointFailures()
            failures.count(failed_attempts(served.error_log.read_text().splitlines()))
            in_error_log = {
                endpoints[sample.labels["endpoint"]]: sample.labels["reason"]
                for sample in failures.samples()
            }
    assert reasons == expected
    for number, name in enumerate(CASES):
        assert counted[f"c{number}"] == expected[name], name
        if proxy == "envoy" and name in WHY:
            assert WHY[name] in served.failures[f"c{number}"]
    if proxy == "nginx":
        assert in_error_log == expected


CONNECTIONS = {
    9000: ("nothing", CONNECTION), 9001: ("other authority", CERTIFICATE),
    9002: ("expired", CERTIFICATE), 9003: ("plain", HANDSHAKE), 9004: ("tls", ""),
    9005: ("hanging up", CONNECTION), 9006: ("resetting", CONNECTION),
}  # fmt: skip
"""Backend and reason of connections to each port."""


@pytest.mark.parametrize("proxy", PROXIES)
async def test_reason_of_connections_names_the_failed_handshake(proxy: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    contexts = _contexts(authority, tmp_path)
    trust = ir_gateway.TrustBundle("trust", authority.pem)
    reasons: dict[int, str] = {}
    counted: list[tuple[str, str]] = []
    async with contextlib.AsyncExitStack() as stack:
        clusters, listeners = [], []
        for port, (kind, _) in CONNECTIONS.items():
            endpoint = await stack.enter_async_context(server(kind, contexts.get(kind)))
            service = Origin("Service", "shop", kind.replace(" ", "-"))
            clusters.append(ir.Cluster(f"c{port}", (endpoint,), "tcp", TLS, origin=service))
            to = (ir_gateway.L4Backend(f"c{port}"),)
            target = ir_gateway.L4Host("", to, origin=Origin("TCPRoute", "shop", f"r{port}"))
            listeners.append(ir_gateway.L4Listener(port, "TCP", (target,)))
        gateway = ir_gateway.GatewayConfiguration(
            "ns/gw", l4_listeners=tuple(listeners), clusters=tuple(clusters), trust_bundles=(trust,)
        )
        served = await stack.enter_async_context(logged(proxy, gateway))
        for port in CONNECTIONS:
            reader, writer = await asyncio.open_connection(served.address, port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            reasons[port] = (await served.entry(listener=f"ns/gw:{port}"))["reason"] or ""
        async with patience.limit():
            while len(counted) < len(CONNECTIONS):
                await patience.pause()
                pattern = (
                    r'_backend_connections_total{reason="(\w*)",backend="Service/shop/([\w-]+)"'
                )
                counted = re.findall(pattern, served.connections.text())
    assert reasons == {port: reason for port, (_, reason) in CONNECTIONS.items()}
    assert {(kind.replace("-", " "), reason) for reason, kind in counted} == {*CONNECTIONS.values()}
