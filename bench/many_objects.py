"""Cost of one tenant's objects for others at the embedded API server.

`make bench-many-objects`: a tenant has 100,000 ConfigMaps in its namespace. Another tenant lists,
reads and watches ten objects in its own one.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.process import ApiServer

TOKEN = "bench"
LARGE, SMALL = (f"/api/v1/namespaces/{name}/configmaps" for name in ("default", "kube-system"))
ROUNDS = 20


async def fill(http: aiohttp.ClientSession, path: str, count: int) -> float:
    """Create objects. Return the duration in seconds."""
    slots = asyncio.Semaphore(64)

    async def create(number: int) -> None:
        body = {"metadata": {"name": f"m{number}"}, "data": {"a": "1", "b": "2"}}
        async with slots, http.post(path, json=body) as response:
            assert response.status == 201, await response.text()

    started = time.perf_counter()
    for start in range(0, count, 5000):
        numbers = range(start, min(start + 5000, count))
        await asyncio.gather(*(create(number) for number in numbers))
    return time.perf_counter() - started


async def durations(http: aiohttp.ClientSession, path: str) -> tuple[float, float]:
    """Return median and maximum of the duration of a list in seconds."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        async with http.get(path) as response:
            assert response.status == 200
            await response.read()
        times.append(time.perf_counter() - started)
    return statistics.median(times), max(times)


async def event_delay(http: aiohttp.ClientSession) -> float:
    """Return the median time in seconds from a write to its event."""
    times = []
    async with http.get(SMALL) as response:
        version = (await response.json())["metadata"]["resourceVersion"]
    params = {"watch": "1", "resourceVersion": version}
    async with http.get(SMALL, params=params) as stream:
        for number in range(ROUNDS):
            started = time.perf_counter()
            async with http.post(SMALL, json={"metadata": {"name": f"e{number}"}}) as response:
                assert response.status == 201
            await stream.content.readline()
            times.append(time.perf_counter() - started)
    return statistics.median(times)


async def measure(server: ApiServer, count: int) -> None:
    """Fill, restart and print the numbers."""
    context = ssl.create_default_context(cafile=str(server.state.pki.ca().cert))

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            server.url,
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Authorization": f"Bearer {TOKEN}"},
            read_bufsize=2**22,
        )

    def memory() -> float:
        assert server.process is not None
        text = Path(f"/proc/{server.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+)", text)
        return int(match[1]) / 1024 if match else 0.0

    async with session() as http:
        await fill(http, SMALL, 10)
        before, idle = await durations(http, SMALL), memory()
        seconds = await fill(http, LARGE, count)
        after = await durations(http, SMALL)
        delay = await event_delay(http)
        started = time.perf_counter()
        async with http.get(LARGE) as response:
            size = len(await response.read())
        whole = time.perf_counter() - started
    full = memory()
    server.stop()
    started = time.perf_counter()
    server.start()
    restart = time.perf_counter() - started
    print(f"list of 10 objects: {before[0] * 1000:.1f} ms (max {before[1] * 1000:.1f})")
    print(f"the same beside {count:,}: {after[0] * 1000:.1f} ms (max {after[1] * 1000:.1f})")
    print(f"event of one of them: {delay * 1000:.1f} ms")
    print(f"list of all {count:,}: {whole:.2f} s, {size / 2**20:.0f} MiB")
    print(f"creation: {count / seconds:,.0f} a second; start: {restart:.1f} s")
    print(f"memory: {idle:.0f} MiB idle, {full:.0f} MiB, {memory():.0f} MiB after a restart")


def main() -> None:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=100_000)
    count = parser.parse_args().objects
    with tempfile.TemporaryDirectory() as directory:
        tokens = Path(directory) / "tokens.csv"
        tokens.write_text(f'{TOKEN},bench,bench,"system:masters"\n')
        server = ApiServer(Path(directory) / "state", "--token-file", str(tokens))
        server.start()
        try:
            asyncio.run(measure(server, count))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
