"""TLS and L4 listeners on Envoy: selection of certificates and backends, and renewals."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fakes import https_server, patience
from fakes.authority import Authority
from fakes.envoy_serving import Served, host, listening, route_to, serving
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.xds.resources import SECRET_TYPE_URL

pytestmark = pytest.mark.process


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def authority(directory: Path) -> Authority:
    return Authority(directory)


def certificate(authority: Authority, name: str, *dns: str) -> ir_gateway.Certificate:
    chain, key = authority.issue(name, *(x509.DNSName(dns_name) for dns_name in dns))
    secret = ir_gateway.SecretBytes(key.read_bytes())
    return ir_gateway.Certificate(name, chain.read_bytes(), secret)


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


def answers(name: str, status: int, listener: str, certificate: str) -> ir.VirtualHost:
    route = ir.Route("ns/r/0/0", ir.Match(), ir.Respond(status))
    return ir.VirtualHost(name, (route,), (certificate,), listener)


def secure(
    hosts: list[ir.VirtualHost], *certificates: ir_gateway.Certificate, **more: object
) -> ir_gateway.GatewayConfiguration:
    validation = more.pop("client_validation", None)
    ordered = tuple(sorted(hosts, key=lambda virtual_host: virtual_host.hostname))
    listener = ir_gateway.Listener(8443, "HTTPS", ordered, validation)  # type: ignore[arg-type]
    return ir_gateway.GatewayConfiguration(
        "ns/gw", listeners=(listener,), certificates=certificates, **more  # type: ignore[arg-type]
    )  # fmt: skip


async def status(
    served: Served, trust: ssl.SSLContext, name: str, sni: str, path: str = "/"
) -> int:
    reply = await served.ask(
        name, path, port=8443, scheme="https", ssl=trust, server_hostname=sni
    )  # fmt: skip
    return reply[0]


async def shown(served: Served, trust: ssl.SSLContext, sni: str) -> str:
    """Return the common name of the server certificate for an SNI; empty if there is none."""
    try:
        _, writer = await asyncio.open_connection(
            served.address, 8443, ssl=trust, server_hostname=sni
        )
    except (ConnectionError, ssl.SSLError):
        return ""
    peer_certificate = writer.get_extra_info("peercert")
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()
    return str(peer_certificate["subject"][0][0][1])


async def test_sni_selects_certificate_and_listener(
    authority: Authority,
) -> None:
    wide, one = (
        certificate(authority, "wide", "*.w.test"),
        certificate(authority, "one", "one.test"),
    )
    hosts = [
        answers("*.w.test", 201, "*.w.test", "wide"), answers("a.w.test", 202, "*.w.test", "wide"),
        answers("one.test", 203, "one.test", "one"),
    ]  # fmt: skip
    trust = trusting(authority)
    async with serving(secure(hosts, wide, one)) as served:
        assert await shown(served, trust, "a.w.test") == "wide"
        assert await shown(served, trust, "one.test") == "one"
        assert await shown(served, trust, "nobody.test") == ""
        assert await status(served, trust, "a.w.test", "a.w.test") == 202
        assert await status(served, trust, "b.w.test", "a.w.test") == 201
        assert await status(served, trust, "one.test", "one.test") == 203
        # RFC 9110, 15.5.20: the connection was opened for another listener.
        assert await status(served, trust, "one.test", "a.w.test") == 421
        assert await status(served, trust, "nobody.test", "a.w.test") == 404


async def test_listener_selects_certificate_by_hostname(authority: Authority) -> None:
    one, two = certificate(authority, "one", "a.test"), certificate(authority, "two", "b.test")
    route = ir.Route("ns/r/0/0", ir.Match(), ir.Respond(200))
    both = ir.VirtualHost("*.test", (route,), ("one", "two"), "*.test")
    trust = trusting(authority)
    async with serving(secure([both], one, two)) as served:
        assert await shown(served, trust, "a.test") == "one"
        assert await shown(served, trust, "b.test") == "two"


async def test_renewed_certificate_changes_only_its_secret(authority: Authority) -> None:
    old, new = certificate(authority, "old", "a.test"), certificate(authority, "new", "a.test")
    trust = trusting(authority)
    async with serving(secure([answers("a.test", 200, "a.test", "old")], old)) as served:
        reader, writer = await asyncio.open_connection(
            served.address, 8443, ssl=trust, server_hostname="a.test"
        )
        changed = await served.serve(secure([answers("a.test", 200, "a.test", "new")], new))
        assert changed == {(SECRET_TYPE_URL, "certificate/8443/a.test/0")}

        async def renewed() -> bool:
            return await shown(served, trust, "a.test") == "new"

        await served.until(renewed)
        writer.write(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize("required", [True, False])
async def test_client_certificates_are_validated(
    authority: Authority, directory: Path, required: bool
) -> None:
    bundle = ir_gateway.TrustBundle("clients", authority.pem)
    validation = ir_gateway.ClientValidation("clients", required)
    gateway = secure(
        [answers("a.test", 200, "a.test", "server")], certificate(authority, "server", "a.test"),
        client_validation=validation, trust_bundles=(bundle,),
    )  # fmt: skip
    (directory / "others").mkdir()
    good, bad, none = (trusting(authority) for _ in range(3))
    good.load_cert_chain(*authority.issue("me"))
    bad.load_cert_chain(*Authority(directory / "others", "other").issue("me"))
    async with serving(gateway) as served:
        assert await status(served, good, "a.test", "a.test") == 200
        for context in (bad, none):
            if required:
                with pytest.raises(Exception):  # noqa: B017
                    await status(served, context, "a.test", "a.test")
            else:
                assert await status(served, context, "a.test", "a.test") == 200


def proven(tls: ir.BackendTls, endpoint: ir.Endpoint) -> ir.Cluster:
    return ir.Cluster(f"c-{abs(hash(tls))}", (endpoint,), tls=tls)


async def test_backend_certificates_are_verified(authority: Authority, directory: Path) -> None:
    names = (x509.DNSName("in.test"), x509.UniformResourceIdentifier("spiffe://in/me"))
    context = authority.server("inner", *names)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    mine = certificate(authority, "mine")
    bundle = ir_gateway.TrustBundle("t", authority.pem)
    uri, other = ir.SubjectName("uri", "spiffe://in/me"), ir.SubjectName("dns", "out.test")
    cases = {
        "/name": (ir.BackendTls("in.test", "t", (), "mine"), 200),
        "/uri": (ir.BackendTls("else.test", "t", (uri,), "mine"), 200),
        "/other": (ir.BackendTls("in.test", "t", (other,), "mine"), 503),
        "/wrong": (ir.BackendTls("out.test", "t", (), "mine"), 503),
        "/silent": (ir.BackendTls("in.test", "t"), 503),
    }
    with https_server.serving(context) as port:
        clusters = {path: proven(tls, ir.Endpoint("127.0.0.1", port))
                    for path, (tls, _) in cases.items()}  # fmt: skip
        routes = [
            route_to(cluster.name, f"ns/r{path}/0", path) for path, cluster in clusters.items()
        ]
        listener = ir_gateway.Listener(8080, "HTTP", (host("a.test", *routes),))
        gateway = ir_gateway.GatewayConfiguration(
            "ns/gw", listeners=(listener,), clusters=tuple(clusters.values()),
            certificates=(mine,), trust_bundles=(bundle,),
        )  # fmt: skip
        async with serving(gateway) as served:
            for path, (_, expected) in cases.items():
                # With TLS 1.3 a client learns later that its certificate is missing.
                assert (await served.ask("a.test", path))[0] == expected, path


@contextlib.asynccontextmanager
async def greeting(text: bytes) -> AsyncIterator[ir.Endpoint]:
    """Run a backend that sends text at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await reader.read()

    async with listening(answer) as endpoint:
        yield endpoint


async def test_https_passthrough_and_terminated_tls_share_a_port(authority: Authority) -> None:
    inner = authority.server("inner", x509.DNSName("pass.test"))
    certificates = (
        certificate(authority, "ended", "end.test"), certificate(authority, "web", "web.test"),
    )  # fmt: skip
    trust = trusting(authority)
    with https_server.serving(inner) as port:
        async with greeting(b"hello") as plain:
            clusters = (
                ir.Cluster("passed", (ir.Endpoint("127.0.0.1", port),), "tcp"),
                ir.Cluster("plain", (plain,), "tcp"),
            )
            stream = ir_gateway.L4Listener(8443, "TLS", (
                ir_gateway.L4Host("end.test", (ir_gateway.L4Backend("plain"),), ("ended",)),
                ir_gateway.L4Host("nowhere.test"),
                ir_gateway.L4Host("pass.test", (ir_gateway.L4Backend("passed"),)),
            ))  # fmt: skip
            gateway = secure(
                [answers("web.test", 204, "web.test", "web")], *certificates,
                l4_listeners=(stream,), clusters=clusters,
            )  # fmt: skip
            async with serving(gateway) as served:
                assert await shown(served, trust, "pass.test") == "inner"
                assert await shown(served, trust, "end.test") == "ended"
                assert await shown(served, trust, "nowhere.test") == ""
                assert await shown(served, trust, "nobody.test") == ""
                assert await status(served, trust, "web.test", "web.test") == 204
                assert await status(served, trust, "pass.test", "pass.test") == 200
                reader, writer = await asyncio.open_connection(
                    served.address, 8443, ssl=trust, server_hostname="end.test"
                )
                assert await reader.readexactly(5) == b"hello"
                writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    """Answers with a text, or collects received datagrams."""

    def __init__(self, text: bytes = b"") -> None:
        self.text = text
        self.got: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self.text:
            self.transport.sendto(self.text, addr)
        self.got.put_nowait(data)


@contextlib.asynccontextmanager
async def datagrams(text: bytes) -> AsyncIterator[ir.Endpoint]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Datagrams(text), local_addr=("127.0.0.1", 0)
    )
    yield ir.Endpoint("127.0.0.1", transport.get_extra_info("sockname")[1])
    transport.close()


async def test_tcp_and_udp_are_balanced_by_weight(authority: Authority) -> None:
    async with (
        greeting(b"one") as one, greeting(b"two") as two,
        datagrams(b"1") as first, datagrams(b"2") as second,
    ):  # fmt: skip

        def by_weight(*names: str) -> tuple[ir_gateway.L4Host, ...]:
            shares = (9, 1)
            pairs = zip(names, shares, strict=True)
            return (ir_gateway.L4Host("", tuple(ir_gateway.L4Backend(*p) for p in pairs)),)

        gateway = ir_gateway.GatewayConfiguration(
            "ns/gw",
            l4_listeners=(
                ir_gateway.L4Listener(9000, "TCP", by_weight("one", "two")),
                ir_gateway.L4Listener(9000, "UDP", by_weight("first", "second")),
            ),
            clusters=(
                ir.Cluster("first", (first,), "udp"), ir.Cluster("one", (one,), "tcp"),
                ir.Cluster("second", (second,), "udp"), ir.Cluster("two", (two,), "tcp"),
            ),
        )  # fmt: skip
        async with serving(gateway) as served:
            counts: Counter[bytes] = Counter()
            for _ in range(100):
                reader, writer = await asyncio.open_connection(served.address, 9000)
                counts[await reader.readexactly(3)] += 1
                writer.close()
            assert counts[b"one"] > counts[b"two"] > 0
            answered: Counter[bytes] = Counter()
            loop = asyncio.get_running_loop()
            for _ in range(100):
                transport, protocol = await loop.create_datagram_endpoint(
                    _Datagrams, remote_addr=(served.address, 9000)
                )
                transport.sendto(b"?")
                answered[await asyncio.wait_for(protocol.got.get(), patience.SECONDS)] += 1
                transport.close()
            assert answered[b"1"] > answered[b"2"] > 0
