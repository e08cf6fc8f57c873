"""Thousands of agents of one control plane, and the time until a change reaches all of them.

1. *connect*: all agents connect at once; until every one has confirmed its first configuration.
2. *broadcast*: a route of the Gateway with the most instances changes; until the first, the median
   and the last of them has confirmed the change.
3. *reconnect*: the control plane is killed and started again; until all agents are back. Nothing
   has changed, so the control plane must send nothing again.

Agents are simulated (bench/agents_simulated.py), the wire protocol, TLS and tokens are real; the
control plane is the controller's loop and server in a process of its own (bench/agents_server.py).

    python bench/agents.py --agents 5000 --instances 1000 --gateways 41 --routes 10 --processes 1
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import route_propagation as propagation

from gatehouse.standalone import pki
from gatehouse.standalone.free_ports import free_port

HERE = Path(__file__).parent
LIMIT_SECONDS = 600
Object = dict[str, Any]


class Process:
    """A process that prints lines of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, process.stdout

    async def line(self) -> Object:
        """Return the next line. Raises EOFError when the process has ended."""
        raw = await self._from.readline()
        if not raw:
            raise EOFError(f"{self._process.pid} ended")
        document: Object = json.loads(raw)
        return document

    def ask(self) -> None:
        """Send it a line."""
        self._to.write(b"\n")

    def usage(self) -> tuple[float, float]:
        """Return CPU seconds so far, and resident megabytes."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        seconds = sum(int(fields[index]) for index in (11, 12)) / propagation.TICK
        return seconds, int(fields[21]) * propagation.PAGE / 1e6

    async def end(self, *, kill: bool = False) -> None:
        """End it, by its input's end or at once."""
        if kill and self._process.returncode is None:
            self._process.kill()
        self._to.close()
        await self._process.wait()


async def start(script: str, **options: object) -> Process:
    """Start a process of the benchmark."""
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HERE / script), *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    return Process(process)


class Bench:
    """A control plane, the agents' processes, and what is measured of them."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self._options = options
        self._directory = directory
        pki.ensure_channel(directory, [pki.CONTROLLER_NAME], ["127.0.0.1"], datetime.now(UTC))
        self._port = free_port()
        self._simulated: list[Process] = []
        self._version = ""
        self._changes = 0
        self._server: Process

    async def _serve(self) -> None:
        options = self._options
        self._server = await start(
            "agents_server.py",
            pki=self._directory,
            port=self._port,
            gateways=options.gateways,
            routes=options.routes,
            changes=self._changes,
        )
        await self._server.line()

    async def __aenter__(self) -> Bench:
        await self._serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in (*self._simulated, self._server):
            await process.end(kill=True)

    def _shares(self) -> list[str]:
        """Return the instances of each process, as options of the simulation."""
        options, space = self._options, propagation.NAMESPACE
        counts = [options.instances] + [0] * (options.gateways - 1)
        for number in range(options.agents - options.instances):
            counts[1 + number % (options.gateways - 1)] += 1
        shares: list[list[str]] = [[] for _ in range(options.processes)]
        for number, count in enumerate(counts):
            shares[number % options.processes].append(f"{space}/g{number}={count}")
        return [",".join(share) for share in shares]

    async def _until_all(self, unlike: str = "") -> float:
        """Wait until all instances confirmed a version other than `unlike`. Return the time."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                event = await self._server.line()
                all_ = event.get("confirmed") == self._options.agents
                if all_ and event["version"] != unlike:
                    self._version = str(event["version"])
                    return float(event["at"])

    async def _told(self) -> Object:
        """Return the agents' records since the previous call."""
        counts = Counter[str]()
        errors, confirmed = Counter[str](), list[float]()
        for process in self._simulated:
            process.ask()
            record = await process.line()
            confirmed += record.pop("confirmed")
            errors.update(record.pop("errors"))
            counts.update(record)
        return {**counts, "errors": dict(errors), "confirmed": sorted(confirmed)}

    async def _measured(self, began: float, ended: float, used: float) -> Object:
        counts = await self._told()
        seconds, resident = self._server.usage()
        return {
            "seconds": round(ended - began, 2),
            "server CPU s": round(seconds - used, 2),
            "server MB": round(resident),
            "bundles": counts["requests"],
            "files": counts["files"],
            "errors": counts["errors"],
        }

    async def connect(self) -> Object:
        """Connect all agents."""
        used, began = self._server.usage()[0], time.monotonic()
        for share in self._shares():
            process = await start(
                "agents_simulated.py", pki=self._directory, port=self._port, instances=share
            )
            self._simulated.append(process)
        return await self._measured(began, await self._until_all(), used)

    async def broadcast(self) -> Object:
        """Change the desired version of all instances of the first Gateway."""
        used = self._server.usage()[0]
        self._changes += 1
        self._server.ask()
        began = await self._changed()
        ended = await self._until_all(unlike=self._version)
        seconds, resident = self._server.usage()
        counts = await self._told()
        times = [round(moment - began, 3) for moment in counts["confirmed"]]
        return {
            "first s": times[0],
            "median s": round(statistics.median(times), 3),
            "last s": times[-1],
            "all known s": round(ended - began, 2),
            "server CPU s": round(seconds - used, 2),
            "server MB": round(resident),
            "bundles": counts["requests"],
            "files": counts["files"],
        }

    async def _changed(self) -> float:
        while True:
            event = await self._server.line()
            if "changed" in event:
                return float(event["changed"])

    async def reconnect(self) -> Object:
        """Kill the control plane and start another."""
        await self._server.end(kill=True)
        began = time.monotonic()
        await self._serve()
        return await self._measured(began, await self._until_all(), 0.0)


@contextlib.asynccontextmanager
async def benched(options: argparse.Namespace) -> AsyncIterator[Bench]:
    """Run a control plane for a while."""
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-") as directory:
        async with Bench(options, Path(directory)) as bench:
            yield bench


async def run(options: argparse.Namespace) -> None:
    """Measure, and print a line for each question."""
    print(f"| {options.agents:,} agents | |\n| --- | --- |", flush=True)

    def note(name: str, figures: Object) -> None:
        print(f"| {name} | {', '.join(f'{k}: {v}' for k, v in figures.items())} |", flush=True)

    async with benched(options) as bench:
        note("connect", await bench.connect())
        for _ in range(options.changes):
            note(f"broadcast to {options.instances:,}", await bench.broadcast())
        note("reconnect", await bench.reconnect())


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--gateways", type=int, default=41)
    parser.add_argument("--routes", type=int, default=10)
    parser.add_argument("--changes", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    if os.environ.get("GRPC_VERBOSITY") is None:
        # Every agent says on its standard error that its server was killed.
        os.environ["GRPC_VERBOSITY"] = "NONE"
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
