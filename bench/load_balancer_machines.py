"""Time until external machines follow a Node, and its cost.

M machines serve U upstreams of N servers each, for as many Services of type NodePort in a real
`gatehouse up`, which they reach by certificates of their own. One Node joins, one leaves, again and
again. A change has arrived when the last machine has confirmed it. The agents are simulated
(bench/agents_simulated.py): what they say and fetch is real, but there is no NGINX beside them.

    python bench/load_balancer_machines.py --machines 50 --upstreams 500 --nodes 100
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import agents_simulated as simulated
import grpc
import load_balancers as plus
import route_propagation as common

from gatehouse.apis import resources
from gatehouse.dataplane.machine_identity import MachineIdentity
from gatehouse.kube.client import Client
from gatehouse.standalone import pki
from gatehouse.standalone.free_ports import free_port

NAME = "machines"


def credentials(authority: Path, directory: Path, host: str) -> grpc.ChannelCredentials:
    """Return the channel credentials of a machine."""
    uri = MachineIdentity(plus.NAMESPACE, NAME, host).uri
    pki.ensure_machine(authority, directory, uri, datetime.now(UTC))
    files = (directory / name for name in ("ca.crt", "tls.key", "tls.crt"))
    return grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))


async def prepare(client: Client, machines: int, upstreams: int, nodes: int) -> None:
    """Make Nodes, Services and what asks for the machines."""
    # The same world as for NGINX Plus, whose hosts are none here.
    await plus.prepare(client, [], upstreams, nodes)
    listeners = [
        {"port": 80, "protocol": "HTTP", "hostname": f"h{n}.example", "upstream": f"u{n}"}
        for n in range(upstreams)
    ]
    hosts = [{"name": f"lb-{number}"} for number in range(machines)]
    spec = {"type": "Nginx", "hosts": hosts, "listeners": listeners}
    metadata = {"name": NAME, "namespace": plus.NAMESPACE}
    await client.create(resources.EXTERNAL_LOAD_BALANCERS, {"metadata": metadata, "spec": spec})


class Machines:
    """The simulated ones, and the control plane they belong to."""

    def __init__(self, client: Client, usage: common.Usage) -> None:
        self._client, self._usage = client, usage
        self.record = simulated.Record()
        self.agents: list[simulated.Agent] = []

    async def served(self, before: str) -> str:
        """Wait until all serve a version other than ``before``. Return it, as in statuses."""
        async with asyncio.timeout(900):
            while True:
                balancer = await self._client.get(
                    resources.EXTERNAL_LOAD_BALANCERS, NAME, plus.NAMESPACE
                )
                status = balancer.get("status") or {}
                version, count = status.get("version", ""), len(self.agents)
                if version not in ("", before) and status["readyHosts"] == f"{count}/{count}":
                    return str(version)
                await asyncio.sleep(0.2)

    def begin(self) -> tuple[float, float, float]:
        """Begin a measurement."""
        self.record.confirmed.clear()
        self.record.requests = self.record.files = 0
        own = resource.getrusage(resource.RUSAGE_SELF)
        return time.monotonic(), self._usage.read()[0], own.ru_utime + own.ru_stime

    def done(self, began: tuple[float, float, float]) -> dict[str, Any]:
        """Return the measurements since the start of the round."""
        cpu, resident = self._usage.read()
        own = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "seconds": round(max(self.record.confirmed) - began[0], 2),
            "requests": self.record.requests,
            "files": self.record.files,
            "errors": dict(self.record.errors),
            "controller_cpu_s": round(cpu - began[1], 2),
            "machines_cpu_s": round(own.ru_utime + own.ru_stime - began[2], 2),
            "controller_rss_mb": round(resident / 1e6),
        }


async def measure(client: Client, machines: Machines, options: argparse.Namespace) -> None:
    """Let Nodes come and go."""
    version = ""
    began = machines.begin()
    version = await machines.served(version)
    print(json.dumps({"what": "first", **machines.done(began)}), flush=True)
    for sample in range(options.samples):
        for what, change in (("join", plus.join), ("leave", plus.leave)):
            began = machines.begin()
            await change(client, options.nodes + sample)
            version = await machines.served(version)
            print(json.dumps({"what": what, **machines.done(began)}), flush=True)


async def run(options: argparse.Namespace) -> None:
    """Measure."""
    outside = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="gh-bench-") as name:
        state = Path(name)
        async with common.gatehouse(state, options.pool, "--machine-address", outside):
            client = await common.connect(state)
            while not (await client.list(resources.GATEWAY_CLASSES)).items:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await prepare(client, options.machines, options.upstreams, options.nodes)
            machines = Machines(client, common.Usage("controller", state))
            for number in range(options.machines):
                host = f"lb-{number}"
                credential_files = credentials(state / "pki", state / "machines" / host, host)
                machines.agents.append(
                    simulated.Agent(outside, credential_files, host, machines.record)
                )
            tasks = [asyncio.create_task(agent.run()) for agent in machines.agents]
            await measure(client, machines, options)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            print(f"load {os.getloadavg()[0]:.1f}")
            await client.__aexit__(None, None, None)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--machines", type=int, default=50)
    parser.add_argument("--upstreams", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--pool", default="127.109.0.0/16")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
