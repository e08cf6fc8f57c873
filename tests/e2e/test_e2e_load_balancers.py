"""Services with ports named nlk-… reach the hosts of load balancers outside, and leave them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import yaml

from fakes.chromium import CHROMIUM, open_page
from fakes.console import log_in, running_console, show
from fakes.installation import ROOT, Installation, apply
from fakes.loopback import free_port
from fakes.nginx_plus import FakePlus, Plus, Upstream
from fakes.patience import until
from fakes.process import ApiServer, environment
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long]

NAMESPACES = ("nlk", "nginx-ingress", "balanced")


@pytest.fixture
async def cluster(client: kube.Client) -> kube.Client:
    for name in NAMESPACES:
        with contextlib.suppress(kube.AlreadyExists):
            await client.create(resources.NAMESPACES, {"metadata": {"name": name}})
    for node in (await client.list(resources.NODES)).items:
        await client.delete(resources.NODES, node["metadata"]["name"])
    for number in (1, 2):
        await join(client, number)
    return client


async def join(client: kube.Client, number: int) -> None:
    node = await client.create(resources.NODES, {"metadata": {"name": f"n{number}"}})
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": f"10.0.0.{number}"}],
    }
    await client.update_status(resources.NODES, {**node, "status": status})


def service(name: str, namespace: str, *ports: tuple[str, int], **annotations: str) -> Any:
    listed = [{"name": p, "port": n - 30000, "nodePort": n} for p, n in ports]
    values = {key.replace("_", "/", 1): value for key, value in annotations.items()}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": values},
        "spec": {"type": "NodePort", "selector": {"app": name}, "ports": listed},
    }


@contextlib.asynccontextmanager
async def host(*names: str) -> AsyncIterator[tuple[FakePlus, str]]:
    split = (name.split("/") for name in names)
    fake = FakePlus(Plus(*(Upstream(kind, name, zone=name) for kind, name in split)))
    async with fake.serving() as url:
        yield fake, url


def held(fake: FakePlus, which: str) -> list[str]:
    kind, _, name = which.partition("/")
    return sorted(s.server for s in fake.plus.upstreams[kind, name].servers.values())


async def holds(fake: FakePlus, which: str, *servers: str) -> None:
    async def check() -> bool:
        return held(fake, which) == list(servers)

    try:
        await until(check)
    except TimeoutError:
        raise AssertionError(f"{which}: {held(fake, which)}, not {servers}") from None


def balancer(name: str, *urls: str, **spec: Any) -> Any:
    return {
        "metadata": {"name": name, "namespace": "balanced"},
        "spec": {"hosts": [{"url": url} for url in urls], **spec},
    }


async def programmed(client: kube.Client, name: str, reason: str = "Programmed") -> Any:
    async def check() -> Any:
        result = await client.get(resources.EXTERNAL_LOAD_BALANCERS, name, "balanced")
        status = result.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition["type"] == "Programmed" and condition["reason"] == reason:
                return status
        return None

    return await until(check)


async def test_service_and_node_changes_reach_every_host(cluster: kube.Client) -> None:
    async with (
        host("http/web", "stream/db") as (one, first),
        host("http/web", "stream/db") as (
            two,
            second,
        ),
    ):
        await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, balancer("edge", first, second))
        ports = (("nlk-web", 30080), ("nlk-db", 30090), ("metrics", 30091))
        manifest = service("app", "balanced", *ports, **{"nginxinc.io_nlk-db": "stream"})
        await cluster.create(resources.SERVICES, manifest)
        for fake in (one, two):
            await holds(fake, "http/web", "10.0.0.1:30080", "10.0.0.2:30080")
            await holds(fake, "stream/db", "10.0.0.1:30090", "10.0.0.2:30090")
        status = await programmed(cluster, "edge")
        assert status["readyHosts"] == "2/2"
        assert [host_entry["version"] for host_entry in status["hosts"]] == [status["version"]] * 2
        assert status["hosts"][0]["server"] == "nginx/1.29.3 nginx-plus-r36"
        assert [upstream["name"] for upstream in status["upstreams"]] == ["web", "db"]
        await join(cluster, 3)
        for fake in (one, two):
            await holds(fake, "http/web", "10.0.0.1:30080", "10.0.0.2:30080", "10.0.0.3:30080")
        await cluster.delete(resources.NODES, "n1")
        await holds(two, "stream/db", "10.0.0.2:30090", "10.0.0.3:30090")
        await cluster.delete(resources.SERVICES, "app", "balanced")
        for fake in (one, two):
            await holds(fake, "http/web")
            await holds(fake, "stream/db")

        async def forgotten() -> bool:
            result = await cluster.get(resources.EXTERNAL_LOAD_BALANCERS, "edge", "balanced")
            return not result["status"]["upstreams"]

        await until(forgotten)
        await cluster.delete(resources.EXTERNAL_LOAD_BALANCERS, "edge", "balanced")


async def test_host_sync_failure_is_reported_with_host_message(cluster: kube.Client) -> None:
    async with host("http/web") as (fake, url):
        manifest = service("app", "balanced", ("nlk-web", 30180), ("nlk-none", 30181))
        await cluster.create(resources.SERVICES, manifest)
        await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, balancer("troubled", url))
        await holds(fake, "http/web", "10.0.0.1:30180", "10.0.0.2:30180")
        words = "http/none: 404 UpstreamNotFound: upstream not found"
        status = await programmed(cluster, "troubled", "HostSyncFailed")
        condition = next(c for c in status["conditions"] if c["type"] == "Programmed")
        assert words in condition["message"]

        async def event() -> Any:
            events = (await cluster.list(resources.EVENTS, "balanced")).items
            return [
                event
                for event in events
                if event["involvedObject"]["name"] == "app"
                and event["reason"] == "UpstreamSyncFailed"
                and words in event["message"]
            ]

        await until(event)
        await cluster.delete(resources.SERVICES, "app", "balanced")
        await holds(fake, "http/web")
        await cluster.delete(resources.EXTERNAL_LOAD_BALANCERS, "troubled", "balanced")


@pytest.mark.skipif(not CHROMIUM, reason="needs Debian's package chromium")
async def test_console_shows_what_differs_on_a_host(cluster: kube.Client) -> None:
    rows = "[...document.querySelectorAll('tr')].map((row) => row.innerText)"
    async with (
        host("http/web") as (fake, url),
        running_console(cluster) as console,
        open_page() as page,
    ):
        manifest = service("shown", "balanced", ("nlk-web", 30182), ("nlk-gone", 30183))
        await cluster.create(resources.SERVICES, manifest)
        await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, balancer("shown", url))
        await log_in(page, console)
        await show(page, "load-balancers")
        words = "http/gone: 404 UpstreamNotFound: upstream not found"
        await page.until(f"{rows}.some((row) => row.includes({json.dumps(words)}))")
        await page.until(f"{rows}.some((row) => row.startsWith({json.dumps(url)}))")
        await page.until(f"{rows}.includes('web\\thttp\\tbalanced/shown')")
        await cluster.delete(resources.SERVICES, "shown", "balanced")
        await holds(fake, "http/web")
        await cluster.delete(resources.EXTERNAL_LOAD_BALANCERS, "shown", "balanced")


async def test_nlk_configuration_works_unchanged(cluster: kube.Client) -> None:
    async with host("http/nginx-lb-http") as (one, first), host("http/nginx-lb-http") as (two, url):
        manifest = service("ingress", "nginx-ingress", ("nlk-nginx-lb-http", 30280))
        await cluster.create(resources.SERVICES, manifest)
        settings = {"nginx-hosts": first, "tls-mode": "no-tls", "log-level": "warn"}
        config = {"metadata": {"name": "nlk-config", "namespace": "nlk"}, "data": settings}
        await cluster.create(resources.CONFIG_MAPS, config)
        servers = ("10.0.0.1:30280", "10.0.0.2:30280")
        await holds(one, "http/nginx-lb-http", *servers)
        assert held(two, "http/nginx-lb-http") == []
        both = {"data": {"nginx-hosts": f"{first},{url}"}}
        await cluster.patch(resources.CONFIG_MAPS, "nlk-config", both, "nlk")
        await holds(two, "http/nginx-lb-http", *servers)

        async def told() -> bool:
            with contextlib.suppress(kube.NotFound):
                config_map = await cluster.get(resources.CONFIG_MAPS, "nlk-config-status", "nlk")
                return bool(json.loads(config_map["data"]["status"])["readyHosts"] == "2/2")
            return False

        await until(told)
        await cluster.delete(resources.SERVICES, "ingress", "nginx-ingress")
        await holds(two, "http/nginx-lb-http")
        await cluster.delete(resources.CONFIG_MAPS, "nlk-config", "nlk")


async def test_servers_of_service_deleted_while_controller_is_stopped_are_removed(
    cluster: kube.Client, installation: Installation
) -> None:
    async with host("http/web", "http/human") as (fake, url):
        fake.plus.upstreams["http", "human"].load("192.0.2.1:80")
        await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, balancer("away", url))
        await cluster.create(resources.SERVICES, service("app", "balanced", ("nlk-web", 30380)))
        await holds(fake, "http/web", "10.0.0.1:30380", "10.0.0.2:30380")
        await programmed(cluster, "away")
        installation.stop()
        alone = ApiServer(installation.state)
        alone.start()
        async with kube.Client.from_kubeconfig(alone.kubeconfig) as nobody_else:
            await nobody_else.delete(resources.SERVICES, "app", "balanced")
        alone.stop()
        assert len(held(fake, "http/web")) == 2
        installation.start()
        async with installation.client() as again:
            await holds(fake, "http/web")
            assert held(fake, "http/human") == ["192.0.2.1:80"]
            await again.delete(resources.EXTERNAL_LOAD_BALANCERS, "away", "balanced")


async def test_load_balancer_example_is_applied_and_shown(
    cluster: kube.Client, installation: Installation
) -> None:
    port = free_port()
    fake = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fakes.nginx_plus", str(port), "http/web"),
        env=environment(PYTHONPATH=str(ROOT / "tests")),
    )
    try:
        text = (ROOT / "examples" / "load-balancer.yaml").read_text()
        await apply(cluster, list(yaml.safe_load_all(text.replace(":9000/", f":{port}/"))))

        async def shown() -> str:
            command = (sys.executable, "-m", "gatehouse", "status", "lb")
            env = environment(KUBECONFIG=str(installation.kubeconfig), COLUMNS="200")
            env["PYTHONPATH"] = str(ROOT / "src")
            process = await asyncio.create_subprocess_exec(
                *command, env=env, stdout=asyncio.subprocess.PIPE
            )
            out, _ = await process.communicate()
            row = [line for line in out.decode().splitlines() if "edge/edge" in line]
            return row[0] if row and "True" in row[0] else ""

        row = [cell.strip() for cell in (await until(shown)).split("│")[1:-1]]
        assert row[:4] == [
            "edge/edge",
            f"http://127.0.0.1:{port}/api",
            "nginx/1.29.3 nginx-plus-r36",
            "9",
        ]
        assert row[5:] == ["True", "1", ""]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/api/9/http/upstreams/web/servers") as response,
        ):
            servers = await response.json()
        assert ("10.0.0.7:30080", 500) in {(s["server"], s["max_conns"]) for s in servers}
        await cluster.delete(resources.EXTERNAL_LOAD_BALANCERS, "edge", "edge")
    finally:
        fake.terminate()
        await fake.wait()


async def test_crd_rejects_invalid_external_load_balancer(cluster: kube.Client) -> None:
    for spec, words in (
        ({"hosts": []}, "spec.hosts"),
        ({"hosts": [{"url": "ftp://a"}]}, "spec.hosts[0].url"),
        ({"hosts": [{"url": "http://a"}] * 2}, "a host may be named once"),
        ({"type": "haproxy"}, "spec.type"),
        (
            {"tls": {"mode": "SkipVerify", "caCertificateRef": {"name": "x"}}},
            "caCertificateRef is for mode Verify only",
        ),
        ({"services": {"namespaces": ["*", "a"]}}, "* stands for all"),
        ({"parameters": {"weight": 0}}, "spec.parameters.weight"),
    ):
        manifest = balancer("wrong", "http://a/api")
        manifest["spec"] |= spec
        with pytest.raises(kube.Invalid) as refusal:
            await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, manifest)
        assert words in str(refusal.value)
