"""Values of an XTelemetryPolicy that users may set, before a real Envoy.

The policy is in the namespace of its Gateway. No NGINX here has the module of traces, so that the
directives for it are read as text.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from fakes.admission import admitted, admitted_objects
from fakes.compiled_objects import engine_with
from fakes.hostile_gateway import CAPABLE_ENVOY
from gatehouse.cli.check_proxies import EnvoyTest, as_tested
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration

Object = dict[str, Any]
SIGNS = "a$b%REQ(X)%'\"{};\\ ${x} %% \\n"
RATE = {"numerator": 1, "denominator": 2147483647}

WORLD = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: c}
spec: {controllerName: gatehouse.dev/envoy}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec: {gatewayClassName: c, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {clusterIP: 10.96.0.9, ports: [{name: http, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: gw}]
  hostnames: [a.example]
  rules: [{backendRefs: [{name: s, port: 80}]}]
"""


def attributes(source: str, field: str, *values: str) -> Object:
    return {
        "attributes": [
            {"name": f"{number}/a:b", "sourceType": source, field: value}
            for number, value in enumerate(values)
        ]
    }


def policy(tracing: Object) -> Object:
    tracing = {"mode": "Enabled", **tracing}
    tracing["provider"] = {"backendRef": {"name": "s", "port": 80}, **tracing.get("provider", {})}
    return {
        "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
        "kind": "XTelemetryPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"}],
            "tracing": tracing,
        },
    }


def compiled(tracing: Object) -> GatewayConfiguration:
    """Return a Gateway with a policy that the API server admits and the compiler serves."""
    objects = [*admitted_objects(WORLD), admitted(yaml.safe_load(yaml.safe_dump(policy(tracing))))]
    engine = engine_with(objects, gateway_api.ControllerSettings(bind="any"))
    with engine.compile() as ask:
        gateway = ask(combined.compile_combined_gateway, ("Gateway", "ns", "gw"))
    assert gateway is not None
    assert gateway.settings.traces is not None
    return as_tested(gateway)


SERVED: dict[str, Object] = {
    "literals": attributes("Literal", "literalValue", SIGNS, "$" * 1024, '"' * 1024, "é" * 1024),
    "many": attributes("Literal", "literalValue", *["\\" * 1024] * 64),
    "headers": attributes("Header", "headerName", "a" * 256, "!#$%&'*+.^_`|~-", "Host", "te"),
    "keys": attributes(
        "Attribute", "attributeKey", "http.request.header.host", "http.response.header.-", "..",
        "http.request.header.", "http.response.header." + "a" * 235, "a" * 256, "url.path",
    ),
    "names": {"serviceName": "a/:." * 63, "spanName": "a/:. " * 51 + "a"},
    "rates": {
        "samplingRate": RATE,
        "parentBasedSampling": {
            "mode": "Enabled",
            "samplingRate": {"numerator": 2147483646, "denominator": 2147483647},
        },
    },
    "exports": {
        "provider": {
            "headers": [
                {"name": f"a.{number}_-", "value": "$\"'{};\\" * 440} for number in range(16)
            ]
        }
    },
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("values", SERVED)
async def test_envoy_accepts_what_the_compiler_accepts_of_a_policy(values: str) -> None:
    generated = envoy.EnvoyGenerator(CAPABLE_ENVOY).generate(compiled(SERVED[values]))
    assert await EnvoyTest(None).rejected_resources(generated.resources) == []


@pytest.mark.parametrize("values", SERVED)
def test_values_are_words_of_the_directives_of_nginx(values: str) -> None:
    """Each line is one directive: a value neither ends it nor begins another one.

    A value that is too long is left out and named.
    """
    able = nginx.NginxCapabilities.parse("1.31.3", traces=True)
    generated = nginx.NginxGenerator(able).generate(compiled(SERVED[values]))
    files, missing = generated.file_set.files, {item.setting.part for item in generated.unsupported}
    assert ("tracing.attributes[1].literalValue" in missing) == (values == "literals")
    lines = files["gatehouse/traces.conf"].content.decode().splitlines()
    known = (
        "endpoint", "interval", "batch_size", "batch_count", "header", "otel_exporter", "}",
        "otel_service_name", "otel_span_name", "otel_span_attr",
    )  # fmt: skip
    for line in lines:
        assert line.strip().split()[0] in known
        assert line.endswith((";", "{", "}"))
