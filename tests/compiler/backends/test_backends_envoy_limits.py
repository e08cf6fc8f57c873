"""Values beyond the limits of Envoy's API are findings, and Envoy accepts the rest."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import envoy_rules, envoys
from fakes.origins import match_of
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir import kube_apiserver as ir_kubernetes
from gatehouse.dataplane.origin import Origin

CLUSTER_ORIGIN = Origin("UpstreamCluster", "", "kube")
FORWARD = ir.Forward((ir.Backend("c"),))
PLAIN = ir.Cluster("c", (ir.Endpoint("10.0.0.1", 80),))


def route(*fields: Any, **named: Any) -> ir.Route:
    """Build a route with the name ``ns/r/0/0``."""
    return ir.Route("ns/r/0/0", *fields, **{"origin": match_of("ns/r/0/0"), **named})


def of_route(route: ir.Route) -> ir_gateway.GatewayConfiguration:
    beside = ir.Route("ns/beside/0/0", ir.Match(ir.PathPrefix("/beside")), FORWARD)
    host = ir.VirtualHost("h.example", (route, beside))
    listener = ir_gateway.Listener(8080, "HTTP", (host,))
    return ir_gateway.GatewayConfiguration(
        "ns/gw", bind_address="127.0.0.1", listeners=(listener,), clusters=(PLAIN,)
    )


def query_name(size: int) -> ir_gateway.GatewayConfiguration:
    match = ir.Match(ir.PathPrefix("/"), query=(ir.ValueMatch("q" * size, "v"),))
    return of_route(route(match, FORWARD))


def header_name(size: int) -> ir_gateway.GatewayConfiguration:
    edit = ir.HeaderEdit(set=(ir.HeaderValue("n" * size, "v"),))
    return of_route(route(ir.Match(ir.PathPrefix("/")), FORWARD, edit))


def header_value(size: int) -> ir_gateway.GatewayConfiguration:
    edit = ir.HeaderEdit(add=(ir.HeaderValue("x-long", "v" * size),))
    return of_route(route(ir.Match(ir.PathPrefix("/")), FORWARD, edit))


def escaped_header_value(size: int) -> ir_gateway.GatewayConfiguration:
    edit = ir.HeaderEdit(set=(ir.HeaderValue("x-long", "%" * (size // 2) + "v" * (size % 2)),))
    return of_route(route(ir.Match(ir.PathPrefix("/")), FORWARD, edit))


def response_header_value(size: int) -> ir_gateway.GatewayConfiguration:
    edit = ir.HeaderEdit(set=(ir.HeaderValue("x-long", "v" * size),))
    return of_route(route(ir.Match(ir.PathPrefix("/")), FORWARD, response_headers=edit))


def cors_headers(size: int) -> ir_gateway.GatewayConfiguration:
    # Sixty-four names of 254 characters are within the limits of the Gateway API.
    names = ["n" * 254] * 63
    names.append("n" * (size - sum(map(len, names)) - 2 * 63))
    cors = ir.Cors(("https://a.example",), (), headers=tuple(names))
    return of_route(route(ir.Match(ir.PathPrefix("/")), FORWARD, cors=cors))


def server_name(size: int) -> ir_gateway.GatewayConfiguration:
    tls = ir.BackendTls("s" * size, "", names=(ir.SubjectName("dns", "h.example"),))
    cluster = ir.Cluster(
        "secure", (ir.Endpoint("10.0.0.1", 443),), tls=tls, origin=Origin("Service", "ns", "secure")
    )
    gateway = of_route(route(ir.Match(ir.PathPrefix("/")), ir.Forward((ir.Backend("secure"),))))
    return ir_gateway.GatewayConfiguration(
        gateway.name, bind_address=gateway.bind_address, listeners=gateway.listeners,
        clusters=(PLAIN, cluster),
    )  # fmt: skip


def api(cluster: ir_kubernetes.ApiCluster, token: str = "t") -> ir_gateway.GatewayConfiguration:
    secret = ir_gateway.SecretBytes(b"k")
    certificate = ir_gateway.Certificate("c", b"c", secret)
    file = ir_gateway.SecretFile("t", ir_gateway.SecretBytes(token.encode()))
    listener = ir_kubernetes.ApiListener(6443, (cluster,), ("c",))
    return ir_gateway.GatewayConfiguration(
        "ns/gw", api_listeners=(listener,), certificates=(certificate,), secrets=(file,)
    )


def bearer_token(size: int) -> ir_gateway.GatewayConfiguration:
    server = ir_kubernetes.KubeApiServer("https://10.0.0.1", "10.0.0.1", 443)
    cluster = ir_kubernetes.ApiCluster(
        "kube", ("k.example",), (server,), (), token="t", origin=CLUSTER_ORIGIN
    )
    return api(cluster, "t" * (size - len("Bearer ")))


def api_server_name(size: int) -> ir_gateway.GatewayConfiguration:
    server = ir_kubernetes.KubeApiServer("https://10.0.0.1", "10.0.0.1", 443)
    tls = ir_kubernetes.UpstreamTls("s" * size, "trust", "")
    return api(
        ir_kubernetes.ApiCluster(
            "kube", ("k.example",), (server,), (), tls=tls, origin=CLUSTER_ORIGIN
        )
    )


Place = Callable[[int], ir_gateway.GatewayConfiguration]
KUBE = "UpstreamCluster kube"
ROUTE = "HTTPRoute ns/r: spec.rules[0].matches[0]"
LIMITS: dict[Place, tuple[int, str, str]] = {
    query_name: (1024, ROUTE, "the name of a query parameter has 1025 bytes"),
    header_name: (16384, ROUTE, "the name of a header has 16385 bytes"),
    header_value: (16384, ROUTE, "the value of the header x-long has 16385 bytes"),
    escaped_header_value: (16384, ROUTE, "the value of the header x-long has 16385 bytes"),
    response_header_value: (16384, ROUTE, "the value of the header x-long has 16385 bytes"),
    cors_headers: (
        16384, ROUTE, "the value of the header access-control-allow-headers has 16385 bytes",
    ),
    server_name: (
        255, "Service ns/secure", "the server name for TLS to a backend has 256 bytes",
    ),
    bearer_token: (16384, KUBE, "the value of the header authorization has 16385"),
    api_server_name: (
        255, KUBE, "the server name for TLS to a backend has 256 bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", LIMITS, ids=lambda place: place.__name__)
def test_value_beyond_envoy_limit_is_a_finding(place: Place) -> None:
    longest, where, problem = LIMITS[place]
    allowed = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(place(longest))
    assert not allowed.unsupported
    assert not envoy_rules.violations(allowed.resources)
    beyond = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(place(longest + 1))
    assert not envoy_rules.violations(beyond.resources)
    (finding,) = set(beyond.unsupported)
    assert str(finding.origin) == where
    assert problem in finding.reason
    assert finding.reason.endswith(f"Envoy supports at most {longest}")


def test_too_many_header_changes_are_a_finding() -> None:
    edit = ir.HeaderEdit(
        set=tuple(ir.HeaderValue(f"x-{n}", "v") for n in range(1000)),
        add=(ir.HeaderValue("y", ""),),
    )
    generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(
        of_route(route(ir.Match(ir.PathPrefix("/")), FORWARD, edit))
    )
    assert not envoy_rules.violations(generated.resources)
    (finding,) = generated.unsupported
    assert finding.origin == match_of("ns/r/0/0")
    assert finding.reason == "rule changes 1001 headers of a request: Envoy supports at most 950"


@pytest.mark.process
@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize(
    "place",
    [query_name, header_value, cors_headers, server_name],
    ids=lambda builder: builder.__name__,
)
async def test_envoy_accepts_resources_without_too_long_values(place: Place, over: int) -> None:
    generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(
        place(LIMITS[place][0] + over)
    )
    with tempfile.TemporaryDirectory(prefix="ghl-") as directory:
        async with envoys.running(Path(directory)) as running:
            running.ads.publish(generated.resources)
            await running.ads.settled()
            assert [message[:200] for message in running.ads.refused] == []
