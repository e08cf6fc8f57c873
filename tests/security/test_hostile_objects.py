"""Tenants who share a Gateway, through any field of any object that the API server admits.

Whatever they write: every process goes on, the proxies accept the whole configuration, the output
of other tenants is the same to the byte, and memory stays within limits.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2

from fakes import envoys, hostile_objects, injected, nginx_check, processes
from fakes.admission import admitted_objects
from fakes.compiled_objects import CAPABLE_NGINX, Object, engine_with, merged_statuses
from fakes.shared_gateway import shared_gateway
from fakes.victim import victim_of
from gatehouse.agent import system_trust
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, ResourceSet, XdsResource

SEED = 20
TENANTS = 60
BATCHES = 3
INJECTING_BATCHES = 8
LONG_SEED = 21
LONG_OBJECTS = 20_000
VICTIM_TLS, VICTIM_CLUSTER = "victim-tls.example", "c-victim-victim-80-dfd9f30716f0"
Tenants = Sequence[Sequence[Object]]
NGINX_MEMORY_BYTES = 256 << 20
"""Limit of the memory of an NGINX with one batch, of which an empty one takes 10 MiB."""
ENVOY_MEMORY_BYTES = 512 << 20
"""The same for an Envoy, of which an empty one takes 130 MiB."""
COMPILER_GROWTH_BYTES = 128 << 20
"""Limit of what all batches add to this process, in which the compiler runs. It keeps no batch: 233
of them added 39 MiB.
"""
OUTPUT_BYTES = 64 << 10
"""Limit of what one tenant's objects add to the output, on average."""

WORLD = (
    """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: c}
spec: {controllerName: CONTROLLER}
---
"""
    + shared_gateway("gh", "c")
    + "---\n"
    + victim_of("gw", "gh")
)


WILDCARD_TENANT = """
apiVersion: v1
kind: Service
metadata: {name: a, namespace: tenant}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a-1, namespace: tenant, labels: {kubernetes.io/service-name: a}}
addressType: IPv4
ports: [{port: 9000}]
endpoints: [{addresses: [10.0.0.1]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: r, namespace: tenant}
spec:
  parentRefs: [{name: gw, namespace: gh}]
  hostnames: ['*.example']
  rules: [{backendRefs: [{name: a, port: 80}]}]
"""


def compiled(controller: str, tenants: Tenants) -> GatewayConfiguration:
    """Compile the statuses of all objects, and the Gateway that the victim shares with tenants."""
    objects = [
        *admitted_objects(WORLD.replace("CONTROLLER", controller)),
        *((raw["kind"], raw) for own in tenants for raw in own),
    ]
    with engine_with(objects, gateway_api.ControllerSettings(bind="any")).compile() as ask:
        assert list(merged_statuses(ask))
        gateway = ask(combined.compile_combined_gateway, ("Gateway", "gh", "gw"))
    assert gateway is not None
    return gateway


def batch(number: int, seed: int = SEED) -> list[list[Object]]:
    first = number * TENANTS
    numbers = range(first, first + TENANTS)
    return [hostile_objects.tenant(number, seed).objects for number in numbers]


def of_victim(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    result = {name: content for name, content in parts.items() if "victim" in name}
    assert result
    return result


def clusters_of_chains(resources: ResourceSet, hostname: str) -> list[str]:
    """Return the clusters of the filter chains for one hostname of passed-through connections."""
    clusters = []
    for resource in resources.by_type[LISTENER_TYPE_URL].values():
        for chain in listener_pb2.Listener.FromString(resource.body).filter_chains:
            if [*chain.filter_chain_match.server_names] == [hostname]:
                proxy = tcp_proxy_pb2.TcpProxy()
                assert chain.filters[-1].typed_config.Unpack(proxy)
                clusters.append(proxy.cluster)
    return clusters


def file_set(tenants: Tenants) -> FileSet:
    gateway = compiled(gateway_api.NGINX, tenants)
    return nginx.NginxGenerator(CAPABLE_NGINX).generate(gateway).file_set


def resource_set(tenants: Tenants) -> ResourceSet:
    gateway = compiled(gateway_api.ENVOY, tenants)
    trusted = system_trust.system_bundle()
    capabilities = envoy.EnvoyCapabilities(str(trusted or ""), authenticators=True)
    return envoy.EnvoyGenerator(capabilities).generate(gateway).resources


def contents(files: FileSet) -> dict[str, bytes]:
    return {path: file.content for path, file in files.files.items()}


def bodies(resources: ResourceSet) -> dict[str, bytes]:
    return {
        f"{kind} {name}": resource.body
        for kind, named in resources.by_type.items()
        for name, resource in named.items()
    }


@cache
def files_of_victim_alone() -> dict[str, bytes]:
    return of_victim(contents(file_set(())))


@cache
def resources_of_victim_alone() -> dict[str, bytes]:
    return of_victim(bodies(resource_set(())))


def nginx_reads(files: FileSet) -> nginx_check.Check:
    with tempfile.TemporaryDirectory() as directory:
        return nginx_check.check(files, Path(directory))


def rejected(tenants: Tenants) -> list[tuple[str, Sequence[Object]]]:
    """Return the tenants whose objects NGINX rejects, each with its message, by halves."""
    result = nginx_reads(file_set(tenants))
    if result.accepted:
        return []
    if len(tenants) == 1:
        return [(result.output, tenants[0])]
    half = len(tenants) // 2
    return rejected(tenants[:half]) + rejected(tenants[half:])


def attack_nginx(tenants: Tenants) -> int:
    """Return the number of values with the injected word."""
    files = file_set(tenants)
    after = contents(files)
    assert of_victim(after) == files_of_victim_alone()
    assert sum(map(len, after.values())) < len(tenants) * OUTPUT_BYTES
    structure, values = injected.in_nginx(files)
    assert structure == []
    result = nginx_reads(files)
    assert result.accepted, rejected(tenants)
    assert result.peak_bytes < NGINX_MEMORY_BYTES
    return values


async def attack_envoy(tenants: Tenants, running: envoys.Envoy) -> int:
    """Return the number of values with the injected word."""
    resources = resource_set(tenants)
    after = bodies(resources)
    alone = resources_of_victim_alone()
    if clusters_of_chains(resources, VICTIM_TLS) == [VICTIM_CLUSTER]:
        # A wildcard of a tenant covers the hostname: it has a chain, and no cluster by its name.
        alone = {name: body for name, body in alone.items() if not name.endswith(VICTIM_TLS)}
    assert of_victim(after) == alone
    assert sum(map(len, after.values())) < len(tenants) * OUTPUT_BYTES
    structure, values = injected.in_envoy(resources)
    assert structure == []
    running.ads.publish(envoys.on_free_ports(resources))
    await running.ads.settled()
    assert running.ads.refused == []
    assert running.process.returncode is None
    assert processes.resident_bytes(running.process.pid) < ENVOY_MEMORY_BYTES
    return values


@contextlib.asynccontextmanager
async def running_envoy() -> AsyncIterator[envoys.Envoy]:
    with tempfile.TemporaryDirectory(prefix="ghh-") as directory:
        async with envoys.running(Path(directory)) as envoy_process:
            yield envoy_process


@pytest.mark.process
@pytest.mark.parametrize("number", range(BATCHES))
def test_nginx_serves_a_victim_unchanged_beside_hostile_objects(number: int) -> None:
    attack_nginx(batch(number))


@pytest.mark.process
async def test_envoy_serves_a_victim_unchanged_beside_hostile_objects() -> None:
    async with running_envoy() as process:
        for number in range(BATCHES):
            await attack_envoy(batch(number), process)


@pytest.mark.process
async def test_wildcard_of_a_tenant_leaves_a_covered_hostname_to_its_victim() -> None:
    """The tenant has a TLSRoute for `*.example` beside the victim's for one hostname of it."""
    tenants = [[raw for _, raw in admitted_objects(WILDCARD_TENANT)]]
    assert clusters_of_chains(resource_set(tenants), VICTIM_TLS) == [VICTIM_CLUSTER]
    attack_nginx(tenants)
    async with running_envoy() as process:
        await attack_envoy(tenants, process)


@pytest.mark.process
async def test_values_of_objects_add_no_structure_to_the_output_of_a_proxy() -> None:
    """Each tenant writes `gh_injected` with the syntax of a configuration language into a value."""
    nginx_values = envoy_values = 0
    async with running_envoy() as process:
        for number in range(INJECTING_BATCHES):
            numbers = range(number * TENANTS, (number + 1) * TENANTS)
            tenants = [hostile_objects.injecting_tenant(n, SEED).objects for n in numbers]
            nginx_values += attack_nginx(tenants)
            envoy_values += await attack_envoy(tenants, process)
    # The rest is rejected with a finding, or is not in the output.
    assert min(nginx_values, envoy_values) >= INJECTING_BATCHES


@pytest.mark.parametrize(
    "text", ["{word} on;", 'a "b" {word};', 'b {{ {word} "a"; }}', "{word}: ;"]
)
def test_words_outside_of_quoted_values_of_nginx_are_structure(text: str) -> None:
    word = hostile_objects.INJECTED
    files = FileSet([File.make("a.conf", f'a "{word}";\n{text.format(word=word)}')])
    structure, values = injected.in_nginx(files)
    assert (len(structure), values) == (1, 1)


def test_words_in_names_and_commands_of_envoy_are_structure() -> None:
    word = hostile_objects.INJECTED
    rule = route_components_pb2.Route(name=f"a{word}")
    # Envoy's rules name the fields for names of headers, of which the second is no token.
    rule.request_headers_to_remove.extend((f"x-${word}", f"x {word}"))
    for content in (word, f"%%{word}%%", f"%REQ({word})%"):
        header = base_pb2.HeaderValue(key="a", value=content)
        rule.request_headers_to_add.append(base_pb2.HeaderValueOption(header=header))
    host = route_components_pb2.VirtualHost(name="a", routes=[rule])
    routes = route_pb2.RouteConfiguration(name="a", virtual_hosts=[host])
    kind = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    resource = XdsResource.make(kind, "a", routes.SerializeToString())
    structure, values = injected.in_envoy(ResourceSet([resource]))
    assert (len(structure), values) == (3, 3), structure


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(1200)
async def test_20000_hostile_objects_change_nothing_for_a_victim() -> None:
    count, before = 0, processes.resident_bytes(os.getpid())
    async with running_envoy() as process:
        for number in itertools.count():
            tenants = [
                hostile_objects.tenant(tenant, LONG_SEED)
                for tenant in range(number * TENANTS, (number + 1) * TENANTS)
            ]
            objects = [tenant.objects for tenant in tenants]
            attack_nginx(objects)
            await attack_envoy(objects, process)
            count += sum(len(tenant.hostile) for tenant in tenants)
            assert processes.resident_bytes(os.getpid()) - before < COMPILER_GROWTH_BYTES
            if count >= LONG_OBJECTS:
                return
