"""Time until external load balancers follow a Node, and its cost.

H hosts (the tests' fake of NGINX Plus, in processes of their own) hold U upstreams of N servers
each, for as many Services of type NodePort in a real `gatehouse up`. One Node joins, one leaves,
again and again; then one joins every second, and leaves again soon. A change has arrived when every
upstream of every host holds just the Nodes that there are.

    python bench/load_balancers.py --hosts 50 --upstreams 500 --nodes 100
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import route_propagation as common

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.nginx_plus import FakePlus, Plus, Server, Upstream
from fakes.nginx_plus.model import DEFAULTS
from gatehouse.apis import resources
from gatehouse.kube.client import AlreadyExists, Client

NAMESPACE = "nginx-ingress"
FIRST_PORT = 30000
STAY = 5
"""Seconds for which a Node is there that comes and goes."""

SERVING = 2
"""Processes among which the hosts are divided."""


def address(node: int) -> str:
    """Return the address of a Node."""
    return f"10.{node >> 8}.{node & 255}.1"


class Hosts:
    """Hosts in this process, controlled over its standard input."""

    def __init__(self, hosts: int, upstreams: int, nodes: int) -> None:
        self.fakes = [FakePlus(_plus(upstreams, nodes)) for _ in range(hosts)]
        self._upstreams = upstreams
        self.nodes = set(range(nodes))

    async def serve(self) -> None:
        """Serve until standard input ends."""
        async with contextlib.AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(fake.serving()) for fake in self.fakes]
            _say(urls)
            reader = asyncio.StreamReader()
            loop = asyncio.get_running_loop()
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
            cpu = 0.0
            while line := await reader.readline():
                await self._until(json.loads(line))
                used = resource.getrusage(resource.RUSAGE_SELF)
                calls = Counter(call.method for fake in self.fakes for call in fake.calls)
                failed = sum(call.status >= 400 for fake in self.fakes for call in fake.calls)
                for fake in self.fakes:
                    fake.calls.clear()
                cpu, before = used.ru_utime + used.ru_stime, cpu
                report = {"at": time.time(), "calls": calls, "failed": failed, "cpu": cpu - before}
                _say(report)

    async def _until(self, nodes: list[int]) -> None:
        """Wait until every upstream holds just these Nodes."""
        hosts = {address(node) for node in nodes}
        waiting = [upstream for fake in self.fakes for upstream in fake.plus.upstreams.values()]
        while True:
            # Looked at again only where it was not so: this process is busy with answering.
            waiting = [upstream for upstream in waiting if not _holds(upstream, hosts)]
            if not waiting:
                return
            await asyncio.sleep(0.02)


def _holds(upstream: Upstream, hosts: set[str]) -> bool:
    if len(upstream.servers) != len(hosts):
        return False
    return {server.server.partition(":")[0] for server in upstream.servers.values()} == hosts


def _plus(upstreams: int, nodes: int) -> Plus:
    written = []
    for number in range(upstreams):
        upstream = Upstream("http", f"u{number}", zone=f"u{number}", room=10_000)
        for node in range(nodes):
            # One dictionary of parameters for all: nothing here changes any.
            where = f"{address(node)}:{FIRST_PORT + number}"
            upstream.servers[node] = Server(node, where, DEFAULTS)
        upstream._next = nodes
        written.append(upstream)
    return Plus(*written)


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Serving:
    """Hosts in another process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def tell(self) -> Any:
        """Return the next message of the process."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the hosts ended")
        return json.loads(line)

    def ask(self, nodes: list[int]) -> None:
        """Have it say when every upstream holds these Nodes."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(nodes).encode() + b"\n")


@contextlib.asynccontextmanager
async def served(hosts: int, upstreams: int, nodes: int) -> AsyncIterator[list[Serving]]:
    """Run the hosts."""
    shares = [hosts // SERVING + (number < hosts % SERVING) for number in range(SERVING)]
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "--serve", "--hosts", str(share)),
            *("--upstreams", str(upstreams), "--nodes", str(nodes)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        for share in shares
        if share
    ]
    try:
        yield [Serving(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def arrived(serving: list[Serving], nodes: set[int]) -> dict[str, Any]:
    """Wait until all hosts have these Nodes. Return the time, and the requests since."""
    for process in serving:
        process.ask(sorted(nodes))
    reports = [await process.tell() for process in serving]
    calls: Counter[str] = Counter()
    for process in reports:
        calls.update(process["calls"])
    return {
        "at": max(report["at"] for report in reports),
        "calls": dict(calls),
        "failed": sum(report["failed"] for report in reports),
        "hosts_cpu": sum(report["cpu"] for report in reports),
    }


async def join(client: Client, number: int) -> None:
    """Make a Node that is ready."""
    node = await client.create(resources.NODES, {"metadata": {"name": f"n{number:04}"}})
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": address(number)}],
    }
    await client.update_status(resources.NODES, {**node, "status": status})


async def leave(client: Client, number: int) -> None:
    """Delete a Node."""
    await client.delete(resources.NODES, f"n{number:04}")


async def prepare(client: Client, urls: list[str], upstreams: int, nodes: int) -> None:
    """Make Nodes, Services and what asks for the load balancers."""
    for name in (NAMESPACE, "nlk"):
        with contextlib.suppress(AlreadyExists):
            await client.create(resources.NAMESPACES, {"metadata": {"name": name}})
    for number in range(nodes):
        await join(client, number)
    for number in range(upstreams):
        port = {"name": f"nlk-u{number}", "port": 80, "nodePort": FIRST_PORT + number}
        spec = {"type": "NodePort", "ports": [port]}
        metadata = {"name": f"s{number}", "namespace": NAMESPACE}
        await client.create(resources.SERVICES, {"metadata": metadata, "spec": spec})
    await client.create(
        resources.CONFIG_MAPS,
        {
            "metadata": {"name": "nlk-config", "namespace": "nlk"},
            "data": {"nginx-hosts": ",".join(urls), "tls-mode": "no-tls"},
        },
    )


async def in_step(client: Client, hosts: int) -> None:
    """Wait until the status reports that every host has its desired servers."""
    async with asyncio.timeout(900):
        while True:
            with contextlib.suppress(Exception):
                config_map = await client.get(resources.CONFIG_MAPS, "nlk-config-status", "nlk")
                if json.loads(config_map["data"]["status"])["readyHosts"] == f"{hosts}/{hosts}":
                    return
            await asyncio.sleep(0.5)


class Round:
    """One measurement from its start to its end."""

    def __init__(self, usage: common.Usage) -> None:
        self._usage = usage
        self._cpu, _ = usage.read()
        self.began = time.time()

    def done(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return the measurements, once the hosts have all servers."""
        cpu, resident = self._usage.read()
        return {
            "seconds": round(report["at"] - self.began, 2),
            "calls": report["calls"],
            "failed": report["failed"],
            "hosts_cpu_s": round(report["hosts_cpu"], 2),
            "controller_cpu_s": round(cpu - self._cpu, 2),
            "controller_rss_mb": round(resident / 1e6),
        }


async def measure(
    client: Client, serving: list[Serving], usage: common.Usage, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Let Nodes come and go."""
    nodes, rows = set(range(options.nodes)), list[dict[str, Any]]()
    for sample in range(options.samples):
        number = options.nodes + sample
        for what, change in (("join", join), ("leave", leave)):
            nodes ^= {number}
            round_ = Round(usage)
            await change(client, number)
            rows.append({"what": what, **round_.done(await arrived(serving, nodes))})
            print(json.dumps(rows[-1]), flush=True)
    round_ = Round(usage)
    first = options.nodes + 1000
    for number in range(first, first + options.churn + STAY):
        # Each stays for a while, so that hosts in a hurry add what they must remove again.
        if number < first + options.churn:
            await join(client, number)
        if number >= first + STAY:
            await leave(client, number - STAY)
        await asyncio.sleep(1)
    ended = time.time()
    result = await arrived(serving, nodes)
    row = {"what": "churn", **round_.done(result), "after_the_last": round(result["at"] - ended, 2)}
    rows.append(row)
    print(json.dumps(row), flush=True)
    return rows


async def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="gh-bench-") as name:
        state = Path(name)
        async with (
            served(options.hosts, options.upstreams, options.nodes) as serving,
            common.gatehouse(state, options.pool),
        ):
            urls = [url for process in serving for url in await process.tell()]
            client = await common.connect(state)
            usage = common.Usage("controller", state)
            while not (await client.list(resources.GATEWAY_CLASSES)).items:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            started = time.time()
            await prepare(client, urls, options.upstreams, options.nodes)
            round_ = Round(usage)
            await in_step(client, options.hosts)
            first = round_.done(await arrived(serving, set(range(options.nodes))))
            print(json.dumps({"what": "first look", **first}), flush=True)
            rows = await measure(client, serving, usage, options)
            print(f"{time.time() - started:.0f} s in all, load {os.getloadavg()[0]:.1f}")
            await client.__aexit__(None, None, None)
            return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the results of each kind of change as a row of a table."""
    lines = ["| | s, median | s, worst | requests | refused | CPU s: controller / hosts | RSS MB |"]
    lines.append("| --- | ---: | ---: | --- | ---: | --- | ---: |")
    for what in ("join", "leave", "churn"):
        some = [row for row in rows if row["what"] == what]
        seconds = [row.get("after_the_last", row["seconds"]) for row in some]
        calls = " ".join(f"{method} {count:,}" for method, count in some[-1]["calls"].items())
        cpu = statistics.median(row["controller_cpu_s"] for row in some)
        lines.append(
            f"| {what} | {statistics.median(seconds):.2f} | {max(seconds):.2f} | {calls} "
            f"| {sum(row['failed'] for row in some)} | {cpu:.2f} / {some[-1]['hosts_cpu_s']} "
            f"| {some[-1]['controller_rss_mb']} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--upstreams", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--churn", type=int, default=10, help="Seconds of a Node each.")
    parser.add_argument("--pool", default="127.108.0.0/16")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(Hosts(options.hosts, options.upstreams, options.nodes).serve())
        return
    print(summary(asyncio.run(run(options))))


if __name__ == "__main__":
    main()
