"""Cost of many namespaces while one object after the other changes.

With 50 namespaces of 100 HTTPRoutes there already, one object changes every 100 ms: a rule, the
endpoints of a Service, a new route, a route less. Each change is polled over new connections until
traffic shows it, under steady load on all the others. Reported for each class, side by side: how
long that takes, what failed, CPU and memory of each part, and bytes sent to the data plane.

    python bench/route_scale.py --namespaces 50 --routes 100 --seconds 120
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import route_propagation as propagation
import routes as routing

from gatehouse.apis import resources
from gatehouse.kube.client import Client

PORT = propagation.PORT
HOMES = propagation.BACKENDS
SERVICES = 10
"""Of each namespace."""
CHANGE_TIMEOUT_SECONDS = 60.0
"""Seconds after which a change counts as never seen."""
MIN_PAUSE_SECONDS, COARSENESS = 0.005, 0.05
"""Between two looks whether a change is there: seconds, and the share of the time waited so far."""
PARTS = ("controller", "agent", "apiserver")

Object = dict[str, Any]
KINDS = ("rule", "endpoints", "new route", "rule", "endpoints", "route less")


class Estate:
    """Namespaces with Services and routes on one Gateway, and the ways to change them."""

    def __init__(self, client: Client, address: str, namespaces: int, routes: int) -> None:
        self.client, self.address = client, address
        self.namespaces = [f"estate-{number}" for number in range(namespaces)]
        self.routes = routes
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        self.lost: Counter[str] = Counter()
        self._homes: Counter[tuple[str, int]] = Counter()
        self._busy: set[tuple[str, int]] = set()
        self._fresh: list[tuple[str, str]] = []
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))

    async def close(self) -> None:
        """Close what it opened."""
        await self._session.close()

    async def create(self) -> None:
        """Create everything."""
        gate = asyncio.Semaphore(32)

        async def one(resource: Any, manifest: Object, namespace: str) -> None:
            manifest["metadata"]["namespace"] = namespace
            async with gate:
                await self.client.create(resource, manifest)

        async with asyncio.TaskGroup() as group:
            for name in self.namespaces:
                metadata = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                group.create_task(self.client.create(resources.NAMESPACES, metadata))
        async with asyncio.TaskGroup() as group:
            for name in self.namespaces:
                for number in range(SERVICES):
                    (resource, manifest), (slices, endpoints) = propagation.service(number)
                    group.create_task(one(resource, manifest, name))
                    moved = {**endpoints, "endpoints": [{"addresses": [HOMES[0]]}]}
                    group.create_task(one(slices, moved, name))
                for number in range(self.routes):
                    obj = route(name, f"r{number}", number % SERVICES)
                    group.create_task(one(resources.HTTP_ROUTES, obj, name))

    async def settled(self) -> None:
        """Wait until every route is accepted, and served."""
        async with asyncio.timeout(900):
            while True:
                routes = (await self.client.list(resources.HTTP_ROUTES)).items
                if all(map(routing.accepted, routes)):
                    break
                await asyncio.sleep(2)
        for name in self.namespaces:
            await self._until(host(name, f"r{self.routes - 1}"), lambda status, *_: status == 200)
        await asyncio.sleep(3)

    async def turn(self, number: int) -> None:
        """Change one object, and see it in traffic."""
        kind = KINDS[number % len(KINDS)]
        if kind == "route less" and not self._fresh:
            kind = "rule"
        work = {
            "rule": self._rule,
            "endpoints": self._endpoints,
            "new route": self._new,
            "route less": self._less,
        }
        started = time.perf_counter()
        try:
            await work[kind](number)
        except TimeoutError:
            self.lost[kind] += 1
        else:
            self.times[kind].append(time.perf_counter() - started)

    async def _rule(self, number: int) -> None:
        with self._free() as (namespace, name, backend):
            manifest = route(namespace, name, backend)
            edit = {"set": [{"name": "x-version", "value": str(number)}]}
            manifest["spec"]["rules"][0]["filters"] = [
                {"type": "ResponseHeaderModifier", "responseHeaderModifier": edit}
            ]
            spec = {"spec": manifest["spec"]}
            await self.client.patch(resources.HTTP_ROUTES, name, spec, namespace)
            version = str(number)
            await self._until(
                host(namespace, name), lambda _, __, headers: headers.get("x-version") == version
            )

    async def _endpoints(self, _: int) -> None:
        with self._free() as (namespace, name, backend):
            self._homes[namespace, backend] += 1
            home = HOMES[self._homes[namespace, backend] % len(HOMES)]
            moved = {"endpoints": [{"addresses": [home]}]}
            await self.client.patch(
                resources.ENDPOINT_SLICES, f"backend-{backend}-1", moved, namespace
            )
            await self._until(host(namespace, name), lambda _, text, __: text == home)

    async def _new(self, number: int) -> None:
        namespace, name = random.choice(self.namespaces), f"new-{number}"
        await self.client.create(resources.HTTP_ROUTES, route(namespace, name, 0))
        await self._until(host(namespace, name), lambda status, *_: status == 200)
        self._fresh.append((namespace, name))

    async def _less(self, _: int) -> None:
        namespace, name = self._fresh.pop(0)
        await self.client.delete(resources.HTTP_ROUTES, name, namespace=namespace)
        await self._until(host(namespace, name), lambda status, *_: status == 404)

    @contextlib.contextmanager
    def _free(self) -> Iterator[tuple[str, str, int]]:
        """Yield a route, with the number of its Service, that no other change is about.

        Raises TimeoutError when the data plane lags behind with changes of all Services.
        """
        services = ((name, number) for name in self.namespaces for number in range(SERVICES))
        free = [candidate for candidate in services if candidate not in self._busy]
        if not free:
            raise TimeoutError
        busy = namespace, service = random.choice(free)
        number = random.randrange(service, self.routes, SERVICES)
        self._busy.add(busy)
        try:
            yield namespace, f"r{number}", service
        finally:
            self._busy.discard(busy)

    async def _until(self, name: str, holds: Callable[[int, str, Any], bool]) -> None:
        """Ask for a name until the answer (status, text, headers) is so; raises TimeoutError."""
        url, begun = f"http://{self.address}:{PORT}/", time.perf_counter()
        async with asyncio.timeout(CHANGE_TIMEOUT_SECONDS):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with self._session.get(url, headers={"Host": name}) as response:
                        if holds(response.status, await response.text(), response.headers):
                            return
                # However many changes are on their way, all of them together ask as often: else
                # the asking would take what they wait for.
                waited = time.perf_counter() - begun
                await asyncio.sleep(max(MIN_PAUSE_SECONDS, COARSENESS * waited))

    async def load(self, answers: Counter[str], *, keep_alive: bool) -> None:
        """Ask for all routes in turn, 20 a second, until cancelled."""
        connector = aiohttp.TCPConnector(force_close=not keep_alive)
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                name = host(random.choice(self.namespaces), f"r{random.randrange(self.routes)}")
                try:
                    url = f"http://{self.address}:{PORT}/"
                    async with session.get(url, headers={"Host": name}) as response:
                        await response.read()
                        answers[str(response.status)] += 1
                except aiohttp.ClientError as error:
                    answers[type(error).__name__] += 1
                await asyncio.sleep(0.05)


def host(namespace: str, name: str) -> str:
    """Return the hostname of a route."""
    return f"{name}.{namespace}.bench.example"


def route(namespace: str, name: str, backend: int) -> Object:
    """Return a route of the Gateway in another namespace."""
    manifest = propagation.route(name, backend)
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["parentRefs"] = [{"name": "bench", "namespace": propagation.NAMESPACE}]
    manifest["spec"]["hostnames"] = [host(namespace, name)]
    return manifest


def gateway(class_name: str) -> Object:
    """Return a Gateway that accepts routes of all namespaces."""
    manifest = propagation.gateway(class_name)
    manifest["spec"]["listeners"][0]["allowedRoutes"] = {"namespaces": {"from": "All"}}
    return manifest


def received(state: Path) -> int:
    """Return the bytes that the agents received from the controller, as the kernel counts them."""
    pids = {
        part: {entry.name for entry in propagation.Usage(part, state).processes()}
        for part in ("controller", "agent")
    }

    def sockets(*options: str) -> list[tuple[list[str], str]]:
        text = subprocess.run(
            ("ss", "-tnpH", *options), capture_output=True, text=True, check=True
        ).stdout
        return [(line.split(), line) for line in text.splitlines()]

    def of(line: str, part: str) -> bool:
        return bool(set(re.findall(r"pid=(\d+)", line)) & pids[part])

    ports = {w[3].rpartition(":")[2] for w, line in sockets("-l") if of(line, "controller")}
    return sum(
        int(match[1])
        for words, line in sockets("-iO")
        if of(line, "agent") and words[4].rpartition(":")[2] in ports
        if (match := re.search(r"bytes_received:(\d+)", line))
    )


@contextlib.asynccontextmanager
async def installed(class_name: str, options: argparse.Namespace) -> AsyncIterator[Any]:
    """Run an installation with an estate on it."""
    with propagation.state_directory() as state:
        async with routing.backends(), propagation.gatehouse(state, options.pool):
            client = await propagation.connect(state)
            await client.create(resources.GATEWAYS, gateway(class_name))
            address = await propagation.address_of(client)
            estate = Estate(client, address, options.namespaces, options.routes)
            await estate.create()
            await estate.settled()
            yield estate, state
            await estate.close()
            await client.__aexit__(None, None, None)


async def measure(class_name: str, options: argparse.Namespace) -> tuple[Object, bool]:
    """Change one object after the other. Return the cost, and whether nothing failed."""
    async with installed(class_name, options) as (estate, state):
        usages = {part: propagation.Usage(part, state) for part in PARTS}
        usages["proxy"] = propagation.Usage(class_name.rpartition("-")[2], state)
        answers: Counter[str] = Counter()
        load = [asyncio.create_task(estate.load(answers, keep_alive=n % 2 == 0)) for n in range(2)]
        before = {part: usage.read()[0] for part, usage in usages.items()}
        bytes_received, begun = received(state), time.perf_counter()
        turns = int(options.seconds / options.every)
        async with asyncio.TaskGroup() as group:
            for number in range(turns):
                group.create_task(estate.turn(number))
                next_turn = begun + (number + 1) * options.every
                await asyncio.sleep(max(0.0, next_turn - time.perf_counter()))
        took = time.perf_counter() - begun
        after = {part: usage.read() for part, usage in usages.items()}
        bytes_received = received(state) - bytes_received
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
    failed = {what: count for what, count in answers.items() if what != "200"}
    cpu = {part: after[part][0] - before[part] for part in usages}
    rows: Object = {
        f"{kind}: p50 / p99 s": " / ".join(
            f"{seconds:.3f}" for seconds in routing.percentiles(estate.times[kind]).values()
        )
        for kind in dict.fromkeys(KINDS)
        if estate.times[kind]
    }
    rows["changes; never seen"] = f"{turns}; {sum(estate.lost.values())}"
    rows["requests beside it; failed"] = f"{sum(answers.values())}; {sum(failed.values())}"
    rows["bytes to the data plane per change"] = f"{bytes_received / turns:,.0f}"
    for part in usages:
        milliseconds, share = cpu[part] / turns, cpu[part] / took * 100
        rows[f"{part}: CPU ms per change; share of a core"] = (
            f"{milliseconds * 1000:.1f}; {share:.0f} %"
        )
    rows[f"RSS MB: {', '.join(usages)}"] = ", ".join(f"{after[p][1] / 1e6:.0f}" for p in usages)
    return rows, not failed and not estate.lost


async def run(options: argparse.Namespace) -> bool:
    """Measure each class and print the results side by side. Return whether nothing failed."""
    result, good = {}, True
    for class_name in options.classes.split(","):
        result[class_name], fine = await measure(class_name, options)
        good &= fine
        print(f"{class_name}: {result[class_name]}", file=sys.stderr, flush=True)
    print(f"| | {' | '.join(result)} |\n| --- |{' ---: |' * len(result)}")
    for row in dict.fromkeys(name for rows in result.values() for name in rows):
        print(f"| {row} | {' | '.join(rows.get(row, '') for rows in result.values())} |")
    return good


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--namespaces", type=int, default=50)
    parser.add_argument("--routes", type=int, default=100, help="of each namespace")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=0.1, help="seconds between two changes")
    parser.add_argument("--classes", default="gatehouse-nginx,gatehouse-envoy")
    parser.add_argument("--pool", default="127.111.0.0/16")
    if not asyncio.run(run(parser.parse_args())):
        sys.exit(1)


if __name__ == "__main__":
    main()
