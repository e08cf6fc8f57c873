"""Traces of requests, as a collector receives them from a real NGINX with ngx_otel_module."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from cryptography import x509

from fakes import collector_process, collectors
from fakes.authority import Authority
from fakes.collectors import ReceivedSpan
from fakes.envoy_serving import backend, host, plain, route_to
from fakes.logged_gateways import NginxProgram, running_nginx
from fakes.loopback import free_port, loopback_network
from fakes.otel_module import tracing_nginx
from fakes.patience import until
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import AccessLog
from gatehouse.compiler.ir.authentication import Basic
from gatehouse.compiler.ir.gateway import (
    GatewayConfiguration,
    SecretBytes,
    SecretFile,
    TrustBundle,
)
from gatehouse.compiler.ir.settings import DataPlaneSettings, Settings
from gatehouse.compiler.ir.tracing import SpanAttribute, TraceExport, Tracing
from gatehouse.dataplane.origin import Origin

pytestmark = [pytest.mark.process, pytest.mark.trace_module]

POLICY = Origin("ObservabilityPolicy", "ns", "traces")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
ADDRESS = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
HOSTILE = 'a "b" $request_uri ${x} \\ ; }'


def traced(number: int, *, path: str = "", **more: Any) -> ir.Route:
    """Return a route with traces at ``/<number>``."""
    tracing = Tracing(**{"percent": 100, "origin": POLICY, **more})
    settings = Settings(tracing=tracing)
    return route_to("c", f"ns/r{number}/0/0", path or f"/{number}", settings=settings)


VERSION_2 = ir.ValueMatch("x-version", "2")

RETRIED = ir.Forward((ir.Backend("closed"),), retry=ir.Retry(2, codes=(502,)))
BASIC = Basic("realm", "users")

ROUTES = (
    traced(0, context="propagate", attributes=(SpanAttribute("team", HOSTILE),)),
    traced(1, context="extract"),
    traced(2, percent=0, parent_percent=100, context="propagate"),
    traced(3, span_name="100% of $it"),
    traced(4, percent=0, context="propagate"),
    traced(5, percent=50, context="propagate"),
    traced(6, context="inject"),
    traced(7, percent=0, parent_percent=100),
    msgspec.structs.replace(
        traced(8, context="propagate"), match=ir.Match(ir.PathPrefix("/8"), headers=(VERSION_2,))
    ),
    route_to("c", "ns/plain/0/0", "/8"),
    msgspec.structs.replace(traced(9), action=RETRIED),
    msgspec.structs.replace(traced(10), action=ir.Redirect(), authentication=BASIC),
    msgspec.structs.replace(traced(11), action=ir.Forward((ir.Backend("none"),))),
    msgspec.structs.replace(traced(12), action=ir.Respond(500, grpc=True)),
    msgspec.structs.replace(
        traced(13), action=ir.Forward((ir.Backend("c"), ir.Backend("closed")), failing=1)
    ),
    route_to("c", "ns/untraced/0/0", "/untraced"),
)


def gateway(endpoint: ir.Endpoint, port: int, **more: Any) -> GatewayConfiguration:
    """Return a gateway that exports spans to a collector on a port."""
    export = TraceExport(
        "127.0.0.1", port, "gatehouse:ns:gw", interval=0.1, batch_size=1, batch_count=64,
        attributes=(SpanAttribute("site", "north"),), origin=Origin("NginxProxy", "", "p"), **more,
    )  # fmt: skip
    return plain(
        [host("a.example", *ROUTES)],
        [
            ir.Cluster("c", (endpoint,)),
            ir.Cluster("closed", (ir.Endpoint("127.0.0.1", 9),)),
            ir.Cluster("none", ()),
        ],
        secrets=(SecretFile("users", SecretBytes(b"me:{PLAIN}word\n")),),
        settings=DataPlaneSettings(traces=export),
    )


class Tracer(msgspec.Struct, frozen=True):
    """A running NGINX with its collector."""

    address: str
    collector: collectors.Collector
    directory: Path
    """Directory of NGINX, with its access log ``output`` and ``error.log``."""

    async def seen(
        self,
        path: str,
        traceparent: str = "",
        *,
        status: int = 200,
        header: tuple[str, str] = ("X", ""),
    ) -> dict[str, str]:
        """Send a request. Return the context that the backend gets; empty for other statuses."""
        context = {"traceparent": traceparent, "tracestate": "a=b"} if traceparent else {}
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"http://{self.address}:8080{path}",
                headers={"Host": "a.example", **context, header[0]: header[1]},
                allow_redirects=False,
            ) as answer,
        ):
            assert answer.status == status
            if status != 200:
                return {}
            view = msgspec.json.decode(await answer.read())
        received = {key.lower(): value for key, value in view["headers"]}
        return {key: value for key, value in received.items() if key.startswith("trace")}

    async def spans(self) -> list[ReceivedSpan]:
        """Return the spans so far: NGINX sends that of this request after them."""
        await self.seen("/3")
        name = "100% of $it"
        await self.collector.matching(1, lambda span: span.name == name)
        spans = [span for span in self.collector.spans if span.name != name]
        self.collector.spans.clear()
        return spans


@contextlib.asynccontextmanager
async def tracing(
    program: NginxProgram, config: GatewayConfiguration, collector: collectors.Collector
) -> AsyncIterator[Tracer]:
    """Run NGINX."""
    address = f"{loopback_network()}.2"
    bound = msgspec.structs.replace(config, bind_address=address)
    with tempfile.TemporaryDirectory(prefix="ghs-") as name:
        async with running_nginx(bound, Path(name), Path(name) / "output", program):
            yield Tracer(address, collector, Path(name))


@pytest.fixture
async def tracer() -> AsyncIterator[Tracer]:
    program = tracing_nginx()
    async with (
        collectors.collecting() as collector,
        backend("one") as endpoint,
        tracing(program, gateway(endpoint, collector.port), collector) as running,
    ):
        yield running


async def test_span_names_route_gateway_listener_and_attributes(tracer: Tracer) -> None:
    await tracer.seen("/0?token=secret")
    (span,) = await tracer.spans()
    assert (span.name, span.kind, span.parent) == ("ns/r0/0", "server", "")
    assert span.resource["service.name"] == "gatehouse:ns:gw"
    assert {
        "gatehouse.route": "ns/r0/0",
        "gatehouse.gateway": "ns/gw",
        "gatehouse.listener": "ns/gw:8080",
        "http.method": "GET",
        "site": "north",
        "team": HOSTILE,
    }.items() <= span.attributes.items()


@pytest.mark.parametrize(
    ("number", "status", "credentials"),
    [
        (9, 502, ""),
        (10, 302, "Basic bWU6d29yZA=="),
        (10, 401, ""),
        (11, 503, ""),
        (12, 503, ""),
    ],
)
async def test_span_of_a_failed_request_names_its_route(
    tracer: Tracer, number: int, status: int, credentials: str
) -> None:
    """The last location of these requests is not that of the route."""
    await tracer.seen(f"/{number}", status=status, header=("Authorization", credentials))
    (span,) = await tracer.spans()
    assert span.name == f"ns/r{number}/0"
    expected = {"gatehouse.route": span.name, "gatehouse.gateway": "ns/gw", "site": "north"}
    assert expected.items() <= span.attributes.items()


async def test_propagated_context_continues_the_trace_of_the_client(tracer: Tracer) -> None:
    headers = await tracer.seen("/0", SAMPLED)
    (span,) = await tracer.spans()
    assert (span.trace, span.parent) == (TRACE, PARENT)
    assert headers == {"traceparent": f"00-{TRACE}-{span.span}-01", "tracestate": "a=b"}


async def test_propagated_context_begins_a_trace(tracer: Tracer) -> None:
    headers = await tracer.seen("/0")
    (span,) = await tracer.spans()
    assert headers == {"traceparent": f"00-{span.trace}-{span.span}-01"}


async def test_extracted_context_is_not_sent(tracer: Tracer) -> None:
    headers = await tracer.seen("/1", SAMPLED)
    (span,) = await tracer.spans()
    assert (span.trace, span.parent) == (TRACE, PARENT)
    assert headers == {"traceparent": SAMPLED, "tracestate": "a=b"}


async def test_injected_context_begins_a_trace(tracer: Tracer) -> None:
    headers = await tracer.seen("/6", SAMPLED)
    (span,) = await tracer.spans()
    assert (span.trace != TRACE, span.parent) == (True, "")
    assert headers["traceparent"] == f"00-{span.trace}-{span.span}-01"


async def test_only_requests_of_traced_routes_have_spans(tracer: Tracer) -> None:
    for path in ("/4", "/untraced", "/8"):
        for context in ("", SAMPLED):
            await tracer.seen(path, context)
    assert await tracer.spans() == []
    await tracer.seen("/8", header=("X-Version", "2"))
    assert [span.name for span in await tracer.spans()] == ["ns/r8/0"]


@pytest.mark.parametrize(("path", "context"), [("/2", "propagate"), ("/7", "ignore")])
async def test_parent_strategy_follows_the_client(tracer: Tracer, path: str, context: str) -> None:
    for header in ("", UNSAMPLED, f"00-{TRACE}-{PARENT}-02", "hostile-01"):
        await tracer.seen(path, header)
    assert await tracer.spans() == []
    for header in (SAMPLED, f"00-{TRACE}-{PARENT}-03"):
        await tracer.seen(path, header)
        (span,) = await tracer.spans()
        assert (span.trace == TRACE) == (context == "propagate")


@pytest.mark.parametrize("context", ["", SAMPLED, UNSAMPLED])
async def test_ratio_traces_about_its_share(tracer: Tracer, context: str) -> None:
    """A client cannot choose: neither its decision nor the ID of its trace counts."""
    for _ in range(80):
        await tracer.seen("/5", context)
    # 0.5 in 80: less than 10 or more than 70 has a probability below 1e-11.
    assert 10 <= len(await tracer.spans()) <= 70


async def test_access_log_has_the_trace_of_the_span() -> None:
    program, log = tracing_nginx(), AccessLog()
    async with collectors.collecting() as collector, backend("one") as endpoint:
        config = gateway(endpoint, collector.port)
        settings = msgspec.structs.replace(config.settings, access_log=log)
        config = msgspec.structs.replace(config, settings=settings)
        async with tracing(program, config, collector) as tracer:
            await tracer.seen("/0")
            (span,) = await collector.matching(1)
            output = tracer.directory / "output"
            await until(lambda: asyncio.to_thread(lambda: "\n" in output.read_text()))
            assert msgspec.json.decode(output.read_text().splitlines()[0])["trace_id"] == span.trace


@pytest.mark.parametrize("fault", ["absent", "slow"])
async def test_requests_succeed_whatever_the_collector_does(fault: str) -> None:
    program = tracing_nginx()
    async with collectors.collecting() as collector, backend("one") as endpoint:
        collector.delay = 3600.0 if fault == "slow" else 0.0
        if fault == "absent":
            await collector.stop()
        async with tracing(program, gateway(endpoint, collector.port), collector) as tracer:
            for _ in range(200):
                await tracer.seen("/0")
            if fault == "slow":
                # More spans than may wait are dropped.
                assert len(collector.spans) < 200
                return
            await collector.start()

            async def is_exported() -> bool:
                await tracer.seen("/3")
                return any(span.name == "100% of $it" for span in collector.spans)

            await until(is_exported)


@pytest.mark.skipif(not collector_process.executable().exists(), reason="run `make collector`")
@pytest.mark.parametrize("trusted", [True, False])
async def test_collector_is_verified_with_the_ca_certificates_that_are_set(
    tmp_path: Path, trusted: bool
) -> None:
    program, authority, port = tracing_nginx(), Authority(tmp_path), free_port()
    stranger = Authority(tmp_path, "stranger")
    certificate = authority.issue("collector", ADDRESS)
    bundle = TrustBundle("ca", (authority if trusted else stranger).pem)
    async with (
        backend("one") as endpoint,
        collector_process.running_collector(tmp_path, port, certificate) as real,
    ):
        config = gateway(endpoint, port, tls=True, trust="ca")
        config = msgspec.structs.replace(config, trust_bundles=(bundle,))
        async with tracing(program, config, real) as tracer:
            await tracer.seen("/0")
            if trusted:
                assert [span.name for span in await real.matching(1)] == ["ns/r0/0"]
                return
            errors = tracer.directory / "error.log"
            await until(
                lambda: asyncio.to_thread(lambda: "OTel export failure" in errors.read_text())
            )
            await real.refresh()
            assert real.spans == []
