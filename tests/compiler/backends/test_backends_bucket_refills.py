"""Changes that refill local token buckets of Envoy, and changes that do not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from fakes.envoy_serving import host, plain, serving
from fakes.kube_serving import EVERYTHING
from gatehouse.compiler.backends.envoy.kube_apiserver import routes
from gatehouse.compiler.ir import http as ir_http
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.compiler.ir.settings import Attribute, RateLimit, RateLimits, Settings

CLUSTER = ir.ApiCluster(
    "a.example",
    ("a.example",),
    (ir.KubeApiServer("https://1", "10.0.0.1", 6443), ir.KubeApiServer("https://2", "10.0.0.2", 1)),
    (
        ir.DispatchPolicy((EVERYTHING,), schema="few"),
        ir.DispatchPolicy((EVERYTHING,), ("https://1",), schema="more"),
    ),
    schemas=(
        ir.FlowSchema("few", ir.TokenBucket(1, 8)),
        ir.FlowSchema("more", ir.TokenBucket(1, 8)),
    ),
)

_Change = Callable[[ir.ApiCluster], ir.ApiCluster]


def _replace(**changes: object) -> _Change:
    return lambda cluster: msgspec.structs.replace(cluster, **changes)


FEW, MORE = CLUSTER.schemas
OWN, OTHER = CLUSTER.policies

KEPT: dict[str, _Change] = {
    "server": _replace(servers=(*CLUSTER.servers, ir.KubeApiServer("https://3", "10.0.0.3", 1))),
    "token": _replace(token="t"),
    "host": _replace(hosts=("a.example", "b.example")),
    "rules": _replace(policies=(msgspec.structs.replace(OWN, rules=()), OTHER)),
    "logging": _replace(policies=(msgspec.structs.replace(OWN, logged=True), OTHER)),
    "policy with the same servers": _replace(policies=(OWN, OWN, OTHER)),
    "subset of another schema": _replace(
        policies=(OWN, msgspec.structs.replace(OTHER, servers=("https://2",)))
    ),
    "other schema": _replace(schemas=(FEW, ir.FlowSchema("more", ir.TokenBucket(2, 2)))),
    "new schema": _replace(schemas=(FEW, MORE, ir.FlowSchema("z", ir.InFlight(1)))),
    "certificate": _replace(certificates=("c",)),
    "client CA": _replace(client_trust="ca"),
    "streams": _replace(streams=1000),
    "brake": _replace(denied=True),
}
REFILLED: dict[str, _Change] = {
    "qps": _replace(schemas=(ir.FlowSchema("few", ir.TokenBucket(2, 8)), MORE)),
    "burst": _replace(schemas=(ir.FlowSchema("few", ir.TokenBucket(1, 9)), MORE)),
    "subset of a policy": _replace(
        policies=(OWN, msgspec.structs.replace(OWN, servers=("https://1",)), OTHER)
    ),
    "path of the servers": _replace(servers=(ir.KubeApiServer("u", "10.0.0.1", 1, "/x"),)),
}


def bucket_of(cluster: ir.ApiCluster) -> bytes:
    """Return the resource with the bucket of schema `few`, which Envoy refills if it changes."""
    (resource,) = (flow for flow in routes.flows(cluster) if flow.name.endswith("few"))
    return resource.body


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
def test_bucket_of_schema_keeps_its_tokens(change: _Change) -> None:
    assert change(CLUSTER) != CLUSTER
    assert bucket_of(change(CLUSTER)) == bucket_of(CLUSTER)


@pytest.mark.parametrize("change", REFILLED.values(), ids=REFILLED)
def test_bucket_of_schema_is_refilled(change: _Change) -> None:
    assert bucket_of(change(CLUSTER)) != bucket_of(CLUSTER)


def limited(rate: int) -> ir_http.Route:
    limit = RateLimit("ns/p/0", (Attribute("http_x_user"),), rate, "minute", 1 << 20, 1, None)
    settings = Settings(rates=RateLimits((limit,), status=429))
    return ir_http.Route("ns/r/0/0", ir_http.Match(), ir_http.Respond(200), settings=settings)


@pytest.mark.process
async def test_rate_limit_of_a_route_is_refilled_only_by_changes_of_its_hostname() -> None:
    other = ir_http.Route("ns/q/0/0", ir_http.Match(ir_http.PathPrefix("/q")), ir_http.Respond(204))
    async with serving(plain([host("a.example", limited(1))])) as served:

        async def passed() -> int:
            """Return how many of four requests pass: the burst is two."""
            headers = {"X-User": "me"}
            statuses = [(await served.ask("a.example", headers=headers))[0] for _ in range(4)]
            return statuses.count(200)

        assert await passed() == 2
        assert await passed() == 0
        await served.serve(plain([host("a.example", limited(1)), host("b.example", other)]))
        assert await passed() == 0
        await served.serve(plain([host("a.example", limited(1), other), host("b.example", other)]))
        # Envoy creates the routes of a hostname again. At most one burst passes for each change.
        assert await passed() == 2
        assert await passed() == 0
