"""Cost of one tenant's HTTPRoutes for another tenant, at the controller and the data planes.

`make bench-many-routes`: a tenant creates 50,000 HTTPRoutes on a Gateway of its own, or with
`--shared` on the Gateway that another tenant uses. Meanwhile and afterwards the other tenant
changes its one route. Reported is the time until traffic shows the change.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import aiohttp
import route_propagation as propagation
import route_scale as scale
import routes as routing

from gatehouse.apis import resources
from gatehouse.kube.client import Client

CROWD, TENANT = "crowd", "tenant"
PARTS = ("controller", "agent", "apiserver", "nginx", "envoy")
CHANGE_SECONDS = 120.0
"""Timeout in seconds of a change."""
WRITERS = 32

Object = dict[str, Any]


class Tenant:
    """The tenant with one route. Changes it until :attr:`phase` is empty."""

    def __init__(self, client: Client, address: str) -> None:
        self._client, self._address = client, address
        self.phase = "alone"
        self.delays: dict[str, list[float]] = {}
        self._changed = asyncio.Event()

    async def change(self, number: int) -> float:
        """Change the route. Return the time in seconds until traffic shows it, or infinity."""
        manifest = crowd_route(TENANT, "r0", TENANT)
        edit = {"set": [{"name": "x-version", "value": str(number)}]}
        filters = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": edit}]
        manifest["spec"]["rules"][0]["filters"] = filters
        url, headers = (
            f"http://{self._address}:{propagation.PORT}/",
            {"Host": f"r0.{TENANT}.example"},
        )
        started = time.perf_counter()
        await self._client.patch(
            resources.HTTP_ROUTES, "r0", {"spec": manifest["spec"]}, namespace=TENANT
        )
        connector = aiohttp.TCPConnector(force_close=True)
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(CHANGE_SECONDS),
                aiohttp.ClientSession(connector=connector) as session,
            ):
                while True:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(url, headers=headers) as response:
                            if response.headers.get("x-version") == str(number):
                                return time.perf_counter() - started
                    await asyncio.sleep(0.02)
        return float("inf")

    async def run(self) -> None:
        """Change the route once a second."""
        number = 0
        while self.phase:
            phase, number = self.phase, number + 1
            self.delays.setdefault(phase, []).append(await self.change(number))
            self._changed.set()
            await asyncio.sleep(1)

    async def until_measured(self, phase: str, count: int) -> None:
        """Wait until a phase has so many changes."""
        self.phase = phase
        while len(self.delays.get(phase, ())) < count:
            await self._changed.wait()
            self._changed.clear()


def crowd_route(namespace: str, name: str, gateway: str) -> Object:
    """Return a route of a namespace to a Gateway, which is in the namespace of its name."""
    manifest = propagation.route(name, 0)
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["parentRefs"] = [{"name": gateway, "namespace": gateway}]
    manifest["spec"]["hostnames"] = [f"{name}.{namespace}.example"]
    return manifest


async def prepare(client: Client, class_name: str) -> str:
    """Create both namespaces with a Gateway and a Service each. Return the tenant's address."""
    for namespace in (CROWD, TENANT):
        metadata = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await client.create(resources.NAMESPACES, metadata)
        gateway = scale.gateway(class_name)
        gateway["metadata"] = {"name": namespace, "namespace": namespace}
        for resource, manifest in [*propagation.service(0), (resources.GATEWAYS, gateway)]:
            manifest["metadata"]["namespace"] = namespace
            await client.create(resource, manifest)
    await client.create(resources.HTTP_ROUTES, crowd_route(TENANT, "r0", TENANT))
    async with asyncio.timeout(120):
        while True:
            status = (await client.get(resources.GATEWAYS, TENANT, TENANT)).get("status", {})
            programmed = {
                condition["type"]: condition["status"] for condition in status.get("conditions", ())
            }
            if programmed.get("Programmed") == "True" and status.get("addresses"):
                return str(status["addresses"][0]["value"])
            await asyncio.sleep(0.2)


async def fill(client: Client, count: int, gateway: str) -> float:
    """Create the routes. Return the duration in seconds."""
    numbers = iter(range(count))

    async def write() -> None:
        for number in numbers:
            manifest = crowd_route(CROWD, f"r{number}", gateway)
            await client.create(resources.HTTP_ROUTES, manifest)

    started = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(WRITERS)))
    return time.perf_counter() - started


async def until_accepted(client: Client, name: str) -> float:
    """Wait until the last route is accepted. Return the duration in seconds."""
    started = time.perf_counter()
    async with asyncio.timeout(3600):
        while True:
            if routing.accepted(await client.get(resources.HTTP_ROUTES, name, CROWD)):
                break
            await asyncio.sleep(0.5)
    return time.perf_counter() - started


def report(what: str, value: str) -> None:
    """Print a result at once."""
    print(f"| {what} | {value} |", flush=True)


def memory(state: Path) -> str:
    """Return the resident memory of each part in MiB."""
    usages = {part: propagation.Usage(part, state).read()[1] >> 20 for part in PARTS}
    return ", ".join(f"{part} {size}" for part, size in usages.items() if size)


async def measure(client: Client, state: Path, options: argparse.Namespace) -> None:
    """Fill, restart the controller, and print the numbers."""
    tenant = Tenant(client, await prepare(client, options.gateway_class))
    changes = asyncio.create_task(tenant.run())
    await tenant.until_measured("alone", 10)
    report("memory in MiB before", memory(state))
    tenant.phase = "during the creation"
    seconds = await fill(client, options.routes, TENANT if options.shared else CROWD)
    report("creation", f"{options.routes / seconds:,.0f} a second")
    tenant.phase = "until the last one is accepted"
    report(
        "last one accepted after", f"{await until_accepted(client, f'r{options.routes - 1}'):.0f} s"
    )
    await tenant.until_measured("beside them", 10)
    report("memory in MiB with them", memory(state))
    for entry in propagation.Usage("controller", state).processes():
        os.kill(int(entry.name), signal.SIGKILL)
    await tenant.until_measured("after a restart of the controller", 3)
    report("memory in MiB after a restart of the controller", memory(state))
    tenant.phase = ""
    await changes
    for phase, delays in tenant.delays.items():
        numbers = f"{statistics.median(delays):.2f} s, {max(delays):.1f} s of {len(delays)}"
        report(f"change of the other tenant, {phase} (median, maximum)", numbers)


async def run(options: argparse.Namespace) -> None:
    """Measure an installation."""
    with propagation.state_directory() as state:
        async with routing.backends(), propagation.gatehouse(state, options.pool):
            client = await propagation.connect(state)
            await measure(client, state, options)
            await client.__aexit__(None, None, None)


def main() -> None:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--routes", type=int, default=50_000)
    parser.add_argument("--shared", action="store_true", help="on the Gateway of the other tenant")
    parser.add_argument("--gateway-class", default="gatehouse-nginx")
    parser.add_argument("--pool", default="127.113.0.0/16")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
