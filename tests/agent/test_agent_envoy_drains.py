"""Memory of an Envoy whose listeners change again and again.

Envoy keeps each replaced listener for its drain timeout. The agent delays changes of listeners once
many of them drain, so that the memory stays bounded. Endpoints of backends are not delayed.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fakes.durations import pace
from fakes.envoy_agent import envoys, options, running
from fakes.envoy_running import EnvoyControlPlane
from fakes.loopback import free_port
from fakes.processes import resident_bytes
from gatehouse.compiler.backends.envoy import EnvoyCapabilities, EnvoyGenerator
from gatehouse.compiler.ir.gateway import GatewayConfiguration, Listener
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.xds.resources import ResourceSet

pytestmark = pytest.mark.process

LISTENERS = 20
CHURN_SECONDS = 20.0
GROWTH_BYTES = 200 << 20
"""Maximum growth of Envoy's memory. It was 144 MiB, and 1,367 MiB without a limit."""


def generation(number: int, ports: list[int]) -> ResourceSet:
    """Return listeners that all differ from those of the previous number."""
    listeners = tuple(Listener(port, "HTTP", ()) for port in ports)
    configuration = GatewayConfiguration(
        "shop/web", listeners=listeners, settings=DataPlaneSettings(ipv6=bool(number % 2))
    )
    return EnvoyGenerator(EnvoyCapabilities("")).generate(configuration).resources


async def test_memory_is_bounded_while_all_listeners_are_replaced(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    ports = [free_port() for _ in range(LISTENERS)]
    async with running(options(plane, tmp_path)):
        await plane.until(lambda report: bool(report.instances))
        await plane.served(generation(0, ports))
        (pid,) = envoys(tmp_path)
        before, started, number = resident_bytes(pid), time.monotonic(), 0
        while time.monotonic() - started < CHURN_SECONDS:
            number += 1
            plane.publish(generation(number, ports))
            await pace(0.1)
        growth = resident_bytes(pid) - before
        print(f"{number} publications, {growth >> 20} MiB more")
        assert growth < GROWTH_BYTES
        # The newest generation is served in the end.
        await plane.until(lambda report: report.programmed)
