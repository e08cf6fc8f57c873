"""Metrics of a real Envoy for requests to kube-apiservers, and their bounds."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio
import yarl

from fakes import patience
from fakes.durations import last
from fakes.kube_serving import ALL, EVERYTHING, HOST, World, world
from gatehouse.agent.envoy import kube_metrics
from gatehouse.agent.envoy.metrics import CONVERTED, FAMILIES
from gatehouse.compiler.backends.envoy.kube_apiserver import stats
from gatehouse.compiler.ir import kube_apiserver as ir

pytestmark = pytest.mark.process

OTHER = "b.kube.test"

PAGE, RAW_PAGE = (
    f"http://envoy/stats/prometheus?usedonly&filter={quote(chosen, safe='')}"
    for chosen in (CONVERTED, FAMILIES)
)
"""The requests of an agent."""


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as proxy:
        yield proxy


Series = dict[str, float]


async def counted(one: World, family: str) -> Series:
    """Scrape like an agent; return the values of a metric family by labels."""
    connector = aiohttp.UnixConnector(str(one.directory / "admin.sock"))
    async with (
        aiohttp.ClientSession(connector=connector) as http,
        http.get(yarl.URL(PAGE, encoded=True)) as answer,
    ):
        text = kube_metrics.convert(await answer.text())
    samples = re.findall(rf"^gatehouse_kube_{family}{{(.*)}} (\S+)$", text, re.M)
    return {labels: float(value) for labels, value in samples}


async def until(one: World, family: str, expected: Series) -> None:
    """Wait until a family has exactly these values: requests are counted after their response."""
    await patience.until_equal(lambda: counted(one, family), expected)


def labels(**values: str) -> str:
    return ",".join(f'{name}="{value}"' for name, value in values.items() if value)


def about(one: World, verb: str, resource: str, code: str = "200", schema: str = "") -> str:
    server = f"127.0.0.1:{one.upstream.port}"
    return labels(
        cluster=HOST, verb=verb, resource=resource, schema=schema, code=code, server=server
    )


REQUESTS = [
    ("GET", "/api/v1/pods", "list", "pods"),
    ("GET", "/api/v1/namespaces/n/pods/p", "get", "pods"),
    ("DELETE", "/api/v1/namespaces/n/pods", "deletecollection", "pods"),
    ("PUT", "/apis/apps/v1/namespaces/n/deployments/d/scale", "update", "deployments/scale"),
    ("GET", "/api/v1/namespaces/n/pods/p/log", "connect", "pods/log"),
    ("GET", "/apis/example.com/v1/things", "list", "things"),
    ("GET", "/apis/example.com/v1/strangers", "list", "other"),
    ("GET", "/api/v1/namespaces/n/pods/p/nothing", "get", "other"),
    ("GET", "/apis/example.com/v1/a%22%5C%0A", "list", "other"),
    ("GET", "/version", "get", "nonresource"),
    ("POST", "/whatever/" + "x" * 100, "post", "nonresource"),
    ("PROPFIND", "/", "other", "nonresource"),
]


async def test_metric_labels_are_bounded_for_client_input(one: World) -> None:
    named = ir.DispatchRule(
        ir.ANY, ir.ANY, ir.ANY, ir.ANY, ir.Names(("a\"\\\n", "things")), ir.ANY, ir.NONE
    )  # fmt: skip
    await one.serve(one.cluster(ir.DispatchPolicy((named,)), ALL))
    expected: Series = {}
    for method, path, verb, resource in REQUESTS:
        assert (await one.ask(one.client("alice-of-users"), path, method)).status == 200
        key = about(one, verb, resource)
        expected[key] = expected.get(key, 0.0) + 1
    await until(one, "requests_total", expected)
    assert await counted(one, "rejected_requests_total") == {}
    verbs: Series = {}
    for _, _, verb, _ in REQUESTS:
        key = labels(cluster=HOST, verb=verb)
        verbs[key] = verbs.get(key, 0.0) + 1
    # Envoy aggregates the histograms of its workers every five seconds.
    await until(one, "request_duration_seconds_count", verbs)
    buckets = await counted(one, "request_duration_seconds_bucket")
    listed = labels(cluster=HOST, verb="list")
    ours = [value for key, value in buckets.items() if key.startswith(f"{listed},le=")]
    assert ours == sorted(ours)
    assert ours[-1] == buckets[f'{listed},le="+Inf"'] == verbs[listed]
    seconds = await counted(one, "request_duration_seconds_sum")
    assert 0 < seconds[listed] < 20


async def test_metrics_have_response_codes_of_clients(one: World) -> None:
    await one.serve(one.cluster())
    upgrade = ("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")
    path = "/api/v1/namespaces/n/pods/refused/attach"
    assert (await one.ask(one.client("alice"), path, "GET", *upgrade)).status == 403
    await until(one, "requests_total", {about(one, "connect", "pods/attach", "403"): 1})
    # This code came from a server, not from the gateway.
    assert await counted(one, "rejected_requests_total") == {}


async def test_rejection_metrics_have_reasons(one: World) -> None:
    def policy(resource: str, schema: str = "", *servers: str) -> ir.DispatchPolicy:
        rule = ir.DispatchRule(
            ir.ANY, ir.ANY, ir.ANY, ir.ANY, ir.Names((resource,)), ir.ANY, ir.NONE
        )  # fmt: skip
        return ir.DispatchPolicy((rule,), servers, schema)

    none = ir.FlowSchema('no"ne', ir.InFlight(0))
    slow = ir.FlowSchema("slow", ir.TokenBucket(1, 1))
    cluster = one.cluster(
        policy("pods", none.name), policy("nodes", "slow"), policy("secrets", "", "away"),
        schemas=(none, slow), identity=ir.AuthCacheTTLs(anonymous=False),
    )  # fmt: skip
    denied = one.cluster(name='%REQ(:path)%|"\\', hosts=(OTHER,), denied=True)
    await one.serve(cluster, denied)
    alice = one.client("alice")
    codes = [
        (await one.ask(alice, "/api/v1/pods")).status,
        *[(await one.ask(alice, "/api/v1/nodes")).status for _ in range(3)][1:],
        (await one.ask(alice, "/api/v1/secrets")).status,
        (await one.ask(alice, "/api/v1/services")).status,
        (await one.ask(alice, "/api/v1/%zz")).status,
        (await one.ask(alice, host="other.test")).status,
        (await one.ask(one.client())).status,
        (await one.ask(alice, sni=OTHER, host=OTHER)).status,
    ]
    assert codes == [429, 429, 429, 503, 403, 400, 421, 401, 429]
    expected = {
        labels(cluster=HOST, schema='no\\"ne', reason="limit_in_flight"): 1,
        labels(cluster=HOST, schema="slow", reason="limit_rate"): 2,
        labels(cluster=HOST, reason="no_ready_server"): 1,
        labels(cluster=HOST, reason="forbidden"): 1,
        labels(cluster=HOST, reason="bad_request"): 1,
        labels(cluster=HOST, reason="misdirected"): 1,
        labels(cluster=HOST, reason="unauthorized"): 1,
        labels(cluster='%REQ(:path)%|\\"\\\\', reason="denied"): 1,
    }
    await until(
        one, "rejected_requests_total", {key: float(value) for key, value in expected.items()}
    )


async def test_long_running_requests_are_counted_while_active(
    one: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "STATS_PERIOD_SECONDS", 0.6)
    schema = ir.FlowSchema("s", ir.InFlight(9))
    logged = ir.DispatchPolicy((EVERYTHING,), schema="s", logged=True)
    await one.serve(one.cluster(logged, schemas=(schema,)))
    watches = []
    for _ in range(2):
        watches.append(await one.connect(one.client("alice")))
        watches[-1].send("/api/v1/pods?watch=true", "GET")
        await watches[-1].head()
    slow = await one.connect(one.client("alice"))
    slow.send("/api/v1/namespaces/n/secrets/slow", "GET")
    server = f"127.0.0.1:{one.upstream.port}"
    watching = labels(cluster=HOST, verb="watch", resource="pods", schema="s")
    waiting = labels(cluster=HOST, verb="get", resource="secrets", schema="s")
    await until(one, "longrunning_requests", {watching: 2, waiting: 1})
    flight = {
        labels(cluster=HOST, server=server): 2.0,
        labels(cluster=HOST, schema="s", server=server): 1.0,
    }
    await until(one, "inflight_requests", flight)
    # It is counted once, regardless of its periods; it is neither a finished request nor logged.
    await last(2.5 * stats.STATS_PERIOD_SECONDS)
    assert await counted(one, "longrunning_requests") == {watching: 2, waiting: 1}
    assert await counted(one, "requests_total") == {}
    assert one.log() == []
    watches[0].close()
    one.upstream.release()
    await until(one, "longrunning_requests", {watching: 1, waiting: 0})
    await until(one, "inflight_requests", {label_names: 1.0 if "schema" not in label_names else 0.0
                                            for label_names in flight})  # fmt: skip
    ended = {about(one, "watch", "pods", schema="s"): 1.0,
             about(one, "get", "secrets", schema="s"): 1.0}  # fmt: skip
    await until(one, "requests_total", ended)


async def test_server_health_metric_follows_readiness(one: World) -> None:
    away = ir.KubeApiServer("https://away", "127.0.0.1", 1)
    here = ir.KubeApiServer("https://one", "127.0.0.1", one.upstream.port)
    await one.serve(one.cluster(servers=(away, here)))
    server = labels(cluster=HOST, server=f"127.0.0.1:{one.upstream.port}")
    gone = labels(cluster=HOST, server="127.0.0.1:1")
    await until(one, "server_healthy", {gone: 0, server: 1})
    one.upstream.ready = False
    await until(one, "server_healthy", {gone: 0, server: 0})


async def test_removed_cluster_removes_its_series() -> None:
    async with world(drain=1) as one:
        other = one.cluster(name=OTHER, hosts=(OTHER,))
        await one.serve(one.cluster(), other)
        for host in (HOST, OTHER):
            assert (await one.ask(one.client("alice"), sni=host, host=host)).status == 200
        both = {about(one, "list", "pods"), about(one, "list", "pods").replace(HOST, OTHER)}
        await until(one, "requests_total", dict.fromkeys(both, 1.0))
        await one.serve(one.cluster())
        await until(one, "requests_total", {about(one, "list", "pods"): 1})
        await until(one, "request_duration_seconds_count", {labels(cluster=HOST, verb="list"): 1})
        server = f"127.0.0.1:{one.upstream.port}"
        await until(one, "server_healthy", {labels(cluster=HOST, server=server): 1})


async def test_metrics_of_a_cluster_are_bounded(
    one: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stats._LIMITS, "max_counters", 3)
    await one.serve(one.cluster())
    connection = await one.connect(one.client("alice"))
    for resource in ("pods", "secrets", "nodes", "services", "endpoints", "leases"):
        assert (await connection.ask(f"/api/v1/{resource}")).status == 200
    await connection.ask("/api/v1/pods")
    expected = {
        about(one, "list", resource_name): 1.0 for resource_name in ("pods", "secrets", "nodes")
    }
    expected[about(one, "list", "pods")] = 2.0
    await until(one, "requests_total", expected)


async def test_metric_names_do_not_contain_cluster_names(one: World) -> None:
    limits = (ir.FlowSchema("s.limit", ir.InFlight(5)),)
    await one.serve(one.cluster(ir.DispatchPolicy((EVERYTHING,), schema="s.limit"), schemas=limits))
    assert (await one.ask(one.client("alice"))).status == 200
    connector = aiohttp.UnixConnector(str(one.directory / "admin.sock"))
    async with (
        aiohttp.ClientSession(connector=connector) as http,
        http.get(yarl.URL(RAW_PAGE, encoded=True)) as answer,
    ):
        text = await answer.text()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    assert {"envoy_http_downstream_rq_total", "envoy_cluster_upstream_rq_total"} <= names
    assert not [name for name in names if "test" in name or "s_limit" in name]
