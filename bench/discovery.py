"""Time of a change from the control plane through the relay into an Envoy's traffic.

N clusters with an endpoint each and a virtual host for each. Then, one at a time: other endpoints,
a virtual host that leads elsewhere, and a new cluster with a virtual host. A change is served when
a request gets the new answer, and confirmed when the control plane knows.

    python bench/discovery.py --clusters 100,5000 --samples 20 [--direct]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.envoy_running import (
    EnvoyControlPlane,
    backend,
    cluster,
    direct_envoy,
    endpoints,
    listener,
    routes,
)
from gatehouse.agent.envoy import supervisor
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_messages import Response
from gatehouse.dataplane.xds.resources import ResourceSet, XdsResource
from gatehouse.standalone.free_ports import free_port


class Counting:
    """Counts the bytes of responses that this process sends."""

    def __init__(self) -> None:
        self.bytes = 0
        self._write = delta.encode_delta_response
        delta.encode_delta_response = self._counted

    def _counted(self, response: Response, version: str) -> bytes:
        message = self._write(response, version)
        self.bytes += len(message)
        return message


async def ask(port: int, host: str) -> bytes:
    """Return the response body of a request over a new connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        return await reader.readexactly(length) if head.startswith(b"HTTP/1.1 200") else b""
    finally:
        writer.close()


def memory(pid: int) -> str:
    """Return the memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return f"{kilobytes / 1024:.0f} MB"


class Bench:
    """One control plane, one Envoy and the published resources."""

    def __init__(self, plane: EnvoyControlPlane, size: int, count: Counting) -> None:
        self.port = free_port()
        self.hosts = {f"h{n}": f"c{n}" for n in range(size)}
        self._plane = plane
        self._count = count
        self.published = ResourceSet()

    def everything(self, backend: tuple[str, int]) -> list[XdsResource]:
        """Return the initial resources."""
        result = [listener("http", self.port, "http"), self.routes()]
        for name in self.hosts.values():
            result += [cluster(name), endpoints(name, backend)]
        return result

    def routes(self) -> XdsResource:
        """Return all virtual hosts."""
        return routes("http", *self.hosts.items())

    async def change(self, new: list[XdsResource], host: str, answer: bytes) -> tuple[float, ...]:
        """Apply a change. Return milliseconds to traffic and to the report, and bytes."""
        before, begun = self._count.bytes, time.perf_counter()
        self.published = self.published.changed(new)
        self._plane.publish(self.published)
        while await ask(self.port, host) != answer:
            pass
        served = time.perf_counter() - begun
        await self._plane.until(lambda report: report.programmed, 120)
        confirmed = time.perf_counter() - begun
        return served * 1000, confirmed * 1000, self._count.bytes - before

    async def start(self, new: list[XdsResource]) -> float:
        """Return the seconds until all resources are served."""
        begun = time.perf_counter()
        self.published = ResourceSet(new)
        self._plane.publish(self.published)
        await self._plane.until(lambda report: report.programmed, 120)
        return time.perf_counter() - begun


def show(what: str, samples: list[tuple[float, ...]]) -> None:
    """Print the middle and the worst."""
    served, confirmed, size = zip(*samples, strict=True)
    print(
        f"  {what:22} served {statistics.median(served):7.1f} ms (worst {max(served):.1f}), "
        f"confirmed {statistics.median(confirmed):7.1f} ms, {statistics.median(size):.0f} bytes"
    )


def start_agent(environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start an agent."""
    command = [sys.executable, "-m", "gatehouse", "agent", "--proxy", "envoy"]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, env=dict(os.environ) | environ, stdout=nowhere, stderr=nowhere)


@contextlib.asynccontextmanager
async def relayed(plane: EnvoyControlPlane, directory: Path) -> AsyncIterator[list[int]]:
    """Run an agent. Yield a function for the pids of agent and Envoy."""
    agent = start_agent(plane.environment(directory))
    pids = [agent.pid]
    try:
        await plane.until(lambda report: bool(report.instances))
        pids += supervisor.find_running(directory / "run" / "envoy" / "bootstrap.json")
        yield pids
    finally:
        agent.terminate()
        await asyncio.to_thread(agent.wait)


@contextlib.asynccontextmanager
async def direct(plane: EnvoyControlPlane, directory: Path) -> AsyncIterator[list[int]]:
    """Run an Envoy that talks to the control plane itself."""
    async with direct_envoy(directory, plane) as process:
        await plane.until(lambda report: bool(report.instances))
        yield [process.pid]


async def measure(
    size: int,
    samples: int,
    run: Callable[[EnvoyControlPlane, Path], contextlib.AbstractAsyncContextManager[list[int]]],
    count: Counting,
) -> None:
    """Measure one size."""
    with tempfile.TemporaryDirectory(prefix="gh-") as name:
        directory = Path(name)
        plane = EnvoyControlPlane(directory)
        await plane.start()
        async with backend("one") as one, backend("two") as two, run(plane, directory) as pids:
            bench = Bench(plane, size, count)
            cold = await bench.start([*bench.everything(one), cluster("x"), endpoints("x", two)])
            print(f"{size} clusters: all served after {cold:.2f} s, {count.bytes / 1e6:.1f} MB")
            moves, switches, additions = [], [], []
            for n in range(samples):
                moves.append(await bench.change([endpoints(f"c{n}", two)], f"h{n}", b"two"))
            for n in range(samples, 2 * samples):
                bench.hosts[f"h{n}"] = "x"
                switches.append(await bench.change([bench.routes()], f"h{n}", b"two"))
            for n in range(samples):
                bench.hosts[f"new{n}"] = f"new{n}"
                new = [cluster(f"new{n}"), endpoints(f"new{n}", one), bench.routes()]
                additions.append(await bench.change(new, f"new{n}", b"one"))
            show("endpoints", moves)
            show("virtual host", switches)
            show("cluster, virtual host", additions)
            print("  memory:", ", ".join(memory(pid) for pid in pids), flush=True)
        await plane.server.stop(0.1)


async def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--clusters", default="100,5000")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--direct", action="store_true", help="without an agent")
    options = parser.parse_args()
    for size in map(int, options.clusters.split(",")):
        run = direct if options.direct else relayed
        count = Counting()
        await measure(size, options.samples, run, count)


if __name__ == "__main__":
    asyncio.run(main())
