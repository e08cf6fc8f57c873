"""Cost of an agent, and time until the agent of a new Pod serves its first configuration.

The agent is the real command with a real NGINX, its control plane the real server over TLS in this
process. Started again and again with nothing on its disk; then resident memory at rest and after
many applies (each with a reload), and processor time while nothing happens.

    python bench/agent_start.py --starts 10 --applies 100 --rest 30
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.standalone import pki
from gatehouse.standalone.free_ports import free_port
from gatehouse.transports.server import AgentServer, Identity

GATEWAY = "bench/web"
NAME = "control.bench"
TICKS = os.sysconf("SC_CLK_TCK")


def bundle(port: int, number: int) -> FileSet:
    """Return a small configuration: one virtual host and ten others that never change."""
    conf = f"server {{ listen 127.0.0.1:{port}; include gatehouse/sites/*.conf; }}\n"
    return FileSet(
        [
            File.make("gatehouse/http.conf", conf),
            File.make("gatehouse/sites/a.conf", f"location / {{ return 200 {number}; }}\n"),
            *(
                File.make(f"gatehouse/sites/{n}.conf", f"location /{n} {{ return 204; }}\n")
                for n in range(10)
            ),
        ]
    )


class ControlPlane:
    """One server, and its reports."""

    def __init__(self, directory: Path) -> None:
        pki.ensure_channel(directory, [NAME], [], datetime.now(UTC))
        (directory / "token").write_text("bench")
        self.directory = directory
        self.server = AgentServer(self._authenticate)
        self.server.events.on_report = self._on_report
        self.port = 0
        self._changed = asyncio.Event()

    @staticmethod
    async def _authenticate(token: str) -> Identity:
        return Identity(GATEWAY, token)

    def _on_report(self, _gateway: str) -> None:
        self._changed.set()

    async def start(self) -> None:
        """Listen."""
        certificate, key = self.directory / "tls.crt", self.directory / "tls.key"
        self.port = await self.server.start("127.0.0.1:0", certificate, key)

    async def until(self, condition: Callable[[DataPlaneReport], bool]) -> None:
        """Wait until the report is as it should be."""
        async with asyncio.timeout(60):
            while not condition(self.server.report(GATEWAY)):
                self._changed.clear()
                await self._changed.wait()

    async def programmed(self, file_set: FileSet) -> float:
        """Publish and wait until it is confirmed. Return the time."""
        self.server.publish(GATEWAY, file_set)
        await self.until(lambda report: report.programmed)
        return time.perf_counter()

    @contextlib.asynccontextmanager
    async def agent(self, health: int) -> AsyncIterator[subprocess.Popen[bytes]]:
        """Run an agent with an empty directory until it has exited after SIGTERM."""
        directory = Path(tempfile.mkdtemp(prefix="gh-"))
        command = [sys.executable, "-m", "gatehouse", "--log-level", "warning", "agent"]
        variables = {
            "NGINX_AGENT_COMMAND_SERVER_HOST": "127.0.0.1",
            "NGINX_AGENT_COMMAND_SERVER_PORT": str(self.port),
            "NGINX_AGENT_COMMAND_AUTH_TOKENPATH": str(self.directory / "token"),
            "NGINX_AGENT_COMMAND_TLS_CA": str(self.directory / "ca.crt"),
            "NGINX_AGENT_COMMAND_TLS_SERVER_NAME": NAME,
            "GATEHOUSE_AGENT_STATE_DIR": str(directory / "root"),
            "GATEHOUSE_AGENT_RUN_DIR": str(directory / "run"),
            "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"127.0.0.1:{health}",
        }
        environment = dict(os.environ) | variables
        process = subprocess.Popen(command, env=environment)  # noqa: ASYNC220
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 60)
            shutil.rmtree(directory)


def resident(pid: int) -> float:
    """Return resident memory in MB (10^6 bytes)."""
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return round(int(match[1]) * 1024 / 1e6, 1)


def processor(pid: int) -> float:
    """Return the seconds of processor time used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def measure(starts: int, applies: int, rest: float) -> dict[str, Any]:
    """Do all of it."""
    directory = Path(tempfile.mkdtemp(prefix="gh-"))
    plane = ControlPlane(directory)
    await plane.start()
    port, health = free_port(), free_port()
    took, spent, result = [], [], dict[str, Any]()
    for number in range(starts):
        begun = time.perf_counter()
        async with plane.agent(health) as process:
            took.append(await plane.programmed(bundle(port, 0)) - begun)
            spent.append(processor(process.pid))
            if number == starts - 1:
                await asyncio.sleep(5)
                result["rss_mb_at_rest"] = resident(process.pid)
                before = processor(process.pid)
                await asyncio.sleep(rest)
                result["cpu_s_at_rest"] = round(processor(process.pid) - before, 2)
                begun = time.perf_counter()
                for change in range(1, applies + 1):
                    await plane.programmed(bundle(port, change))
                result["s_per_apply"] = round((time.perf_counter() - begun) / applies, 3)
                result["rss_mb_after_applies"] = resident(process.pid)
        await plane.until(lambda report: not report.instances)
    result["start_s_p50"] = round(statistics.median(took), 2)
    result["start_s_max"] = round(max(took), 2)
    result["start_cpu_s_p50"] = round(statistics.median(spent), 2)
    await plane.server.stop(0)
    shutil.rmtree(directory)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--applies", type=int, default=100)
    parser.add_argument("--rest", type=float, default=30.0, help="seconds")
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measure(options.starts, options.applies, options.rest)), indent=2))


if __name__ == "__main__":
    main()
