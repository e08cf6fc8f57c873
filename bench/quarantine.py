"""Time until a good change is served while a proxy's rejections of others' objects are searched.

`make bench-quarantine`: one tenant has 1,000 HTTPRoutes on the Gateway that another tenant uses,
and adds routes that NGINX rejects, all at once. Until all of these are left out, the other tenant
changes its one route again and again. Reported are the time until traffic shows a change, and the
number of configurations that NGINX tested meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

import many_routes
import route_propagation as propagation
import routes as routing
from many_routes import CROWD, TENANT, Object, Tenant, crowd_route

from fakes.strict_nginx import REFUSED, environment_with_strict_nginx, number_of_tests
from gatehouse.apis import resources
from gatehouse.controller.quarantines import LEFT_OUT
from gatehouse.kube.client import Client

SEARCH_SECONDS = 600.0
"""Timeout in seconds of a search."""


def bad_route(number: int) -> Object:
    """Return a route that NGINX rejects."""
    manifest = crowd_route(CROWD, f"bad{number}", TENANT)
    path = {"type": "RegularExpression", "value": f"/{REFUSED}/{number}"}
    manifest["spec"]["rules"][0]["matches"] = [{"path": path}]
    return manifest


async def until_left_out(client: Client, count: int) -> None:
    """Wait until the status of the Gateway shows that so many objects are left out."""
    text = f"{count} object{'s' if count > 1 else ''} {LEFT_OUT}"
    while True:
        status = (await client.get(resources.GATEWAYS, TENANT, TENANT)).get("status", {})
        (message,) = (
            condition["message"]
            for condition in status["conditions"]
            if condition["type"] == "Programmed"
        )
        if text in message if count else LEFT_OUT not in message:
            return
        await asyncio.sleep(0.1)


async def change_until(
    done: asyncio.Task[None] | None, tenant: Tenant, first: int, directory: Path, count: int
) -> tuple[list[float], list[int]]:
    """Change the tenant's route until a task is done, or ``count`` times. Return times and tests
    of each change."""
    delays: list[float] = []
    tests: list[int] = []
    while not done.done() if done else len(delays) < count:
        before = number_of_tests(directory)
        delays.append(await tenant.change(first + len(delays)))
        tests.append(number_of_tests(directory) - before)
    return delays, tests


def row(what: str, delays: list[float], tests: list[int], more: str = "") -> None:
    """Print a result at once."""
    times = f"{statistics.median(delays):.2f} s, {max(delays):.2f} s of {len(delays)}"
    print(f"| {what} | {times} | {statistics.median(tests):g}, {max(tests)} | {more} |", flush=True)


async def measure(client: Client, directory: Path, options: argparse.Namespace) -> None:
    """Add bad routes in each of the numbers, and print what they cost."""
    tenant = Tenant(client, await many_routes.prepare(client, "gatehouse-nginx"))
    await many_routes.fill(client, options.routes, TENANT)
    await many_routes.until_accepted(client, f"r{options.routes - 1}")
    row("none", *await change_until(None, tenant, 0, directory, 10))
    for count in map(int, options.bad.split(",")):
        started, tested = time.perf_counter(), number_of_tests(directory)
        created = (
            client.create(resources.HTTP_ROUTES, bad_route(number)) for number in range(count)
        )
        await asyncio.gather(*created)
        async with asyncio.timeout(SEARCH_SECONDS):
            searched = asyncio.create_task(until_left_out(client, count))
            results = await change_until(searched, tenant, count * 1000, directory, 0)
            await searched
            seconds = time.perf_counter() - started
            more = f"{seconds:.1f} s, {number_of_tests(directory) - tested}"
            row(str(count), *results, more)
            for number in range(count):
                await client.delete(resources.HTTP_ROUTES, f"bad{number}", CROWD)
            await until_left_out(client, 0)


async def run(options: argparse.Namespace) -> None:
    """Measure an installation whose NGINX rejects expressions that the compiler accepts."""
    with propagation.state_directory() as state, tempfile.TemporaryDirectory() as strict:
        os.environ |= environment_with_strict_nginx(Path(strict))
        async with routing.backends(), propagation.gatehouse(state, options.pool):
            client = await propagation.connect(state)
            await measure(client, Path(strict), options)
            await client.__aexit__(None, None, None)


def main() -> None:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--routes", type=int, default=1000)
    parser.add_argument("--bad", default="1,10,100", help="numbers of routes that NGINX rejects")
    parser.add_argument("--pool", default="127.114.0.0/16")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
