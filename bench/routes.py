"""Cost of many HTTPRoutes: attachment, changes of rules, and changes of endpoints.

1. *attach*: N HTTPRoutes are created as fast as the client can; how long after the last create does
   the listener's ``attachedRoutes`` say N and every route ``Accepted``? And how long until 0 after
   the last is deleted? How often are statuses written (each route needs one), and NGINX reloaded?
2. *change*: a filter of one route changes again and again: how long from the API's answer to the
   first response that shows it?
3. *churn*: endpoints of random Services move R times a second under steady load: how long until
   traffic follows, how many reloads, and does any request fail (none may)? How long is a route that
   is created meanwhile without a status?

    python bench/routes.py --routes 1000 --changes 100 --rate 10 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import aiohttp
import route_propagation as propagation
from aiohttp import web

from gatehouse.apis import resources
from gatehouse.kube import config
from gatehouse.kube.client import Client
from gatehouse.kube.connection import Connection
from kube_base.types.resource import Resource

NAMESPACE, PORT = propagation.NAMESPACE, propagation.PORT
POLL = 0.01
HEALTH_PORT = 9113
HOMES = propagation.BACKENDS
CLIENTS = 4
"""Clients of the steady load, each with 20 requests a second."""

_WRITES = re.compile(
    r'apiserver_request_total\{code="2..".*resource="(\w+)",.*subresource="status".*'
    r'verb="(?:PUT|PATCH)".*\} ([\d.e+]+)'
)
Object = dict[str, Any]


async def _where(request: web.Request) -> web.Response:
    assert request.transport is not None
    return web.Response(text=request.transport.get_extra_info("sockname")[0])


@contextlib.asynccontextmanager
async def backends() -> AsyncIterator[None]:
    """Run backends that answer with their own address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _where)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    for address in HOMES:
        await web.TCPSite(runner, address, propagation.BACKEND_PORT).start()
    try:
        yield
    finally:
        await runner.cleanup()


class Followed:
    """The newest objects of one kind, as a watch shows them."""

    def __init__(self, client: Client, resource: Resource) -> None:
        self._client, self._resource = client, resource
        self.objects: dict[str, Object] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Follow the log until cancelled."""
        result = await self._client.list(self._resource, NAMESPACE)
        version = result.resource_version
        while True:
            stream = self._client.watch(self._resource, NAMESPACE, resource_version=version)
            async with contextlib.aclosing(stream) as events:
                async for event in events:
                    metadata = event.object["metadata"]
                    version = metadata["resourceVersion"]
                    if event.type == "DELETED":
                        self.objects.pop(metadata["name"], None)
                    elif event.type != "BOOKMARK":
                        self.objects[metadata["name"]] = event.object
                    self._changed.set()

    async def until(self, holds: Callable[[dict[str, Object]], bool], seconds: float) -> float:
        """Wait until the condition holds for the objects. Return the time."""
        async with asyncio.timeout(seconds):
            while not holds(self.objects):
                self._changed.clear()
                await self._changed.wait()
        return time.perf_counter()


def accepted(route: Object) -> bool:
    """Return whether a route's newest generation is accepted."""
    return any(
        condition["type"] == "Accepted"
        and condition["status"] == "True"
        and condition["observedGeneration"] == route["metadata"]["generation"]
        for parent in route.get("status", {}).get("parents", ())
        for condition in parent["conditions"]
    )


def attached(gateways: dict[str, Object]) -> int:
    """Return the number of attached routes in the listener's status."""
    listeners = gateways.get("bench", {}).get("status", {}).get("listeners") or [{}]
    return int(listeners[0].get("attachedRoutes", -1))


class Bench:
    """One installation, and the ways to measure it."""

    def __init__(self, client: Client, raw: Connection, address: str, count: int) -> None:
        self.client, self.address, self.count = client, address, count
        self._raw = raw
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        self.routes = Followed(client, resources.HTTP_ROUTES)
        self.gateways = Followed(client, resources.GATEWAYS)
        self._versions = [0] * count
        self._homes = [0] * count

    async def close(self) -> None:
        """Close what it opened."""
        await self._session.close()

    async def counts(self) -> Counter[str]:
        """Return the status writes so far, by resource, and the reloads."""
        text = (await self._raw.request("GET", "/metrics")).decode()
        counts = Counter({name: int(float(n)) for name, n in _WRITES.findall(text)})
        url = f"http://{self.address}:{HEALTH_PORT}/metrics"
        async with self._session.get(url) as response:
            match = re.search(r"agent_reloads_total\S* (\d+)", await response.text())
        assert match is not None
        counts["reloads"] = int(match[1])
        return counts

    async def _all(self, work: Callable[[int], Any]) -> None:
        gate = asyncio.Semaphore(32)

        async def one(number: int) -> None:
            async with gate:
                await work(number)

        await asyncio.gather(*(one(number) for number in range(self.count)))

    async def services(self) -> None:
        """Create a Service for each route."""

        async def create(number: int) -> None:
            (resource, manifest), (slices, endpoints) = propagation.service(number)
            await self.client.create(resource, manifest)
            await self.client.create(slices, {**endpoints, "endpoints": self._endpoints(number)})

        await self._all(create)

    def _endpoints(self, number: int) -> list[Object]:
        return [{"addresses": [HOMES[self._homes[number]]]}]

    async def attach(self) -> Object:
        """Create all routes."""
        before, started = await self.counts(), time.perf_counter()
        await self._all(
            lambda n: self.client.create(resources.HTTP_ROUTES, propagation.route(f"r{n}", n))
        )
        return await self._attached(before, started, self.count)

    async def detach(self) -> Object:
        """Delete all routes."""
        before, started = await self.counts(), time.perf_counter()
        await self._all(
            lambda n: self.client.delete(resources.HTTP_ROUTES, f"r{n}", namespace=NAMESPACE)
        )
        return await self._attached(before, started, 0)

    async def _attached(self, before: Counter[str], started: float, count: int) -> Object:
        done = time.perf_counter()
        result = await self.gateways.until(lambda objects: attached(objects) == count, 300)
        routes = await self.routes.until(
            lambda objects: len(objects) == count and all(map(accepted, objects.values())), 300
        )
        await asyncio.sleep(2)
        return {
            "requests took s": round(done - started, 2),
            "attachedRoutes s after": round(result - done, 2),
            "routes s after": round(max(0.0, routes - done), 2),
            **(await self.counts() - before),
        }

    async def _until(self, number: int, holds: Callable[[str, Any], bool], poll: float) -> float:
        """Request a route until the condition holds for the response. Return the time."""
        url, host = f"http://{self.address}:{PORT}/", f"r{number}.bench.example"
        async with asyncio.timeout(60):
            while True:
                async with self._session.get(url, headers={"Host": host}) as response:
                    if response.status != 200:
                        raise RuntimeError(f"{host} answers {response.status}")
                    if holds(await response.text(), response.headers):
                        return time.perf_counter()
                await asyncio.sleep(poll)

    async def change(self, changes: int) -> Object:
        """Change one route again and again."""
        number = self.count // 2
        before, times = await self.counts(), []
        for version in range(1, changes + 1):
            manifest = propagation.route(f"r{number}", number)
            edit = {"set": [{"name": "x-version", "value": str(version)}]}
            manifest["spec"]["rules"][0]["filters"] = [
                {"type": "ResponseHeaderModifier", "responseHeaderModifier": edit}
            ]
            await self.client.patch(
                resources.HTTP_ROUTES, f"r{number}", {"spec": manifest["spec"]}, NAMESPACE
            )
            started = time.perf_counter()
            times.append(await self._until(number, _shows(str(version)), 0.005) - started)
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        return {**percentiles(times), **(await self.counts() - before)}

    async def churn(self, rate: float, seconds: float) -> Object:
        """Move endpoints of random Services under steady load."""
        before, times = await self.counts(), list[float]()
        answers: Counter[str] = Counter()
        load = [
            asyncio.create_task(self._load(answers, keep_alive=n % 2 == 0)) for n in range(CLIENTS)
        ]
        busy: set[int] = set()
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for turn in range(int(rate * seconds)):
                free = [number for number in range(self.count) if number not in busy]
                number = random.choice(free)
                busy.add(number)
                group.create_task(self._move(number, times, busy))
                if turn == int(rate * seconds) // 2:
                    fresh = group.create_task(self._fresh())
                await asyncio.sleep(max(0.0, begun + (turn + 1) / rate - time.perf_counter()))
        took = time.perf_counter() - begun
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
        after = await self.counts() - before
        return {
            **percentiles(times),
            "status of a new route s": round(fresh.result(), 3),
            "reloads a minute": round(after["reloads"] / took * 60),
            "requests": sum(answers.values()),
            "failed": {what: n for what, n in answers.items() if what != "200"},
            **after,
        }

    async def _move(self, number: int, times: list[float], busy: set[int]) -> None:
        self._homes[number] = (self._homes[number] + 1) % len(HOMES)
        home = HOMES[self._homes[number]]
        await self.client.patch(
            resources.ENDPOINT_SLICES,
            f"backend-{number}-1",
            {"endpoints": self._endpoints(number)},
            NAMESPACE,
        )
        started = time.perf_counter()
        times.append(await self._until(number, lambda text, _: text == home, 0.02) - started)
        busy.discard(number)

    async def _fresh(self) -> float:
        """Create a route. Return the time until its first status."""
        await self.client.create(resources.HTTP_ROUTES, propagation.route("fresh", 0))
        started = time.perf_counter()
        at = await self.routes.until(lambda all_: accepted(all_.get("fresh", {})), 60)
        await self.client.delete(resources.HTTP_ROUTES, "fresh", namespace=NAMESPACE)
        return at - started

    async def _load(self, answers: Counter[str], *, keep_alive: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=not keep_alive)
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                host = f"r{random.randrange(self.count)}.bench.example"
                try:
                    url = f"http://{self.address}:{PORT}/"
                    async with session.get(url, headers={"Host": host}) as response:
                        await response.read()
                        answers[str(response.status)] += 1
                except aiohttp.ClientError as error:
                    answers[type(error).__name__] += 1
                await asyncio.sleep(0.05)


def _shows(version: str) -> Callable[[str, Any], bool]:
    return lambda _, headers: headers.get("x-version") == version


def percentiles(times: Iterable[float]) -> Object:
    """Return p50 and p99 in seconds."""
    ordered = sorted(times)
    last = min(len(ordered) - 1, int(len(ordered) * 0.99))
    return {"p50 s": round(statistics.median(ordered), 3), "p99 s": round(ordered[last], 3)}


@contextlib.asynccontextmanager
async def installed(options: argparse.Namespace) -> AsyncIterator[Bench]:
    """Run an installation with a Gateway and a Service for each route to come."""
    with propagation.state_directory() as state:
        async with backends(), propagation.gatehouse(state, options.pool):
            client = await propagation.connect(state)
            raw = Connection(config.from_kubeconfig(state / "kubeconfig"))
            raw.start()
            await client.create(resources.GATEWAYS, propagation.gateway())
            address = await propagation.address_of(client)
            bench = Bench(client, raw, address, options.routes)
            await bench.services()
            following = [
                asyncio.create_task(watch.run()) for watch in (bench.routes, bench.gateways)
            ]
            yield bench
            for task in following:
                task.cancel()
            await bench.close()
            await raw.close()
            await client.__aexit__(None, None, None)


async def run(options: argparse.Namespace) -> bool:
    """Measure and print one line per result. Return whether no request failed."""
    print(f"| {options.routes:,} routes | |\n| --- | --- |", flush=True)

    def note(name: str, figures: Object) -> None:
        print(f"| {name} | {', '.join(f'{k}: {v}' for k, v in figures.items())} |", flush=True)

    async with installed(options) as bench:
        note("attach", await bench.attach())
        note("change one", await bench.change(options.changes))
        churn = await bench.churn(options.rate, options.seconds)
        note(f"endpoints, {options.rate:g} changes a second", churn)
        note("detach", await bench.detach())
    return not churn["failed"]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--routes", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pool", default="127.110.0.0/16")
    if not asyncio.run(run(parser.parse_args())):
        sys.exit(1)


if __name__ == "__main__":
    main()
