"""Time until a new HTTPRoute is in traffic, and its cost.

With N HTTPRoutes there already, one more is created and polled, each time over a new connection,
until it answers 200. Reported per N: p50 and p99 of that time, every answer that was neither 404
(not there yet) nor 200 (must be none), CPU seconds per change and resident memory of the
controller, the agent and NGINX.

    python bench/route_propagation.py --routes 10,1000,5000 --samples 30 --out bench/out
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from gatehouse.apis import resources
from gatehouse.kube.client import Client
from kube_base.types.resource import Resource

NAMESPACE = "default"
PORT = 8080
POLL = 0.005
NET = f"127.91.{random.randint(0, 255)}"
"""Not always the same, so that two benchmarks may run at once."""
BACKENDS = tuple(f"{NET}.{number}" for number in range(1, 5))
BACKEND_PORT = 9080
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def state_directory() -> Iterator[Path]:
    """Yield the directory of an installation, and remove it. A failure prints the log's end."""
    state = Path(tempfile.mkdtemp(prefix="gatehouse-bench-"))
    try:
        yield state
    except BaseException:
        print((state / "up.log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        shutil.rmtree(state, ignore_errors=True)


class Usage:
    """CPU seconds and resident bytes of the processes that belong to one part."""

    def __init__(self, word: str, state: Path) -> None:
        self.word, self.state = word, state

    def read(self) -> tuple[float, int]:
        """Return CPU seconds so far and resident bytes, summed over the part's processes."""
        seconds, resident = 0.0, 0
        for entry in self.processes():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                seconds += sum(int(fields[index]) for index in (11, 12, 13, 14)) / TICK
                resident += int(fields[21]) * PAGE
        return seconds, resident

    def processes(self) -> list[Path]:
        """Return the processes of the part, as directories of /proc."""
        result: list[Path] = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_text().split("\0")
                text = " ".join(command) + (entry / "environ").read_text(errors="replace")
                if self.word in command[:8] and str(self.state) in text:
                    result.append(entry)
                elif self.word == "envoy" and command[0].endswith("/envoy"):
                    result += [entry] if str(self.state) in text else []
                elif self.word == "nginx" and self._is_master(command[0]):
                    # NGINX's title overwrites its environment; its workers name no path at all.
                    children = (entry / "task" / entry.name / "children").read_text()
                    result += [entry, *(Path("/proc") / pid for pid in children.split())]
        return result

    def _is_master(self, title: str) -> bool:
        return title.startswith("nginx: master") and str(self.state) in title


async def _hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


@contextlib.asynccontextmanager
async def backends() -> AsyncIterator[None]:
    """Run the backends inside this process."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _hello)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    for address in BACKENDS:
        await web.TCPSite(runner, address, BACKEND_PORT).start()
    try:
        yield
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def gatehouse(state: Path, pool: str, *more: str) -> AsyncIterator[None]:
    """Run ``gatehouse up`` on a state directory of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gatehouse", "up", "--state-dir", str(state)),
        *("--api-address", "127.0.0.1:0", "--agent-address", "127.0.0.1:0"),
        *("--address-pool", pool, "--log-format", "json", *more),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=(state / "up.log").open("wb"),
    )
    try:
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def connect(state: Path) -> Client:
    """Wait for the API server and give a client of it."""
    kubeconfig = state / "kubeconfig"
    async with asyncio.timeout(60):
        while True:
            if kubeconfig.exists():
                client = await Client.from_kubeconfig(kubeconfig).__aenter__()
                with contextlib.suppress(Exception):
                    await client.list(resources.NAMESPACES)
                    return client
                await client.__aexit__(None, None, None)
            await asyncio.sleep(0.2)


def gateway(class_name: str = "gatehouse-nginx") -> dict[str, Any]:
    return {
        "apiVersion": resources.GATEWAYS.api_version,
        "kind": "Gateway",
        "metadata": {"name": "bench", "namespace": NAMESPACE},
        "spec": {
            "gatewayClassName": class_name,
            "listeners": [
                {
                    "name": "http",
                    "port": PORT,
                    "protocol": "HTTP",
                    "allowedRoutes": {"namespaces": {"from": "Same"}},
                }
            ],
        },
    }


def service(number: int) -> list[tuple[Resource, dict[str, Any]]]:
    name = f"backend-{number}"
    return [
        (
            resources.SERVICES,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"ports": [{"name": "http", "port": 80, "targetPort": BACKEND_PORT}]},
            },
        ),
        (
            resources.ENDPOINT_SLICES,
            {
                "apiVersion": resources.ENDPOINT_SLICES.api_version,
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"{name}-1",
                    "namespace": NAMESPACE,
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": BACKEND_PORT, "protocol": "TCP"}],
                "endpoints": [{"addresses": [address]} for address in BACKENDS[:2]],
            },
        ),
    ]


def route(name: str, backend: int) -> dict[str, Any]:
    return {
        "apiVersion": resources.HTTP_ROUTES.api_version,
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "parentRefs": [{"name": "bench"}],
            "hostnames": [f"{name}.bench.example"],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                    "backendRefs": [{"name": f"backend-{backend}", "port": 80}],
                }
            ],
        },
    }


async def create_routes(client: Client, first: int, last: int) -> None:
    """Create routes ``first`` to ``last - 1``, 32 at a time."""
    gate = asyncio.Semaphore(32)

    async def one(number: int) -> None:
        async with gate:
            await client.create(resources.HTTP_ROUTES, route(f"r{number}", number % 10))

    await asyncio.gather(*(one(number) for number in range(first, last)))


async def until_answered(
    session: aiohttp.ClientSession, address: str, name: str, answers: Counter[str], limit: float
) -> float:
    """Poll until the route answers 200. Return the time."""
    async with asyncio.timeout(limit):
        while True:
            try:
                async with session.get(
                    f"http://{address}:{PORT}/", headers={"Host": f"{name}.bench.example"}
                ) as response:
                    answers[str(response.status)] += 1
                    if response.status == 200:
                        return time.perf_counter()
            except aiohttp.ClientError as error:
                answers[type(error).__name__] += 1
            await asyncio.sleep(POLL)


async def address_of(client: Client) -> str:
    """Wait until the Gateway is programmed. Return its address."""
    async with asyncio.timeout(60):
        while True:
            status = (await client.get(resources.GATEWAYS, "bench", namespace=NAMESPACE)).get(
                "status", {}
            )
            conditions = {item["type"]: item["status"] for item in status.get("conditions", ())}
            if conditions.get("Programmed") == "True" and status.get("addresses"):
                return str(status["addresses"][0]["value"])
            await asyncio.sleep(0.1)


async def until_settled(client: Client) -> None:
    """Wait until every route has its status: thousands are still being written after creation."""
    async with asyncio.timeout(600):
        while True:
            routes = (await client.list(resources.HTTP_ROUTES, NAMESPACE)).items
            if all(http_route.get("status", {}).get("parents") for http_route in routes):
                break
            await asyncio.sleep(1)
    await asyncio.sleep(3)


async def measure(
    client: Client,
    session: aiohttp.ClientSession,
    address: str,
    state: Path,
    proxy: str,
    existing: int,
    samples: int,
) -> dict[str, Any]:
    """Create ``samples`` routes one after another and time each."""
    parts = {part: Usage(part, state) for part in ("controller", "agent", "apiserver")}
    parts["proxy"] = Usage(proxy, state)
    before = {part: usage.read()[0] for part, usage in parts.items()}
    times: list[float] = []
    answers: Counter[str] = Counter()
    for sample in range(samples):
        name = f"new-{existing}-{sample}"
        started = time.perf_counter()
        await client.create(resources.HTTP_ROUTES, route(name, sample % 10))
        times.append(await until_answered(session, address, name, answers, 120) - started)
        await asyncio.sleep(0.05)
    after = {part: usage.read() for part, usage in parts.items()}
    ordered = sorted(times)
    return {
        "existing": existing,
        "samples": samples,
        "p50_s": round(statistics.median(ordered), 4),
        "p99_s": round(ordered[min(samples - 1, int(samples * 0.99))], 4),
        "min_s": round(ordered[0], 4),
        "answers": dict(answers),
        "wrong_answers": sum(n for what, n in answers.items() if what not in {"200", "404"}),
        "cpu_s_per_change": {
            part: round((after[part][0] - before[part]) / samples, 4) for part in parts
        },
        "rss_mb": {part: round(after[part][1] / 1e6, 1) for part in parts},
    }


async def run(counts: list[int], samples: int, pool: str, class_name: str) -> list[dict[str, Any]]:
    """Measure at each of ``counts`` existing routes, on one growing installation."""
    results = []
    with state_directory() as state:
        async with (
            backends(),
            gatehouse(state, pool),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        ):
            client = await connect(state)
            for number in range(10):
                for resource, manifest in service(number):
                    await client.create(resource, manifest)
            await client.create(resources.GATEWAYS, gateway(class_name))
            address = await address_of(client)
            have = 0
            for count in counts:
                started = time.perf_counter()
                await create_routes(client, have, count)
                have = count
                last = f"r{count - 1}"
                await until_answered(session, address, last, Counter(), 600)
                print(f"{count} routes there in {time.perf_counter() - started:.1f} s", flush=True)
                await until_settled(client)
                proxy = class_name.rpartition("-")[2]
                results.append(
                    await measure(client, session, address, state, proxy, count, samples)
                )
                print(json.dumps(results[-1]), flush=True)
            await client.__aexit__(None, None, None)
    return results


def table(results: list[dict[str, Any]]) -> str:
    """Render the results as Markdown."""
    lines = [
        "| routes | p50 s | p99 s | neither 404 nor 200 | CPU s per change: controller / agent / "
        "proxy | RSS MB: controller / agent / proxy |",
        "| ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for row in results:
        cpu, rss = row["cpu_s_per_change"], row["rss_mb"]
        parts = ("controller", "agent", "proxy")
        lines.append(
            f"| {row['existing']:,} | {row['p50_s']:.3f} | {row['p99_s']:.3f} "
            f"| {row['wrong_answers']} | {' / '.join(f'{cpu[part]:.3f}' for part in parts)} "
            f"| {' / '.join(f'{rss[part]:.0f}' for part in parts)} |"
        )
    return "\n".join(lines)


def picture(results: list[dict[str, Any]], path: Path) -> None:
    """Draw p50 and p99 over the number of routes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    counts = [row["existing"] for row in results]
    for name in ("p50_s", "p99_s"):
        axes.plot(counts, [row[name] for row in results], marker="o", label=name[:3])
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("HTTPRoutes there already")
    axes.set_ylabel("seconds to the first 200")
    axes.set_title("A new HTTPRoute reaches traffic")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--routes", default="10,1000,5000")
    parser.add_argument("--class", dest="class_name", default="gatehouse-nginx")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--pool", default="127.109.0.0/16")
    parser.add_argument("--out", type=Path, default=Path("bench/out"))
    options = parser.parse_args()
    counts = sorted(int(count) for count in options.routes.split(","))
    results = asyncio.run(run(counts, options.samples, options.pool, options.class_name))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "route_propagation.json").write_text(json.dumps(results, indent=2) + "\n")
    picture(results, options.out / "route_propagation.png")
    print(table(results))
    if any(row["wrong_answers"] for row in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
