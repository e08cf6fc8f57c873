"""Tenants who own a Gateway, its parameters, UpstreamClusters or HostedAPIServers.

Whatever they write: the controller compiles every Gateway and every status, and both proxies
accept what they get.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from fakes import envoys, hostile_objects, injected, nginx_check, processes
from fakes.admission import admitted_objects
from fakes.compiled_objects import CAPABLE_NGINX, Object, engine_with, merged_statuses
from fakes.victim import victim_of
from gatehouse.agent import system_trust
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api, hosted_apiserver
from gatehouse.compiler.ir.gateway import GatewayConfiguration

SEED = 20
OWNERS = 60
LONG_OWNERS = 2_000
OF_KIND = 20
"""Owners for each of the groups below."""
KINDS = (("UpstreamCluster",), ("HostedAPIServer",), ("NginxProxy", "GatewayParameters"))
"""Kinds that few golden cases have. Owners of each group have a seed of their own."""
NGINX_MEMORY_BYTES = 256 << 20
ENVOY_MEMORY_BYTES = 512 << 20
CONTROLLER_GROWTH_BYTES = 128 << 20
"""Limit of what all owners together add to this process, in which the compiler runs.

It keeps nothing of an owner: 400 of them added 20 MiB, most of it code and parsed expressions. With
the 110 MiB of an idle controller, the limit is a quarter of the 1 GiB that the chart permits.
"""
ENVOY_DRAIN_SECONDS = 1
"""Listeners of earlier owners end, so that the memory of Envoy is that of one owner."""
BASE = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatehouse-nginx}
spec: {controllerName: gatehouse.dev/nginx}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns, labels: {kubernetes.io/metadata.name: ns}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: victims}
spec: {controllerName: gatehouse.dev/nginx}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: victim, namespace: victim}
spec:
  gatewayClassName: victims
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}
  - {name: tcp, port: 9000, protocol: TCP}
---
""" + victim_of("victim", "victim")


@cache
def victim_alone() -> GatewayConfiguration:
    (gateway,) = compiled(())
    return gateway


def compiled(objects: Sequence[Object]) -> Iterator[GatewayConfiguration]:
    """Yield every Gateway, the victim's included, and compile every status and record."""
    admitted = [*admitted_objects(BASE), *((raw["kind"], raw) for raw in objects)]
    with engine_with(admitted, gateway_api.ControllerSettings(bind="any")).compile() as ask:
        assert list(merged_statuses(ask))
        for key in ask(combined.status_subjects):
            ask(combined.gateways_of_attached, key)
            ask(combined.deadlines, key)
        ask.map(hosted_apiserver.records, ask.read(hosted_apiserver.HOSTED))
        for key in ask(gateway_api.gateways):
            gateway = ask(combined.compile_combined_gateway, key)
            if gateway is not None:
                yield gateway


async def attack(tenant: hostile_objects.Tenant, process: envoys.Envoy) -> None:
    trusted = str(system_trust.system_bundle() or "")
    gateways = {gateway.name: gateway for gateway in compiled(tenant.objects)}
    # Equal configurations are equal files and resources.
    assert gateways.pop(victim_alone().name) == victim_alone(), tenant.hostile
    for gateway in gateways.values():
        files = nginx.NginxGenerator(CAPABLE_NGINX).generate(gateway).file_set
        assert injected.in_nginx(files)[0] == [], tenant.hostile
        with tempfile.TemporaryDirectory() as directory:
            result = nginx_check.check(files, Path(directory))
        assert result.accepted, (result.output, tenant.hostile)
        assert result.peak_bytes < NGINX_MEMORY_BYTES, tenant.hostile
        capabilities = envoy.EnvoyCapabilities(trusted, authenticators=True)
        resources = envoy.EnvoyGenerator(capabilities).generate(gateway).resources
        assert injected.in_envoy(resources)[0] == [], tenant.hostile
        process.ads.publish(envoys.on_free_ports(resources))
        await process.ads.settled()
        assert process.ads.refused == [], tenant.hostile
        assert process.process.returncode is None, tenant.hostile
        assert processes.resident_bytes(process.process.pid) < ENVOY_MEMORY_BYTES, tenant.hostile


async def attack_all(numbers: range, seed: int, kinds: Sequence[str] = ()) -> None:
    hostile: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="ghh-") as directory:
        async with envoys.running(Path(directory), drain=ENVOY_DRAIN_SECONDS) as process:
            before = processes.resident_bytes(os.getpid())
            for number in numbers:
                tenant = hostile_objects.owner(number, seed, kinds)
                await attack(tenant, process)
                growth = processes.resident_bytes(os.getpid()) - before
                assert growth < CONTROLLER_GROWTH_BYTES, tenant.hostile
                hostile.update({name.split()[0] for name in tenant.hostile})
    if kinds:
        # The API server admits no hostile object of some owners.
        assert sum(hostile[kind] for kind in kinds) > len(numbers) // 2


@pytest.mark.process
async def test_proxies_accept_hostile_gateways_and_clusters() -> None:
    await attack_all(range(OWNERS), SEED)


@pytest.mark.process
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
async def test_proxies_accept_hostile_objects_of_rare_kinds(kinds: Sequence[str]) -> None:
    await attack_all(range(OF_KIND), SEED, kinds)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(1200)
async def test_proxies_accept_2000_hostile_gateways_and_clusters() -> None:
    for kinds in ((), *KINDS):
        await attack_all(range(LONG_OWNERS // 4), SEED + 1, kinds)
