"""A real Prometheus scrapes a running installation, and evaluates dashboards and alert rules."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import dashboards
import pytest
import yaml

from fakes import promtool
from fakes.installation import BACKEND, ROOT, Installation, address, apply, get, hello, holds
from fakes.patience import until, until_equal
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = pytest.mark.process

CHART = ROOT / "charts" / "gatehouse"
RULES = CHART / "monitoring" / "alerts.yaml"
PANELS_WITH_TRAFFIC = {
    "overview": {"Requests", "Duration of requests, 99th percentile", "Traffic",
                 "Ready data plane instances", "Gateways and connected instances",
                 "Duration of compile passes, 99th percentile"},
    "routes": {"Requests", "Requests by status class", "Requests by method", "Duration of requests",
               "Duration of backends", "Traffic", "Requests by backend", "Endpoints of backends"},
    "data-planes": {"Confirmed versions", "Time since the last confirmed version",
                    "Proxies that respond", "NGINX: duration of an apply, 99th percentile",
                    "NGINX: reloads, and endpoint updates without a reload"},
    "agents": {"Connected to the control plane"},
    "l4-routes": {"Connections and sessions", "Duration of connections", "Traffic",
                  "Connections by backend"},
}  # fmt: skip
"""Panels that have values on an installation with one NGINX, some requests and connections."""

PANELS_WITH_FAILURES = {
    "l4-routes": {"Connections that were not forwarded", "Connections without a route"}
}
"""Panels that have values too if connections fail."""

WITHOUT_TRAFFIC = ("kube-apiservers",)
"""Dashboards whose variables have no values there."""

TCP_PORT, CLOSED_PORT, TLS_PORT = 9432, 9433, 9434


def relabelings() -> list[dict[str, Any]]:
    """Return the relabeling of the chart's PodMonitor, in the form of Prometheus' own file."""
    template = (CHART / "templates" / "podmonitors.yaml").read_text("utf-8")
    _, _, text = template.partition("relabelings:\n")
    rules = yaml.safe_load(text.partition("{{")[0])
    return [
        {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): value
         for key, value in rule.items()}
        for rule in rules
    ]  # fmt: skip


def pod_target(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a Pod as Prometheus discovers it: without ports."""
    annotations, ip = pod["metadata"]["annotations"], pod["status"]["podIP"]
    return {
        "targets": [ip],
        "labels": {
            "__meta_kubernetes_pod_ip": ip,
            "__meta_kubernetes_pod_annotation_prometheus_io_port": annotations[
                "prometheus.io/port"
            ],
        },
    }


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self._url, self._session = f"http://127.0.0.1:{port}/api/v1", session

    async def api(self, path: str, **parameters: str) -> Any:
        """Return the data of a response; raise AssertionError for an error."""
        async with self._session.get(f"{self._url}/{path}", params=parameters) as response:
            document = await response.json()
        assert document["status"] == "success", document
        return document["data"]

    async def query(self, expression: str) -> list[Any]:
        return (await self.api("query", query=expression))["result"]  # type: ignore[no-any-return]


@contextlib.asynccontextmanager
async def prometheus(directory: Path, configuration: dict[str, Any]) -> AsyncIterator[Prometheus]:
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            promtool.program("prometheus"),
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            yield Prometheus(port, session)
    finally:
        process.terminate()
        await process.wait()


def l4_route(kind: str, name: str, backend: str, **spec: Any) -> dict[str, Any]:
    """Return a route at the listener of its name."""
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parentRefs": [{"name": "web", "sectionName": name}],
            "rules": [{"backendRefs": [{"name": backend, "port": 80}]}],
            **spec,
        },
    }


def objects() -> list[dict[str, Any]]:
    """Return the objects of the example with L4 routes: to its Service, and to a closed port."""
    gateway, *others = hello()
    gateway["spec"]["listeners"] += [
        {"name": "tcp", "port": TCP_PORT, "protocol": "TCP"},
        {"name": "closed", "port": CLOSED_PORT, "protocol": "TCP"},
        {"name": "tls", "port": TLS_PORT, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
    ]
    metadata = {"name": "closed", "namespace": "default"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [{"name": "http", "port": 80}]},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "closed"}},
        "addressType": "IPv4",
        # No process listens on port 9 of this machine.
        "ports": [{"name": "http", "port": 9, "protocol": "TCP"}],
        "endpoints": [{"addresses": [BACKEND[0]]}],
    }
    return [
        gateway,
        *others,
        service,
        endpoints,
        l4_route("TCPRoute", "tcp", "app"),
        l4_route("TCPRoute", "closed", "closed"),
        l4_route("TLSRoute", "tls", "app", hostnames=["known.example"]),
    ]


async def send(gateway: str) -> None:
    """Send a request to the HTTP listener and one through the TCP listener, which both succeed."""
    assert (await get(gateway, "/"))[0] == 200
    reader, writer = await asyncio.open_connection(gateway, TCP_PORT)
    writer.write(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def fail(gateway: str) -> None:
    """Open a connection to a route whose backend refuses it, and one without a route."""
    reader, writer = await asyncio.open_connection(gateway, CLOSED_PORT)
    # NGINX closes it, or resets it.
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(
            gateway, TLS_PORT, ssl=ssl.create_default_context(), server_hostname="other.example"
        )


async def panels_without_values(
    server: Prometheus, panels: Mapping[str, set[str]]
) -> dict[str, set[str]]:
    """Return those of the panels whose queries have no values. Every query must be valid."""
    missing = {name: set(titles) for name, titles in panels.items()}
    for dashboard in dashboards.dashboards():
        for panel in dashboard.panels:
            results = [await server.query(instance_of(query.query)) for query in panel.queries]
            if any(results):
                missing.get(dashboard.name, set()).discard(panel.title)
    return {name: titles for name, titles in missing.items() if titles}


async def panels_have_values(
    server: Prometheus, panels: Mapping[str, set[str]], make_traffic: Callable[[], Awaitable[None]]
) -> None:
    """Make traffic until all panels have values. Rates need two scrapes of each target."""

    async def missing() -> Any:
        await make_traffic()
        return await panels_without_values(server, panels)

    await until_equal(missing, {})


def scraping(directory: Path, pods: list[dict[str, Any]], controller: str) -> dict[str, Any]:
    """Return a configuration that scrapes Pods and a controller, with the rules of the chart."""
    (directory / "pods.json").write_text(json.dumps([pod_target(pod) for pod in pods]))
    agents = {"job_name": "agents", "honor_labels": True, "relabel_configs": relabelings(),
              "file_sd_configs": [{"files": [str(directory / "pods.json")]}]}  # fmt: skip
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            agents,
            {"job_name": "controller", "static_configs": [{"targets": [controller]}]},
        ],
    }


async def test_prometheus_evaluates_dashboards_and_rules(
    installation: Installation, client: kube.Client, backends: None, tmp_path: Path
) -> None:
    await apply(client, objects())
    await holds(client, "Gateway", "web", "Programmed")
    await holds(client, "TCPRoute", "tcp", "Accepted")
    await holds(client, "TLSRoute", "tls", "Accepted")
    gateway = await address(client)
    pods = (await client.list(resources.PODS, "default")).items
    health = json.loads((installation.state / "addresses.json").read_text())["health"]
    async with prometheus(tmp_path, scraping(tmp_path, pods, health)) as server:

        async def scraped() -> bool:
            await send(gateway)
            with contextlib.suppress(aiohttp.ClientError):
                targets = (await server.api("targets"))["activeTargets"]
                rate = await server.query("rate(gatehouse_route_requests_total[10s]) > 0")
                return {target["health"] for target in targets} == {"up"} and bool(rate)
            return False

        await until(scraped)
        await panels_have_values(server, PANELS_WITH_TRAFFIC, lambda: send(gateway))
        for dashboard in dashboards.dashboards():
            for label, metric in dashboard.variables.items():
                values = await server.api(f"label/{label}/values", **{"match[]": of_any(metric)})
                assert values or dashboard.name in WITHOUT_TRAFFIC, label
        groups = (await server.api("rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert len(rules) == len(re.findall("- alert:", RULES.read_text("utf-8")))

        async def evaluated() -> bool:
            groups = (await server.api("rules"))["groups"]
            health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
            assert "err" not in health.values(), health
            return set(health.values()) == {"ok"}

        await until(evaluated)
        alerts = (await server.api("alerts"))["alerts"]
        assert not alerts, "an installation without a problem has no alert"
        await panels_have_values(server, PANELS_WITH_FAILURES, lambda: fail(gateway))


def of_any(metric: str) -> str:
    """Return a query in which every value of a variable is chosen."""
    return re.sub(r"\$(namespace|gateway|route|cluster)\b", ".*", metric)


def instance_of(query: str) -> str:
    """Return a query as Grafana sends it, with all values of the variables."""
    return of_any(query).replace("$__rate_interval", "10s")
