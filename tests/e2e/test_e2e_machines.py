"""Machines outside with NGINX or Envoy carry traffic to Services."""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from click.testing import CliRunner

from fakes.agent_command import agent
from fakes.external_fixtures import MARKS, OUTSIDE, authority, cluster, logged, options, place
from fakes.external_machines import Machine
from fakes.external_objects import NODES, balancer, join, listeners, service, wait_for_status
from fakes.external_traffic import backends, datagram, greeting_of, node, web
from fakes.installation import ROOT, Installation, apply
from fakes.loopback import free_port
from fakes.patience import until
from fakes.process import environment
from gatehouse.apis import resources
from gatehouse.cli.certs import certs
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

__all__ = ["authority", "cluster", "options", "place"]

pytestmark = MARKS


@pytest.mark.parametrize("kind", ["nginx", "envoy"])
async def test_external_machine_serves_ports_of_a_service(
    cluster: kube.Client, authority: Path, place: Path, kind: str, installation: Installation
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE, kind)
    machine.certify(authority, f"edge/{kind}")
    await cluster.create(
        resources.EXTERNAL_LOAD_BALANCERS, balancer(kind, kind, ("lb-1",), listeners(8080))
    )
    await cluster.create(resources.SERVICES, service())
    async with node(1, place), node(2, place), machine.running():
        status = await wait_for_status(cluster, kind, "Programmed")
        (host,) = status["hosts"]
        assert (host["name"], host["version"]) == ("lb-1", status["version"])
        assert host["server"].startswith(f"{kind}/")
        assert await web(8080) == (200, "node-1")
        assert (await web(8080, "other.example"))[0] == 404
        assert await greeting_of(8081) == "node-1"
        assert await datagram(8081) == "node-1 hello"
        assert await greeting_of(8082, "a.secure.example") == "node-1"
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await greeting_of(8082, "other.example")

        if kind == "nginx":
            # What upstreams began with is left out once, a while later.
            await logged(machine, "seeds removed")
        reloads = await machine.metric_value("gatehouse_agent_reloads_total")
        await join(cluster, 2)

        async def both() -> bool:
            return await backends(8080) == {"node-1", "node-2"}

        await until(both)
        await cluster.delete(resources.NODES, "n1")

        async def moved() -> bool:
            return await backends(8080) == {"node-2"}

        await until(moved)
        assert await greeting_of(8082, "a.secure.example") == "node-2"
        if kind == "nginx":
            assert await machine.metric_value("gatehouse_agent_reloads_total") == reloads >= 1

            async def counted() -> bool:
                return await machine.metric_value("gatehouse_agent_endpoint_updates_total") >= 2

            # Each was in traffic before the next; the agent counts it a moment later.
            await until(counted)
        await wait_for_status(cluster, kind, "Programmed")
        assert (await shown(installation, f"edge/{kind}"))[1:6] == [
            "lb-1",
            host["server"],
            "",
            (await wait_for_status(cluster, kind, "Programmed"))["version"],
            "True",
        ]

        await cluster.delete(resources.SERVICES, "app", "edge")

        async def nobody() -> bool:
            return (await web(8080))[0] == 503

        await until(nobody)
        await wait_for_missing_service(cluster, kind)


async def wait_for_missing_service(cluster: kube.Client, name: str) -> None:
    """Wait until a load balancer's status tells that no Service is left, and check how."""

    async def missed() -> dict[str, Any]:
        result = await cluster.get(resources.EXTERNAL_LOAD_BALANCERS, name, "edge")
        accepted = next(c for c in result["status"]["conditions"] if c["type"] == "Accepted")
        return {} if accepted["reason"] == "Accepted" else {**accepted, **result["status"]}

    # Envoys have it sooner than the status is written.
    await until(missed)
    accepted = await missed()
    assert (accepted["status"], accepted["reason"]) == ("True", "UpstreamNotFound")
    assert (
        "spec.listeners[0]: upstream: http/web not claimed by any Service port"
        in accepted["message"]
    )
    assert accepted["upstreams"] == []


async def shown(installation: Installation, name: str) -> list[str]:
    """Return the row of a load balancer in `gatehouse status load-balancers`."""
    env = environment(KUBECONFIG=str(installation.kubeconfig), COLUMNS="220")
    env["PYTHONPATH"] = str(ROOT / "src")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gatehouse", "status", "load-balancers"),
        env=env,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    (row,) = [line for line in out.decode().splitlines() if name in line]
    return [cell.strip() for cell in row.split("│")[1:-1]]


@pytest.mark.parametrize("kind", ["nginx", "envoy"])
async def test_reconnected_machine_applies_missed_changes(
    cluster: kube.Client, authority: Path, place: Path, kind: str
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE, kind)
    machine.certify(authority, f"edge/{kind}")
    load_balancer = balancer(kind, kind, ("lb-1", "lb-2"), listeners(8090))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, load_balancer)
    await cluster.create(resources.SERVICES, service())
    async with node(1, place), node(2, place):
        async with machine.running():
            status = await wait_for_status(
                cluster, kind, "HostSyncFailed", "lb-2: agent is not connected"
            )
            assert status["readyHosts"] == "1/2"
            assert await web(8090) == (200, "node-1")
        await wait_for_status(cluster, kind, "HostSyncFailed", "2 of 2 hosts")
        await join(cluster, 2)
        await cluster.delete(resources.NODES, "n1")
        await cluster.patch(
            resources.EXTERNAL_LOAD_BALANCERS, kind, {"spec": {"hosts": [{"name": "lb-1"}]}}, "edge"
        )
        async with machine.running():
            status = await wait_for_status(cluster, kind, "Programmed")
            assert status["readyHosts"] == "1/1"
            assert await web(8090) == (200, "node-2")


async def test_machines_of_one_load_balancer_serve_same_version_and_are_listed(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    # Envoys share a port, so that one address can stand for two machines.
    one, two = (Machine(place, name, OUTSIDE, "envoy") for name in ("lb-1", "lb-2"))
    for machine in (one, two):
        machine.certify(authority, "edge/pair")
    load_balancer = balancer("pair", "envoy", ("lb-1", "lb-2"), listeners(8180))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, load_balancer)
    await cluster.create(resources.SERVICES, service())
    async with node(1, place), node(2, place), one.running():
        async with two.running():
            status = await wait_for_status(cluster, "pair", "Programmed")
            assert status["readyHosts"] == "2/2"
            assert [host["version"] for host in status["hosts"]] == [status["version"]] * 2
            await cluster.delete(resources.NODES, "n1")
            await join(cluster, 2)

            async def moved() -> bool:
                return await backends(8180) == {"node-2"}

            await until(moved)
            status = await wait_for_status(cluster, "pair", "Programmed")
            assert [host["version"] for host in status["hosts"]] == [status["version"]] * 2
        status = await wait_for_status(
            cluster, "pair", "HostSyncFailed", "1 of 2 hosts: lb-2: agent is not connected"
        )
        assert status["readyHosts"] == "1/2"
        assert await backends(8180) == {"node-2"}


async def test_machine_example_is_served(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    text = (ROOT / "examples" / "load-balancer-machines.yaml").read_text()
    port = free_port()
    changed = {"8088": str(port), "8089": str(free_port()), "127.0.0.1": NODES[1]}
    for written, here in changed.items():
        text = text.replace(written, here)
    _namespace, *objects = yaml.safe_load_all(text)
    await apply(cluster, objects)
    settings = (ROOT / "examples" / "agent-outside.yaml").read_text().replace("lb-1/", f"{place}/")
    settings = settings.replace("16445", str(OUTSIDE)).replace("9113", str(free_port()))
    (place / "agent.yaml").write_text(settings)
    words = ["machine", "lb-1", "--load-balancer", "edge/front", "--dir", str(authority)]
    assert CliRunner().invoke(certs, [*words, "--out", str(place)]).exit_code == 0
    arguments = ("--config", str(place / "agent.yaml"))
    async with (
        echo.serve_echo({(NODES[1], 30080): "app"}),
        agent({}, place / "agent.log", *arguments),
        aiohttp.ClientSession() as session,
    ):
        await wait_for_status(cluster, "front", "Programmed")
        async with session.get(f"http://127.0.0.1:{port}/") as response:
            assert (response.status, response.headers["X-Backend"]) == (200, "app")
    await cluster.delete(resources.NODES, "node-1")
