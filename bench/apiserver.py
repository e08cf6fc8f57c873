"""Throughput of the embedded API server, compared with etcd alone in the same run.

`make bench-apiserver`: wrk (Debian's package) makes the load on the same machine, over TLS, with a
token. Numbers are requests a second; etcd's are of its own client protocol, without TLS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.process import ApiServer, Etcd
from kube_api_server.storage.etcd.address import parse_etcd_address
from kube_api_server.storage.etcd.client import EtcdClient
from kube_api_server.storage.names import DEFAULT_NAMES

TOKEN = "bench"
MAPS = "/api/v1/namespaces/default/configmaps"
ROUTES = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes"

ROUTE = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "metadata": {"name": "NAME"},
    "spec": {
        "parentRefs": [{"name": "gateway"}],
        "hostnames": ["NAME.example.com"],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/a"}}],
                "filters": [
                    {
                        "type": "RequestHeaderModifier",
                        "requestHeaderModifier": {"set": [{"name": "x", "value": "y"}]},
                    }
                ],
                "backendRefs": [{"name": "service", "port": 80}],
            }
        ],
    },
}
MAP = {"metadata": {"name": "NAME"}, "data": {"a": "1", "b": "2", "c": "3"}}

SCRIPT = """
local counter, id = 0, tostring({}):gsub("table: 0x", "")
local body = [[%s]]
request = function()
  counter = counter + 1
  local name = id .. "-" .. counter
  return wrk.format("%s", "%s" .. %s, {
    ["Authorization"] = "Bearer %s",
    ["Content-Type"] = "%s",
    ["User-Agent"] = "bench/1",
  }, (body:gsub("NAME", name)))
end
"""


def wrk(
    url: str,
    directory: Path,
    *,
    method: str = "GET",
    path: str = "",
    body: Any = None,
    suffix: str = '""',
    connections: int = 64,
    seconds: int = 6,
    kind: str = "application/json",
) -> tuple[float, str]:
    """Run wrk. Return requests per second and the latencies."""
    script = directory / "script.lua"
    text = json.dumps(body) if body is not None else ""
    script.write_text(SCRIPT % (text, method, path, suffix, TOKEN, kind))
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", str(script)]
    answer = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", answer)
    if wrong:
        raise RuntimeError(f"{wrong[1]} requests failed:\n{answer}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", answer)
    matches = re.findall(r"(50|99)%\s+(\S+)", answer)
    assert rate is not None
    return float(rate[1]), ", ".join(f"p{p} {value}" for p, value in matches)


class Session:
    """Plain requests with the token."""

    def __init__(self, server: ApiServer) -> None:
        context = ssl.create_default_context(cafile=str(server.state.pki.ca().cert))
        self.http = aiohttp.ClientSession(
            server.url,
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Authorization": f"Bearer {TOKEN}"},
            read_bufsize=2**22,
        )


async def fill(session: Session, count: int) -> None:
    """Create routes until there are so many."""
    async with session.http.get(ROUTES, params={"limit": "1"}) as response:
        document = await response.json()
    have = len(document["items"]) + document["metadata"].get("remainingItemCount", 0)
    slots = asyncio.Semaphore(32)

    async def one(number: int) -> None:
        text = json.dumps(ROUTE).replace("NAME", f"fill-{number}")
        headers = {"Content-Type": "application/json"}
        async with slots, session.http.post(ROUTES, data=text, headers=headers) as response:
            assert response.status == 201, await response.text()

    await asyncio.gather(*(one(number) for number in range(max(0, count - have))))


async def listing(session: Session) -> tuple[float, int]:
    """Return the duration of a list of all objects in seconds, and its size in bytes."""
    took = []
    size = 0
    for _ in range(7):
        started = time.perf_counter()
        async with session.http.get(ROUTES, params={"limit": "5000"}) as response:
            size = len(await response.read())
        took.append(time.perf_counter() - started)
    return statistics.median(took), size


async def fan_out(session: Session, watchers: int, writes: int) -> tuple[float, float, float]:
    """Return seconds from a write to its event at watchers: p50, p99, last of one write."""
    arrived: list[list[float]] = [[] for _ in range(writes)]
    ready = asyncio.Semaphore(0)
    name = "watched"
    async with session.http.post(MAPS, json={"metadata": {"name": name}}) as response:
        revision = (await response.json())["metadata"]["resourceVersion"]

    async def watch() -> None:
        query = {"watch": "1", "resourceVersion": revision}
        async with session.http.get(MAPS, params=query, timeout=aiohttp.ClientTimeout()) as stream:
            ready.release()
            number = 0
            async for _ in stream.content:
                arrived[number].append(time.perf_counter())
                number += 1
                if number == writes:
                    return

    tasks = [asyncio.create_task(watch()) for _ in range(watchers)]
    for _ in range(watchers):
        await ready.acquire()
    await asyncio.sleep(1)
    sent = []
    headers = {"Content-Type": "application/merge-patch+json"}
    for number in range(writes):
        sent.append(time.perf_counter())
        body = json.dumps({"data": {"n": str(number)}})
        async with session.http.patch(f"{MAPS}/{name}", data=body, headers=headers) as response:
            assert response.status == 200
        await asyncio.sleep(0.5)
    await asyncio.gather(*tasks)
    delays = sorted(at - began for began, ats in zip(sent, arrived, strict=True) for at in ats)
    last = max(max(ats) - began for began, ats in zip(sent, arrived, strict=True))
    return delays[len(delays) // 2], delays[int(len(delays) * 0.99)], last


async def etcd_alone(address: str, seconds: float = 4.0) -> tuple[float, float]:
    """Return etcd's creates and reads per second, 64 at a time."""
    rates = []
    async with EtcdClient(parse_etcd_address(f"etcd://{address}/bench", DEFAULT_NAMES)) as client:

        async def create(number: int) -> None:
            await client.put(f"/bench/{os.getpid()}/{number}".encode(), b"x" * 400, 0)

        async def read(_: int) -> None:
            await client.list_all(b"/bench/one")

        await client.put(b"/bench/one", b"x" * 400, 0)
        for work in (create, read):
            count, started = 0, time.perf_counter()
            while time.perf_counter() - started < seconds:
                await asyncio.gather(*(work(count + n) for n in range(64)))
                count += 64
            rates.append(count / (time.perf_counter() - started))
    return rates[0], rates[1]


def resident(server: ApiServer) -> float:
    """Return the server's memory in MB."""
    assert server.process is not None
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+)", text)
    return int(match[1]) / 1024 if match else 0.0


async def measure(server: ApiServer, directory: Path, watchers: int) -> dict[str, str]:
    """Run all measurements. Return the results by name."""
    result: dict[str, str] = {}
    url = server.url
    session = Session(server)

    def note(name: str, rate: float, more: str) -> None:
        result[name] = f"{rate:,.0f}/s ({more})"
        print(f"  {name}: {result[name]}", flush=True)

    async def load(**options: Any) -> tuple[float, str]:
        return await asyncio.to_thread(wrk, url, directory, **options)

    note("creates of ConfigMaps", *await load(method="POST", path=MAPS, body=MAP))
    async with session.http.post(MAPS, json={"metadata": {"name": "one"}}) as response:
        assert response.status == 201
    merge = "application/merge-patch+json"
    update = {"data": {"a": "NAME"}}
    note("updates of one ConfigMap (merge patch)", *await load(
        method="PATCH", path=f"{MAPS}/one", body=update, kind=merge))  # fmt: skip
    note("gets", *await load(path=f"{MAPS}/one", connections=32))
    note(
        "creates of HTTPRoutes", *await load(method="POST", path=ROUTES, body=ROUTE, connections=32)
    )
    await fill(session, 5000)
    seconds, size = await listing(session)
    result["LIST of 5,000 HTTPRoutes"] = f"{seconds:.3f} s, {size / 1e6:.1f} MB"
    result["resident memory then"] = f"{resident(server):.0f} MB"
    p50, p99, last = await fan_out(session, watchers, 10)
    result[f"one write to {watchers:,} watchers"] = (
        f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, last {last * 1000:.0f} ms"
    )
    await session.http.close()
    return result


async def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", choices=["sqlite", "etcd"], default="sqlite")
    parser.add_argument("--watchers", type=int, default=1000)
    options = parser.parse_args()
    for needed in ("wrk", "etcd"):
        if shutil.which(needed) is None:
            sys.exit(f"{needed} is needed: install Debian's package wrk or etcd-server")
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        tokens = directory / "tokens.csv"
        tokens.write_text(f'{TOKEN},bench,1,"system:masters"\n')
        etcd = Etcd(directory / "etcd")
        etcd.start()
        storage = f"etcd://{etcd.address}/api" if options.storage == "etcd" else ""
        creates, reads = await etcd_alone(etcd.address)
        print(f"  etcd alone: {creates:,.0f} creates/s, {reads:,.0f} reads/s", flush=True)
        if not storage:
            etcd.stop()
        server = ApiServer(directory / "s", "--token-file", str(tokens), storage=storage)
        server.start()
        try:
            measurement = await measure(server, directory, options.watchers)
        finally:
            server.stop()
            etcd.stop()
    print(f"\n| {options.storage}, {os.cpu_count()} cores | |\n| --- | --- |")
    print(f"| etcd alone, 64 at a time | {creates:,.0f} creates/s, {reads:,.0f} reads/s |")
    for name, value in measurement.items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    asyncio.run(main())
