"""Objects of Gateway API as text, served by a real proxy, for tests of the specification."""

from __future__ import annotations

import base64
import contextlib
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from differential.proxies import Runner
from fakes.admission import admitted_objects
from fakes.authorized_traffic import Served
from fakes.compiled_objects import engine_with
from fakes.loopback import loopback_network
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.incremental.query import Engine

GATEWAY = ("Gateway", "ns", "gw")

CLASS = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: c}
spec: {controllerName: gatehouse.dev/nginx}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: c
  listeners: [{name: http, port: 8080, protocol: HTTP}]
"""


def service(name: str, *endpoints: ir.Endpoint, **port: str) -> str:
    """Return a Service on port 80 with endpoints. ``port``: further fields of its port."""
    fields = "".join(f", {key}: {value}" for key, value in port.items())
    slices = "".join(
        f"""---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-{endpoint.port}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: p, port: {endpoint.port}, protocol: TCP}}]
endpoints: [{{addresses: ['{endpoint.address}']}}]
"""
        for endpoint in endpoints
    )
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{name: p, port: 80{fields}}}]}}
{slices}"""


def route(rules: str, kind: str = "HTTPRoute") -> str:
    """Return a route of the Gateway with these rules, a YAML list."""
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: {kind}
metadata: {{name: r}}
spec:
  parentRefs: [{{name: gw}}]
  rules:
{textwrap.indent(rules.strip(), "  ")}
"""


def key_pair_secret(name: str, files: tuple[Path, Path]) -> str:
    """Return a Secret with a certificate and its key."""
    chain, key = (base64.b64encode(file.read_bytes()).decode() for file in files)
    return f"""
apiVersion: v1
kind: Secret
metadata: {{name: {name}}}
type: kubernetes.io/tls
data: {{tls.crt: {chain}, tls.key: {key}}}
"""


def engine_of(*texts: str) -> Engine:
    """Return an engine with the objects."""
    objects = admitted_objects("---".join(texts))
    return engine_with(objects, gateway_api.ControllerSettings(bind="any"))


@contextlib.asynccontextmanager
async def serving_objects(runner: Runner, directory: Path, *texts: str) -> AsyncIterator[Served]:
    """Serve the Gateway ``gw`` of the objects on an address of its own."""
    async with serving_configuration(runner, directory, compiled_gateway(*texts)) as served:
        yield served


def compiled_gateway(*texts: str) -> GatewayConfiguration:
    """Compile the Gateway ``gw`` of the objects."""
    with engine_of(*texts).compile() as ask:
        gateway = ask(combined.compile_combined_gateway, GATEWAY)
    assert gateway is not None
    return gateway


@contextlib.asynccontextmanager
async def serving_configuration(
    runner: Runner, directory: Path, gateway: GatewayConfiguration
) -> AsyncIterator[Served]:
    """Serve a configuration on an address of its own."""
    address = f"{loopback_network()}.1"
    async with runner(msgspec.structs.replace(gateway, bind_address=address), directory):
        yield Served(address)
