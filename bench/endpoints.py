"""Time until a change of endpoints is in traffic, and the NGINX reloads that it causes.

With N Services and a route to each, the only endpoint of one is replaced by another, which is asked
for over new connections until it answers. Then endpoints of random Services change several times a
second, and new workers of NGINX are counted: each is a reload's.

    python bench/endpoints.py --services 10,1000 --samples 30
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import route_propagation as common
from aiohttp import web

from gatehouse.apis import resources
from gatehouse.kube.client import Client

CHURN_SECONDS = 30.0
CHURN_RATE = 5.0
REST_SECONDS = 20.0
PARTS = ("controller", "agent", "nginx")


async def serve() -> web.ServerRunner:
    """Run backends that answer with their address."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        return web.Response(text=request.transport.get_extra_info("sockname")[0])

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    for address in common.BACKENDS:
        await web.TCPSite(runner, address, common.BACKEND_PORT).start()
    return runner


class Services:
    """Services with one endpoint each, and what each has now."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slices: dict[int, dict[str, Any]] = {}

    async def make(self, number: int) -> None:
        """Make a Service, its slice and a route to it."""
        (kind, one), (other, slice_) = common.service(number)
        slice_["endpoints"] = [{"addresses": [common.BACKENDS[0]]}]
        await self._client.create(kind, one)
        self._slices[number] = dict(await self._client.create(other, slice_))
        await self._client.create(resources.HTTP_ROUTES, common.route(f"r{number}", number))

    async def change(self, number: int) -> str:
        """Replace the endpoint of a Service. Return the new one."""
        known = self._slices[number]
        (before,) = known["endpoints"][0]["addresses"]
        address = random.choice([backend for backend in common.BACKENDS if backend != before])
        changed = {**known, "endpoints": [{"addresses": [address]}]}
        self._slices[number] = dict(await self._client.update(resources.ENDPOINT_SLICES, changed))
        return address


async def until(
    session: aiohttp.ClientSession, gateway: str, number: int, expected: str
) -> tuple[float, int]:
    """Poll until ``expected`` answers; give the moment, and how many answers were no answer."""
    wrong = 0
    url, headers = f"http://{gateway}:{common.PORT}/", {"Host": f"r{number}.bench.example"}
    async with asyncio.timeout(120):
        while True:
            async with session.get(url, headers=headers) as response:
                text = await response.text()
                if text == expected:
                    return time.perf_counter(), wrong
                wrong += response.status not in (200, 404)
            await asyncio.sleep(common.POLL)


def workers(state: Path) -> set[str]:
    """Return the worker processes of NGINX."""
    return {entry.name for entry in common.Usage("nginx", state).processes()}


async def churn(services: Services, count: int, state: Path) -> tuple[int, int]:
    """Change random Services for a while. Return the changes, and the new workers of NGINX."""
    begun, changes = time.monotonic(), 0
    known = workers(state)
    unchanged = len(known) - 1
    fresh = 0
    while time.monotonic() - begun < CHURN_SECONDS:
        await services.change(random.randrange(count))
        changes += 1
        await asyncio.sleep(1 / CHURN_RATE)
        now = workers(state)
        fresh += len(now - known)
        known |= now
    return changes, round(fresh / max(1, unchanged))


async def measure(
    services: Services,
    session: aiohttp.ClientSession,
    gateway: str,
    state: Path,
    count: int,
    samples: int,
) -> dict[str, Any]:
    """Measure with ``count`` Services there."""
    times, wrong = [], 0
    for _ in range(samples):
        number = random.randrange(count)
        started = time.perf_counter()
        expected = await services.change(number)
        moment, failed = await until(session, gateway, number, expected)
        times.append(moment - started)
        wrong += failed
        await asyncio.sleep(random.uniform(0.5, 3))
    cpu = await _usage(state, asyncio.sleep(REST_SECONDS))
    before = {part: common.Usage(part, state).read()[0] for part in PARTS}
    changes, reloads = await churn(services, count, state)
    after = {part: common.Usage(part, state).read()[0] for part in PARTS}
    ordered = sorted(times)
    return {
        "services": count,
        "p50_s": round(statistics.median(ordered), 3),
        "p99_s": round(ordered[min(samples - 1, int(samples * 0.99))], 3),
        "wrong_answers": wrong,
        "cpu_at_rest_percent": {part: round(100 * cpu[part] / REST_SECONDS, 2) for part in PARTS},
        "changes_per_minute": round(changes * 60 / CHURN_SECONDS),
        "reloads_per_minute": round(reloads * 60 / CHURN_SECONDS),
        "cpu_s_per_change": {
            part: round((after[part] - before[part]) / changes, 4) for part in PARTS
        },
    }


async def _usage(state: Path, work: Any) -> dict[str, float]:
    before = {part: common.Usage(part, state).read()[0] for part in PARTS}
    await work
    return {part: common.Usage(part, state).read()[0] - before[part] for part in PARTS}


async def run(counts: list[int], samples: int, pool: str) -> None:
    """Measure at each of ``counts`` Services, on one growing installation."""
    state = Path(tempfile.mkdtemp(prefix="gatehouse-bench-"))
    backends = await serve()
    try:
        async with (
            common.gatehouse(state, pool),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        ):
            client = await common.connect(state)
            await client.create(resources.GATEWAYS, common.gateway())
            gateway = await common.address_of(client)
            services, have = Services(client), 0
            for count in counts:
                for number in range(have, count):
                    await services.make(number)
                have = count
                await until(session, gateway, count - 1, common.BACKENDS[0])
                await asyncio.sleep(15)
                measurement = await measure(services, session, gateway, state, count, samples)
                print(json.dumps(measurement), flush=True)
            await client.__aexit__(None, None, None)
    except BaseException:
        print((state / "up.log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        await backends.cleanup()
        shutil.rmtree(state, ignore_errors=True)


def main() -> None:
    """Measure, and print a line of JSON for each number of Services."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", default="10,1000")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--pool", default="127.90.1.0/24")
    options = parser.parse_args()
    counts = [int(count) for count in options.services.split(",")]
    asyncio.run(run(counts, options.samples, options.pool))


if __name__ == "__main__":
    main()
