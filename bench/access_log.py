"""Cost of metrics and of the access log: requests and connections per second on NGINX and on Envoy.

`make bench-access-log`: wrk makes the load on the same machine. NGINX and Envoy have one worker.
The variants take turns. Beside a proxy with a log, a process counts or forwards the entries like an
agent. The CPU time includes that process, and depends little on other load of the machine. The
last column is the share of the requests or connections that the process has not counted.

An L4 route forwards TCP connections with one request each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import msgspec
import throughput

from fakes import envoy_serving
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.origin import Origin
from gatehouse.standalone.pki import Pki


class Measured(NamedTuple):
    """Result of one round."""

    rate: float
    """Requests or connections per second."""
    tail: float
    """99th percentile in milliseconds."""
    cpu: float
    """CPU time of the proxy and of the agent in microseconds per request or connection."""
    agent: float
    """CPU time of the agent alone."""
    uncounted: float
    """Share of the requests or connections that are not in the metrics; 0 without metrics.

    It is less than 0 if the metrics have connections that wrk closed at its end.
    """


class Variant(NamedTuple):
    """A proxy and its logs."""

    proxy: str
    route: str = "HTTP"
    """``HTTP`` or ``TCP``."""
    metrics: bool = False
    access_log: bool = False

    @property
    def title(self) -> str:
        """Name in the table."""
        logs = [name for name in ("metrics", "access_log") if getattr(self, name)]
        return f"{self.proxy}, {self.route}, {' and '.join(logs).replace('_', ' ') or 'neither'}"


_AGENT = """
import asyncio, os, signal, sys
from pathlib import Path
from gatehouse.agent import connection_metrics, request_lines
from gatehouse.agent.access_log import LogForwarder
from gatehouse.agent.request_metrics import RouteMetrics
directory, proxy, total = Path(sys.argv[1]), sys.argv[2].upper(), Path(sys.argv[3])
files = Path(sys.argv[4])
async def run():
    requests = RouteMetrics(
        files / "requests.log", getattr(request_lines, f"{proxy}_LINES"), {}
    )
    connections = connection_metrics.ConnectionMetrics(
        files / "connections.log", getattr(connection_metrics, f"{proxy}_CONNECTIONS"), {}
    )
    log = LogForwarder(directory / "access.log", os.open(os.devnull, os.O_WRONLY))
    parts = (requests.run(), connections.run(), log.forward())
    tasks = [asyncio.create_task(part) for part in parts]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    counters = [rule.requests for rule in requests._rules]
    counters += [rule.connections for rule in connections._rules]
    total.write_text(str(sum(sum(counter.values()) for counter in counters)))
asyncio.run(run())
"""

_VARIANTS = [
    Variant(proxy, route, metrics, logged)
    for proxy in ("nginx", "envoy")
    for route in ("HTTP", "TCP")
    for metrics, logged in ((False, False), (True, False), (False, True), (True, True))
]


def gateway(variant: Variant) -> ir_gateway.GatewayConfiguration:
    """Return a gateway with a plain route."""
    endpoint = ir.Endpoint(throughput.ADDRESS, throughput.BACKEND)
    cluster = ir.Cluster("c-bench", (endpoint,), origin=Origin("Service", "a", "bench"))
    result = ir_gateway.GatewayConfiguration(
        "a/b",
        bind_address=throughput.ADDRESS,
        clusters=(cluster,),
        settings=DataPlaneSettings() if variant.access_log else DataPlaneSettings(access_log=None),
    )
    if variant.route == "TCP":
        origin = Origin("TCPRoute", "a", "b")
        target = ir_gateway.L4Host("", (ir_gateway.L4Backend("c-bench"),), origin=origin)
        listener = ir_gateway.L4Listener(throughput.PORT, "TCP", (target,))
        return msgspec.structs.replace(result, l4_listeners=(listener,))
    route = ir.Route("a/b/0/0", ir.Match(), ir.Forward((ir.Backend("c-bench"),)))
    host = ir.VirtualHost(throughput.HOST, (route,))
    http_listener = ir_gateway.Listener(throughput.PORT, "HTTP", (host,))
    return msgspec.structs.replace(result, listeners=(http_listener,))


def _nginx_files(variant: Variant) -> dict[str, bytes]:
    capabilities = nginx.NginxCapabilities.parse("1.31.3", access_log=True, failure_causes=True)
    generated = nginx.NginxGenerator(capabilities).generate(gateway(variant))
    return {path: file.content for path, file in generated.file_set.files.items()}


class Agent:
    """A process that reads the logs of a proxy like an agent."""

    def __init__(self, directory: Path, proxy: str, logs: Path) -> None:
        self._total = directory / "total"
        paths = [str(directory), proxy, str(self._total), str(logs)]
        self._process = subprocess.Popen([sys.executable, "-c", _AGENT, *paths])
        self.pid = self._process.pid
        # The process loads its modules first.
        time.sleep(4)

    def counted(self) -> int:
        """Let it end. Return the number of requests or connections that it has counted."""
        # The last lines arrive late.
        time.sleep(2)
        self._process.terminate()
        self._process.wait()
        return int(self._total.read_text())

    def stop(self) -> None:
        """End it, if it has not ended. It would keep the output open."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def reading(variant: Variant, directory: Path, logs: Path) -> Iterator[Agent | None]:
    """Run the process that reads the logs of a proxy, if it has any."""
    if not variant.metrics and not variant.access_log:
        yield None
        return
    agent = Agent(directory, variant.proxy, logs)
    try:
        yield agent
    finally:
        agent.stop()


@contextlib.asynccontextmanager
async def serving(variant: Variant, directory: Path) -> AsyncIterator[tuple[str, int, Path]]:
    """Run a proxy with the route. Yield its address, its process and the directory of its logs."""
    if variant.proxy == "nginx":
        server = throughput.Nginx(directory, _nginx_files(variant), counts=variant.metrics)
        try:
            yield throughput.ADDRESS, server.pid, directory
        finally:
            server.stop()
        return
    async with envoy_serving.serving(
        gateway(variant),
        output=directory / "access.log",
        counts=variant.metrics,
    ) as served:
        yield served.address, served.running.process.pid, served.running.log.parent


def _cpu_seconds(roots: list[int]) -> float:
    """Return the CPU time of processes and of their children."""
    total, pids = 0, roots
    while pids:
        children: list[str] = []
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
            children += Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pids = [int(child) for child in children]
    return total / os.sysconf("SC_CLK_TCK")


async def measure(variant: Variant, seconds: int) -> Measured:
    """Measure one variant."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with serving(variant, directory) as (address, pid, logs):
            with reading(variant, directory, logs) as agent:
                agents = [agent.pid] if agent else []
                sent = await asyncio.to_thread(_load, variant, 1, address)
                before, agent_before = _cpu_seconds([pid, *agents]), _cpu_seconds(agents)
                load = await asyncio.to_thread(_load, variant, seconds, address)
                # Includes the lines that the agent reads after the load.
                await asyncio.sleep(2)
                cpu = _cpu_seconds([pid, *agents]) - before
                own = _cpu_seconds(agents) - agent_before
                counted = agent.counted() if agent else 0
            number = sent.requests + load.requests
            uncounted = 1 - counted / number if variant.metrics else 0.0
            return Measured(
                load.requests / seconds,
                load.tail,
                cpu * 1e6 / load.requests,
                own * 1e6 / load.requests,
                uncounted,
            )


class Load(NamedTuple):
    """Result of wrk."""

    requests: int
    tail: float


def _load(variant: Variant, seconds: int, address: str) -> Load:
    reused = variant.route == "HTTP"
    answer = throughput.wrk(seconds, address=address, reuse_connections=reused)
    number = re.search(r"(\d+) requests in", answer)
    assert number is not None
    return Load(int(number[1]), throughput.parse(answer)[1])


async def compare(variants: list[Variant], seconds: int, rounds: int) -> None:
    """Let the variants take turns, and print a table."""
    results: dict[Variant, list[Measured]] = {variant: [] for variant in variants}
    for _ in range(rounds):
        for variant in variants:
            results[variant].append(await measure(variant, seconds))
    print(
        "| proxy, route, logs | per second | ratio | p99 | CPU of each | of the agent | uncounted |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for variant, measured in results.items():
        pairs = zip(measured, results[Variant(variant.proxy, variant.route)], strict=True)
        ratio = statistics.median(own.rate / base.rate for own, base in pairs)
        rate, tail, cpu, agent, uncounted = map(statistics.median, zip(*measured, strict=True))
        print(
            f"| {variant.title} | {rate:,.0f} | {ratio:.2f} | {tail:.1f} ms | {cpu:.1f} µs "
            f"| {agent:.1f} µs | {uncounted:.2%} |",
            flush=True,
        )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--proxy", choices=("nginx", "envoy"), help="measure only this proxy")
    parser.add_argument("--route", choices=("HTTP", "TCP"), help="measure only this kind of route")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is needed: install Debian's package wrk")
    variants = [
        variant
        for variant in _VARIANTS
        if options.proxy in (None, variant.proxy) and options.route in (None, variant.route)
    ]
    with tempfile.TemporaryDirectory() as directory:
        pki = Pki(Path(directory) / "pki")
        backend = throughput.Nginx(Path(directory), throughput.answering(pki))
        try:
            asyncio.run(compare(variants, options.seconds, options.rounds))
        finally:
            backend.stop()


if __name__ == "__main__":
    main()
