"""A failure of a back end costs the object that it is about, never the compile pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.one_route import BACKEND, GATEWAY, engine
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.backends.envoy import actions as envoy_actions
from gatehouse.compiler.backends.envoy import clusters as envoy_clusters
from gatehouse.compiler.backends.nginx import actions as nginx_actions
from gatehouse.compiler.backends.nginx import upstreams as nginx_upstreams
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin

NGINX = nginx.NginxCapabilities.parse("1.31.3", ("http_v2_module", "http_ssl_module"))
ENVOY = envoy.EnvoyCapabilities()

Generate = Callable[[ir.GatewayConfiguration], tuple[Unsupported, ...]]


def to_nginx(gateway: ir.GatewayConfiguration) -> tuple[Unsupported, ...]:
    return nginx.NginxGenerator(NGINX).generate(gateway).unsupported


def to_envoy(gateway: ir.GatewayConfiguration) -> tuple[Unsupported, ...]:
    return envoy.EnvoyGenerator(ENVOY).generate(gateway).unsupported


def compiled(rules: list[dict[str, Any]], *, ready: bool = True) -> ir.GatewayConfiguration:
    """Return the configuration of a route. The Services ``s`` and ``t`` have an endpoint."""
    ports = {"ports": [{"name": "p", "port": 80, "protocol": "TCP"}]}
    engine_with_route = engine("HTTPRoute", rules, (("Service", "n", "t"), ports))
    for service in ("s", "t"):
        labels = {"kubernetes.io/service-name": service}
        endpoint_slice = {
            "metadata": {"name": f"{service}-1", "namespace": "n", "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}],
        }
        value = gateway_api.decode_gateway_api_object("EndpointSlice", endpoint_slice)
        engine_with_route.commit({("EndpointSlice", "n", f"{service}-1"): value})
    with engine_with_route.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    return gateway


def rule(path: str) -> dict[str, Any]:
    return {"matches": [{"path": {"value": path}}], "backendRefs": [BACKEND]}


@pytest.mark.parametrize(
    ("generate", "module", "function"),
    [(to_nginx, nginx_actions, "action_locations"), (to_envoy, envoy_actions, "apply_action")],
)
def test_defect_in_the_action_of_a_route_is_a_finding_about_that_route(
    generate: Generate, module: Any, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = getattr(module, function)

    def defective(*arguments: Any) -> Any:
        if any("/bad" in repr(argument) for argument in arguments):
            raise KeyError("missing")
        return serve(*arguments)

    monkeypatch.setattr(module, function, defective)
    (finding,) = generate(compiled([rule("/bad"), rule("/good")]))
    assert finding.origin == Origin("HTTPRoute", "n", "r", "rules[0].matches[0]")
    assert finding.reason == "internal error: KeyError: 'missing'"


@pytest.mark.parametrize(
    ("generate", "module", "function"),
    [(to_nginx, nginx_upstreams, "upstream"), (to_envoy, envoy_clusters, "build_cluster")],
)
def test_defect_in_a_cluster_is_a_finding_about_its_service(
    generate: Generate, module: Any, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(*_: Any, **__: Any) -> Any:
        raise KeyError("missing")

    monkeypatch.setattr(module, function, defective)
    (finding,) = generate(compiled([rule("/good")]))
    assert finding.origin == Origin("Service", "n", "s")


@pytest.mark.parametrize("generate", [to_nginx, to_envoy])
def test_lone_surrogate_is_a_finding_about_its_route(generate: Generate) -> None:
    findings = generate(compiled([rule("/\ud800"), rule("/good")]))
    assert {finding.origin for finding in findings} == {
        Origin("HTTPRoute", "n", "r", "rules[0].matches[0]")
    }


@pytest.mark.parametrize(
    "generator", [nginx.NginxGenerator(NGINX), envoy.EnvoyGenerator(ENVOY)], ids=["nginx", "envoy"]
)
def test_backend_that_leaves_a_route_is_no_failure(
    generator: nginx.NginxGenerator | envoy.EnvoyGenerator,
) -> None:
    """At the end of a canary the common upstream goes together with the cluster of one backend."""
    canary = [{**BACKEND, "weight": 2}, {"name": "t", "port": 80, "weight": 1}]
    with capture_logs() as logs:
        for backends in (canary, [BACKEND], canary):
            generator.generate(compiled([{"backendRefs": backends}]))
    assert logs == []


@pytest.mark.parametrize(
    "generator", [nginx.NginxGenerator(NGINX), envoy.EnvoyGenerator(ENVOY)], ids=["nginx", "envoy"]
)
@pytest.mark.parametrize(
    "rule",
    [
        {"backendRefs": [BACKEND, {"name": "t", "port": 80}]},
        {"backendRefs": [BACKEND], "sessionPersistence": {"sessionName": "s"}},
    ],
    ids=["weights", "session"],
)
def test_backends_without_ready_endpoints_are_no_failure(
    generator: nginx.NginxGenerator | envoy.EnvoyGenerator, rule: dict[str, Any]
) -> None:
    """The last ready endpoint of a Service goes, for example, with its namespace."""
    with capture_logs() as logs:
        for ready in (True, False, True):
            generator.generate(compiled([rule], ready=ready))
    assert logs == []
