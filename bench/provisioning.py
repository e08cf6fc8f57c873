"""Time to provision many Gateways, and the cost of a change of one of them.

A real API server and a real controller, as processes of their own, and no node: nothing runs the
Deployments, and nothing connects. N Gateways are made at once; they are provisioned when each has
its Deployment and its status says that the data plane is waited for. Then one of them after another
is changed: another listener (another Service), and other labels (all its objects).
Requests are the API server's own count of those of the change and of what followed from it.

    python bench/provisioning.py --gateways 10,200,1000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import ssl
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from gatehouse.apis.resources import DEPLOYMENTS, GATEWAYS, SERVICES
from gatehouse.kube.client import Client
from gatehouse.kube.informer import Informer
from gatehouse.standalone import pki
from gatehouse.standalone.free_ports import free_port
from gatehouse.standalone.state_directory import State

CLASS = "gatehouse-nginx"
AT_ONCE = 16
QUIET = 1.5
"""Seconds without a write after which a change is over."""

_COUNTED = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Installation:
    """The API server and the controller."""

    def __init__(self, directory: Path) -> None:
        self.state = State(directory)
        directory.mkdir(exist_ok=True)
        self.state.pki.ensure()
        self.api, self.health = free_port(), free_port()
        self.controller = 0
        """Its process."""
        self._directory = directory

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run both."""
        url = f"https://127.0.0.1:{self.api}"
        self.state.write_kubeconfigs(url)
        server, channel = self.state.pki.leaf(pki.APISERVER), self.state.pki.leaf(pki.CHANNEL)
        ca, agents = self.state.pki.ca().cert, f"127.0.0.1:{free_port()}"
        apiserver = await self._start(
            *(
                "apiserver",
                "--storage",
                self.state.database,
                "--bind-address",
                f"127.0.0.1:{self.api}",
            ),
            *(
                "--tls-cert-file",
                server.cert,
                "--tls-private-key-file",
                server.key,
                "--client-ca-file",
                ca,
            ),
        )
        await self._until_open(self.api)
        controller = await self._start(
            *("controller", "--kubeconfig", self.state.controller_kubeconfig),
            *(
                "--agent-bind-address",
                agents,
                "--agent-advertise-address",
                agents,
                "--agent-ca-file",
                ca,
            ),
            *("--tls-cert-file", channel.cert, "--tls-private-key-file", channel.key),
            *("--health-bind-address", f"127.0.0.1:{self.health}"),
        )
        self.controller = controller.pid
        try:
            await self._until_ready()
            yield
        finally:
            for process in (controller, apiserver):
                process.terminate()
                await process.wait()

    async def _start(self, *words: Any) -> asyncio.subprocess.Process:
        with (self._directory / f"{words[0]}.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gatehouse", *map(str, words)), stdout=log, stderr=log
            )

    async def _until_open(self, port: int) -> None:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                await asyncio.sleep(0.05)

    async def _until_ready(self) -> None:
        async with asyncio.timeout(60), aiohttp.ClientSession() as http:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(f"http://127.0.0.1:{self.health}/readyz") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.05)

    def cpu(self) -> float:
        """Return the controller's CPU time so far in seconds."""
        fields = Path(f"/proc/{self.controller}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class World:
    """The Gateways, followed by informers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._news = asyncio.Event()
        self.last = time.perf_counter()
        """Time of the last change."""
        self._gateways = Informer(client, GATEWAYS, on_changes=self._on_changes)
        self._deployments = Informer(client, DEPLOYMENTS, on_changes=self._on_changes)
        self._services = Informer(client, SERVICES, on_changes=self._on_changes)

    def _on_changes(self, *_: object) -> None:
        self.last = time.perf_counter()
        self._news.set()

    async def follow(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Begin to follow."""
        result = (self._gateways, self._deployments, self._services)
        tasks = [group.create_task(informer.run()) for informer in result]
        for informer in result:
            await informer.synced.wait()
        return tasks

    async def make(self, first: int, count: int) -> float:
        """Create Gateways. Return the seconds until all are provisioned."""
        names, began = [f"g{first + number}" for number in range(count)], time.perf_counter()
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with turn:
                await self._client.create(GATEWAYS, gateway(name))

        await asyncio.gather(*map(one, names))
        await self._until(lambda: all(map(self._provisioned, names)))
        return time.perf_counter() - began

    def _provisioned(self, name: str) -> bool:
        result = self._gateways.objects.get(("default", name), {})
        conditions = result.get("status", {}).get("conditions", ())
        waiting = any(
            "waiting for the data plane" in condition["message"] for condition in conditions
        )
        return waiting and ("default", f"{name}-{CLASS}") in self._deployments.objects

    async def change(self, name: str, patch: dict[str, Any]) -> float:
        """Change a Gateway. Return the seconds until its Service follows."""
        key = ("default", f"{name}-{CLASS}")
        before, began = self._version(key), time.perf_counter()
        await self._client.patch(GATEWAYS, name, patch, "default")
        await self._until(lambda: self._version(key) != before)
        return time.perf_counter() - began

    def _version(self, key: tuple[str, str]) -> str:
        return str(self._services.objects[key]["metadata"]["resourceVersion"])

    async def rest(self) -> None:
        """Wait until nothing has changed for a while."""
        self.last = time.perf_counter()
        while (left := self.last + QUIET - time.perf_counter()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left)

    async def _until(self, holds: Any) -> None:
        async with asyncio.timeout(600):
            while not holds():
                self._news.clear()
                await self._news.wait()


def gateway(name: str) -> dict[str, Any]:
    """Return a Gateway with one listener."""
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"gatewayClassName": CLASS, "listeners": listeners}}


def another_listener(sample: int) -> dict[str, Any]:
    """Return a patch that adds a listener, which changes the Service."""
    ports = (80, 1000 + sample)
    listeners = [{"name": f"p{port}", "port": port, "protocol": "HTTP"} for port in ports]
    return {"spec": {"listeners": listeners}}


def other_labels(sample: int) -> dict[str, Any]:
    """Return a patch that changes the labels of all owned objects."""
    return {"spec": {"infrastructure": {"labels": {"sample": str(sample)}}}}


async def requests(installation: Installation) -> Counter[str]:
    """Return the requests that the API server has answered except watches, by verb."""
    counts: Counter[str] = Counter()
    pair, ca = installation.state.pki.leaf(pki.ADMIN), installation.state.pki.ca().cert
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(pair.cert, pair.key)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http,
        http.get(f"https://127.0.0.1:{installation.api}/metrics") as answer,
    ):
        text = await answer.text()
    for line in text.splitlines():
        if match := _COUNTED.match(line):
            labels = dict(_LABEL.findall(match["labels"]))
            # What is refused is a kind that this server does not give, asked for now and then.
            is_counted = labels["resource"] and labels["code"] not in ("403", "404")
            if is_counted and labels["verb"] != "WATCH":
                counts[labels["verb"]] += int(float(match["value"]))
    return counts


async def measure(sizes: list[int], samples: int, directory: Path) -> None:
    """Measure every size in turn, in one installation that grows."""
    installation = Installation(directory)
    async with installation.running(), Client.from_kubeconfig(installation.state.kubeconfig) as api:
        world = World(api)
        async with asyncio.TaskGroup() as group:
            following = await world.follow(group)
            there = 0
            for size in sizes:
                cpu = installation.cpu()
                seconds = await world.make(there, size - there)
                row = {"what": "provision", "gateways": size, "more": size - there}
                there = size
                print(
                    json.dumps(
                        {
                            **row,
                            "seconds": round(seconds, 2),
                            "cpu": round(installation.cpu() - cpu, 2),
                        }
                    ),
                    flush=True,
                )
                for what, patch in (("listener", another_listener), ("labels", other_labels)):
                    await world.rest()
                    print(
                        json.dumps(await _changes(installation, world, what, patch, size, samples)),
                        flush=True,
                    )
            for task in following:
                task.cancel()


async def _changes(
    installation: Installation, world: World, what: str, patch: Any, size: int, samples: int
) -> dict[str, Any]:
    before, cpu, took = await requests(installation), installation.cpu(), []
    for sample in range(samples):
        took.append(await world.change(f"g{sample * size // samples}", patch(size + sample)))
    await world.rest()
    spent = await requests(installation) - before
    return {
        "what": what,
        "gateways": size,
        "median_ms": round(statistics.median(took) * 1000),
        "worst_ms": round(max(took) * 1000),
        "requests": {verb: round(count / samples, 1) for verb, count in sorted(spent.items())},
        "cpu_ms": round((installation.cpu() - cpu) * 1000 / samples, 1),
    }


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", default="10,200,1000")
    parser.add_argument("--samples", type=int, default=10)
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.gateways.split(","))
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as directory:
        asyncio.run(measure(sizes, options.samples, Path(directory) / "s"))


if __name__ == "__main__":
    main()
