"""Traces of requests, as a collector receives them from a real Envoy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fakes import collector_process, collectors, envoy_serving, logged_gateways
from fakes.collectors import ReceivedSpan
from fakes.envoy_serving import Served, backend, host, plain, route_to
from gatehouse.compiler.backends.envoy import EnvoyCapabilities, EnvoyGenerator, names
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.settings import DataPlaneSettings, Settings
from gatehouse.compiler.ir.tracing import SpanAttribute, TraceExport, Tracing
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL

pytestmark = pytest.mark.process

POLICY = Origin("ObservabilityPolicy", "ns", "traces")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


HOSTILE = 'a "b" %REQ(X)% $1 \\ ${x} ; }'


def traced(number: int, *, path: str = "", name: str = "", **more: Any) -> ir.Route:
    """Return a route with traces at ``/<number>``."""
    tracing = Tracing(**{"percent": 100, "origin": POLICY, **more})
    path, name = path or f"/{number}", name or f"r{number}"
    return route_to("c", f"ns/{name}/0/0", path, settings=Settings(tracing=tracing))


ROUTES = (
    traced(0, context="propagate", attributes=(SpanAttribute("team", HOSTILE),)),
    traced(1, context="extract"),
    traced(2, percent=0, parent_percent=100, context="propagate"),
    traced(3, span_name="100% of it"),
    traced(4, percent=0, context="propagate"),
    traced(5, percent=50, context="propagate"),
    traced(6, percent=100, path="/last", name="last"),
    traced(7, parent_percent=100, context="propagate"),
    traced(8, parent_percent=0, context="propagate"),
    route_to("c", "ns/untraced/0/0", "/untraced"),
)


def gateway(
    endpoint: ir.Endpoint, port: int, batch_count: int = 1000, **more: Any
) -> GatewayConfiguration:
    """Return a gateway whose routes are served for an exact hostname and for all others.

    Its Envoy drops spans while ``batch_count`` exports wait for the collector.
    """
    export = TraceExport(
        "127.0.0.1", port, "gatehouse:ns:gw", interval=0.1, batch_size=1, batch_count=batch_count,
        **{
            "attributes": (SpanAttribute("site", "north"),),
            "origin": Origin("NginxProxy", "", "p"),
            **more,
        },
    )  # fmt: skip
    return plain(
        [host("a.example", *ROUTES), host("", *ROUTES)],
        [ir.Cluster("c", (endpoint,))],
        settings=DataPlaneSettings(traces=export),
    )


@pytest.fixture
async def collector() -> AsyncIterator[collectors.InProcessCollector]:
    async with collectors.collecting() as running:
        yield running


@pytest.fixture
async def served(collector: collectors.InProcessCollector) -> AsyncIterator[Served]:
    async with (
        backend("one") as endpoint,
        envoy_serving.serving(gateway(endpoint, collector.port)) as running,
    ):
        yield running


async def seen(served: Served, name: str, path: str, traceparent: str = "") -> dict[str, str]:
    """Return the context that the backend gets, and the internal headers, of which there are none.

    A request with ``traceparent`` has ``tracestate``, too.
    """
    headers = {"traceparent": traceparent, "tracestate": "a=b"} if traceparent else {}
    status, _, view = await served.ask(name, path, headers=headers)
    assert status == 200
    received = {key.lower(): value for key, value in view["headers"]}
    return {key: value for key, value in received.items() if key.startswith(("trace", "x-gh-"))}


EXACT, WIDE = "a.example", "b.example"


async def after(collector: collectors.InProcessCollector, served: Served) -> list[ReceivedSpan]:
    """Return the spans so far: Envoy sends those of this request after them."""
    await seen(served, WIDE, "/last")
    await collector.matching(1, lambda span: span.name == "ns/last/0")
    spans = [span for span in collector.spans if span.name != "ns/last/0"]
    collector.spans.clear()
    return spans


@pytest.mark.parametrize("name", [EXACT, WIDE])
async def test_spans_name_route_gateway_listener_and_attributes(
    served: Served, collector: collectors.InProcessCollector, name: str
) -> None:
    await seen(served, name, "/0?token=secret")
    spans = await collector.matching(2 if name == EXACT else 1)
    # Envoy does not know the route of a request for another hostname on arrival.
    assert {span.kind for span in spans} == {"client"} | ({"server"} if name == EXACT else set())
    for span in spans:
        assert span.name == "ns/r0/0"
        assert span.resource["service.name"] == "gatehouse:ns:gw"
        assert {
            "gatehouse.route": "ns/r0/0",
            "gatehouse.gateway": "ns/gw",
            "gatehouse.listener": "ns/gw:8080",
            "http.status_code": "200",
            "site": "north",
            "team": HOSTILE,
        }.items() <= span.attributes.items()
        assert not [value for value in span.attributes.values() if "secret" in value]
    if name == EXACT:
        client, server = sorted(spans, key=lambda span: span.kind)
        assert (client.trace, client.parent) == (server.trace, server.span)
        assert server.attributes["http.url"] == f"http://{name}/0"


@pytest.mark.parametrize("name", [EXACT, WIDE])
async def test_upgrade_has_spans_of_attempts_only(
    served: Served, collector: collectors.InProcessCollector, name: str
) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert (await served.ask(name, "/0", headers=upgrade))[0] == 200
    assert [(span.kind, span.name) for span in await after(collector, served)] == [
        ("client", "ns/r0/0")
    ]


@pytest.mark.parametrize("hostname", [EXACT, "*.example", ""])
def test_missing_spans_of_requests_are_reported(hostname: str) -> None:
    endpoint = ir.Endpoint("127.0.0.1", 9)
    routes = (traced(0, context="propagate"), traced(4, percent=0), ROUTES[-1])
    configuration = plain([host(hostname, *routes)], [ir.Cluster("c", (endpoint,))])
    findings = EnvoyGenerator(EnvoyCapabilities()).generate(configuration).unsupported
    settings = [(finding.setting.part, finding.served) for finding in findings]
    assert settings == ([] if hostname == EXACT else [("tracing", True)])


@pytest.mark.parametrize("name", [EXACT, WIDE])
async def test_propagated_context_continues_the_trace_of_the_client(
    served: Served, collector: collectors.InProcessCollector, name: str
) -> None:
    headers = await seen(served, name, "/0", SAMPLED)
    spans = await collector.matching(2 if name == EXACT else 1)
    (client,) = [span for span in spans if span.kind == "client"]
    assert headers == {"traceparent": f"00-{TRACE}-{client.span}-01", "tracestate": "a=b"}
    assert client.trace == TRACE
    if name == EXACT:
        (server,) = [span for span in spans if span.kind == "server"]
        assert (server.trace, server.parent) == (TRACE, PARENT)


@pytest.mark.parametrize("name", [EXACT, WIDE])
async def test_propagated_context_begins_a_trace(
    served: Served, collector: collectors.InProcessCollector, name: str
) -> None:
    headers = await seen(served, name, "/0")
    (client,) = [span for span in await collector.matching(1) if span.kind == "client"][:1]
    assert headers == {"traceparent": f"00-{client.trace}-{client.span}-01"}


@pytest.mark.parametrize("name", [EXACT, WIDE])
@pytest.mark.parametrize("path", ["/1", "/3", "/4", "/untraced"])
@pytest.mark.parametrize("context", ["", SAMPLED, UNSAMPLED, "hostile"])
async def test_backend_gets_the_context_of_the_client_unless_the_policy_sends_one(
    served: Served, name: str, path: str, context: str
) -> None:
    headers = await seen(served, name, path, context)
    assert headers == ({"traceparent": context, "tracestate": "a=b"} if context else {})


@pytest.mark.parametrize("name", [EXACT, WIDE])
async def test_only_requests_of_traced_routes_have_spans(
    served: Served, collector: collectors.InProcessCollector, name: str
) -> None:
    for path in ("/4", "/untraced", "/missing"):
        for context in ("", SAMPLED):
            await served.ask(name, path, headers={"traceparent": context} if context else {})
    assert await after(collector, served) == []
    await seen(served, name, "/1")
    assert {span.name for span in await after(collector, served)} == {"ns/r1/0"}


@pytest.mark.parametrize("name", [EXACT, WIDE])
async def test_parent_strategy_follows_the_client(
    served: Served, collector: collectors.InProcessCollector, name: str
) -> None:
    for context in ("", UNSAMPLED, f"00-{TRACE}-{PARENT}-02", "hostile-01"):
        await seen(served, name, "/2", context)
    assert await after(collector, served) == []
    for context in (SAMPLED, f"00-{TRACE}-{PARENT}-03"):
        await seen(served, name, "/2", context)
        spans = await after(collector, served)
        assert {span.trace for span in spans} == {TRACE}


async def test_collector_may_have_known_addresses_and_another_name(
    collector: collectors.InProcessCollector,
) -> None:
    """A name that does not exist: it is not resolved. An address without collector is no harm."""
    addresses = (("127.0.0.1", collector.port), ("127.0.0.9", 9))
    async with backend("one") as endpoint:
        configuration = gateway(endpoint, collector.port, addresses=addresses)
        export = configuration.settings.traces
        assert export is not None
        export = msgspec.structs.replace(export, host="collector.invalid")
        configuration = msgspec.structs.replace(
            configuration, settings=DataPlaneSettings(traces=export)
        )
        async with envoy_serving.serving(configuration) as running:

            async def is_received() -> bool:
                await running.ask(EXACT, "/3")
                return bool(collector.spans)

            await running.until(is_received)


@pytest.mark.parametrize("name", [EXACT, WIDE])
@pytest.mark.parametrize("path", ["/7", "/8"])
async def test_share_of_new_traces_is_not_that_of_traced_clients(
    served: Served, collector: collectors.InProcessCollector, name: str, path: str
) -> None:
    """Both routes trace all requests without a context, and one those that their client traces."""
    for context in (UNSAMPLED, "hostile", *([SAMPLED] if path == "/8" else [])):
        await seen(served, name, path, context)
    assert await after(collector, served) == []
    for context in ("", *([SAMPLED] if path == "/7" else [])):
        await seen(served, name, path, context)
        assert len({span.trace for span in await after(collector, served)}) == 1


SOURCES = (
    ("user", "X-User", "header", "ann"),
    ("absent", "X-Absent", "header", None),
    ("method", "http.request.method", "semantic", "GET"),
    ("status", "http.response.status_code", "semantic", "200"),
    ("path", "url.path", "semantic", "/3"),
    ("query", "url.query", "semantic", None),
    ("sent", "http.request.header.x-user", "semantic", "ann"),
    ("hostile", "http.request.header.x%)%", "semantic", None),
)


async def test_attributes_of_all_spans_have_values_of_the_request(
    collector: collectors.InProcessCollector,
) -> None:
    attributes = tuple(
        SpanAttribute(key, value, source, POLICY.field(key))  # type: ignore[arg-type]
        for key, value, source, _ in SOURCES
    )
    headers = (("authorization", 'a "b" $1 ;'),)
    async with (
        backend("one") as endpoint,
        envoy_serving.serving(
            gateway(endpoint, collector.port, attributes=attributes, headers=headers)
        ) as running,
    ):
        await running.ask(EXACT, "/3?a=b", headers={"X-User": "ann"})
        spans = await collector.matching(2)
    for span in spans:
        own = {key: span.attributes.get(key) for key, *_ in SOURCES}
        assert own == {key: value for key, _, _, value in SOURCES}
    assert collector.headers["authorization"] == 'a "b" $1 ;'
    unsupported = {finding.setting.part for finding in running.generated.unsupported}
    assert {"query", "hostile"} <= unsupported
    assert not unsupported & {"user", "absent", "method", "status", "path", "sent"}


@pytest.mark.parametrize("name", [EXACT, WIDE])
@pytest.mark.parametrize("context", ["", UNSAMPLED])
async def test_ratio_traces_about_its_share(
    served: Served, collector: collectors.InProcessCollector, name: str, context: str
) -> None:
    for _ in range(80):
        # A client cannot choose: the header of the sample is replaced.
        headers = {"X-Gh-Sample": "0", "X-Request-ID": "0", "X-Client-Trace-Id": "1"}
        await served.ask(
            name, "/5", headers=headers | ({"traceparent": context} if context else {})
        )
    spans = [span for span in await after(collector, served) if span.kind == "client"]
    # 0.5 in 80: less than 10 or more than 70 has a probability below 1e-11.
    assert 10 <= len(spans) <= 70


async def test_access_log_has_the_trace_that_envoy_begins() -> None:
    async with (
        collectors.collecting() as collector,
        backend("one") as endpoint,
        logged_gateways.logged("envoy", gateway(endpoint, collector.port)) as running,
        aiohttp.ClientSession() as session,
    ):
        url = f"http://{running.address}:8080/0"
        async with session.get(url, headers={"Host": EXACT}) as answer:
            assert answer.status == 200
        entry = await running.entry(path="/0")
        spans = await collector.matching(1)
        assert entry["trace_id"] == spans[0].trace


async def test_route_and_policy_change_leaves_listener_as_it_is(
    served: Served, collector: collectors.InProcessCollector
) -> None:
    before = served.generated.resources
    async with backend("one") as endpoint:
        changed = gateway(endpoint, collector.port)
        routes = (traced(0, percent=10, span_name="other"), *ROUTES[1:])
        hosts = (host("", *routes), host("a.example", *ROUTES))
        listener = msgspec.structs.replace(changed.listeners[0], virtual_hosts=hosts)
        await served.serve(msgspec.structs.replace(changed, listeners=(listener,)))
    kinds = {key[0] for key in served.generated.resources.differing(before)}
    assert LISTENER_TYPE_URL not in kinds
    assert kinds


@pytest.mark.long
@pytest.mark.skipif(not collector_process.executable().exists(), reason="run `make collector`")
async def test_real_collector_receives_the_same_spans(tmp_path: Path) -> None:
    """The collector in this process is a fake; this one is that of OpenTelemetry."""
    async with collectors.collecting() as fake:
        port = fake.port
        await fake.stop()
        async with (
            backend("one") as endpoint,
            collector_process.running_collector(tmp_path, port) as real,
            envoy_serving.serving(gateway(endpoint, port)) as served,
        ):
            sent = [await seen(served, EXACT, "/0", SAMPLED), await seen(served, EXACT, "/3")]
            received = await real.matching(4)
        await fake.start()
        async with (
            backend("one") as endpoint,
            envoy_serving.serving(gateway(endpoint, port)) as served,
        ):
            await seen(served, EXACT, "/0", SAMPLED)
            await seen(served, EXACT, "/3")
            expected = await fake.matching(4)
    assert {span.trace for span in received if span.name == "ns/r0/0"} == {TRACE}
    assert sent[0]["traceparent"].split("-")[2] in {span.span for span in received}
    assert _comparable(received) == _comparable(expected)
    assert {"gatehouse.route", "gatehouse.gateway", "gatehouse.listener"} <= set(
        received[0].attributes
    )


_DIFFERENT = ("upstream_address", "peer.address", "guid:x-request-id")
"""Attributes with ports that differ in each run."""


def _comparable(spans: list[ReceivedSpan]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (span.name, span.kind, bool(span.parent), dict(span.resource)["service.name"]),
            sorted((k, v) for k, v in span.attributes.items() if k not in _DIFFERENT),
        )
        for span in spans
    )


@pytest.mark.parametrize("fault", ["absent", "slow", "killed"])
async def test_requests_succeed_whatever_the_collector_does(fault: str) -> None:
    async with collectors.collecting() as collector, backend("one") as endpoint:
        port = collector.port
        collector.delay = 3600.0 if fault == "slow" else 0.0
        if fault == "absent":
            await collector.stop()
        async with envoy_serving.serving(gateway(endpoint, port, batch_count=4)) as served:
            for number in range(300):
                if number == 100 and fault == "killed":
                    assert collector.spans
                    await collector.stop()
                status, _, _ = await served.ask(EXACT, "/0")
                assert status == 200
            if fault == "slow":
                # The number of exports that wait is limited; Envoy drops further spans.
                assert await _counter(
                    served, f"cluster.{names.TRACE_COLLECTOR}.upstream_rq_active_overflow"
                )
                assert await _counter(served, "tracing.opentelemetry.spans_sent") > 300
                return
            await collector.start()
            await served.until(lambda: _is_exported(served, collector))


async def _counter(served: Served, name: str) -> int:
    connector = aiohttp.UnixConnector(str(served.running.admin))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://envoy/stats", params={"filter": f"^{name}$"}) as answer,
    ):
        return int((await answer.text()).rpartition(":")[2])


async def _is_exported(served: Served, collector: collectors.InProcessCollector) -> bool:
    await served.ask(EXACT, "/3")
    return any(span.name == "100% of it" for span in collector.spans)


async def test_spans_are_exported_in_batches() -> None:
    async with collectors.collecting() as collector, backend("one") as endpoint:
        config = gateway(endpoint, collector.port)
        export = config.settings.traces
        assert export is not None
        export = msgspec.structs.replace(export, batch_size=20, interval=60.0)
        settings = msgspec.structs.replace(config.settings, traces=export)
        config = msgspec.structs.replace(config, settings=settings)
        async with envoy_serving.serving(config) as served:
            # Each worker of Envoy has a batch of its own.
            for _ in range(200):
                await served.ask(EXACT, "/0")
            await collector.matching(20)
        assert all(number >= 20 for number in collector.exports)
        assert sum(collector.exports) <= 400
