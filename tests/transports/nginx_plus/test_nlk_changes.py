"""The real nlk 0.3 and 1.2, and Gatehouse, follow the same changes of a cluster.

nlk fills two hosts and Gatehouse a third. After each change all three have the same servers.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes import patience, peers
from fakes.hosts import JITTER, Host, plus, running_host
from fakes.load_balancer_world import (
    World,
    endpoint,
    endpoints,
    nlk,
    nlk_file,
    node,
    port,
    service,
)
from fakes.nlk import RESOURCES, body_of, cluster, create, last_lines, running_nlk, status_of
from fakes.peer_differences import NLK_REMOVED_PORTS, NLK_UNREADY_ENDPOINTS
from gatehouse.compiler.backends.nginx_plus import generate_upstreams
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.peers]

Object = dict[str, Any]
Servers = dict[str, list[str]]
NODES = (node("a", "10.0.0.1"), node("b", "10.0.0.2"))
ANNOTATIONS = {"nginx.com/nginxaas": "nginxaas", "nginxinc.io/nlk-db": "stream"}
UPSTREAMS = ("http/web", "stream/db", "http/inner", "http/lb")
OWNED = {
    UpstreamName("http", "web"): ("Service", "nginx-ingress", "app"),
    UpstreamName("stream", "db"): ("Service", "nginx-ingress", "app"),
    UpstreamName("http", "inner"): ("Service", "nginx-ingress", "inner"),
    UpstreamName("http", "lb"): ("Service", "nginx-ingress", "lb"),
}
"""Service of each upstream, as the controller stores it."""


class NlkComparison:
    """A cluster, two hosts that nlk fills from it, and a host that Gatehouse fills."""

    def __init__(self, client: kube.Client, hosts: Sequence[Host], *objects: Object) -> None:
        """``hosts``: two for nlk and one for Gatehouse."""
        self._client = client
        *self._nlk, self._gatehouse = hosts
        self._world = World(*objects)
        self._services = {
            raw["metadata"]["name"]: raw for raw in objects if raw["kind"] == "Service"
        }
        self._touched = 0
        self.log = Path()

    async def put(self, raw: Object) -> None:
        """Create an object or replace its content. nlk follows Nodes only if a Service changes."""
        resource = RESOURCES[raw["kind"]]
        name, namespace = raw["metadata"]["name"], raw["metadata"]["namespace"]
        try:
            stored = await self._client.get(resource, name, namespace)
        except kube.NotFound:
            await create(self._client, raw)
        else:
            version = stored["metadata"]["resourceVersion"]
            body = body_of(raw)
            body["metadata"]["resourceVersion"] = version
            if raw["kind"] == "Service":
                body["spec"]["clusterIP"] = stored["spec"].get("clusterIP", "")
            updated = await self._client.update(resource, body)
            if raw["kind"] in ("Node", "Service"):
                await self._client.update_status(resource, {**updated, "status": status_of(raw)})
        if raw["kind"] == "Service":
            self._services[name] = raw
        self._world.put(raw)
        if raw["kind"] == "Node":
            await self._touch()

    async def remove(self, raw: Object) -> None:
        """Delete an object."""
        metadata = raw["metadata"]
        await self._client.delete(RESOURCES[raw["kind"]], metadata["name"], metadata["namespace"])
        self._world.remove(raw)
        if raw["kind"] == "Service":
            del self._services[metadata["name"]]
        elif raw["kind"] == "Node":
            await self._touch()

    async def _touch(self) -> None:
        """Change an annotation of each Service."""
        self._touched += 1
        for raw in self._services.values():
            changed = copy.deepcopy(raw)
            changed["metadata"]["annotations"]["touched"] = str(self._touched)
            await self.put(changed)

    async def compare(self, *, accepted: Servers | None = None) -> Servers:
        """Wait until all hosts have the same servers. Return them by upstream.

        ``accepted``: servers of upstreams at nlk that differ from those at Gatehouse.
        """
        result = await self.follow()
        expected = {**result, **(accepted or {})}
        try:
            await patience.until(lambda: all(held(host) == expected for host in self._nlk))
        except TimeoutError:
            states = [held(host) for host in self._nlk]
            raise AssertionError(f"{expected} {states}: {last_lines(self.log)}") from None
        return result

    async def follow(self) -> Servers:
        """Let Gatehouse serve the current objects. Return its servers by upstream."""
        self._world.engine.commit({front.owned(front.NLK_CONFIG_KEY): OWNED})
        balancer = self._world.plus(front.NLK_CONFIG_KEY)
        self._gatehouse.worker.set_desired(generate_upstreams(balancer).desired)
        await self._gatehouse.pass_(JITTER)
        return held(self._gatehouse)


def held(host: Host) -> Servers:
    """Return the servers of all upstreams."""
    return {name: host.held(name) for name in UPSTREAMS}


@contextlib.asynccontextmanager
async def comparison(
    tmp_path: Path, version: str, *objects: Object
) -> AsyncIterator[NlkComparison]:
    """Run nlk for these objects and its configuration with two hosts."""
    peers.binary(version, "nlk")
    async with contextlib.AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(running_host(plus(*UPSTREAMS))) for _ in range(3)]
        urls = [host.worker.knowledge._url for host in hosts[:2]]
        text = ""
        config = nlk(nginx_hosts=",".join(urls), tls_mode="no-tls")
        if version != "nlk-0.3":
            text = f"nginx-hosts: {urls}\ntls-mode: ca-tls\n"
            config = nlk_file(text)
        server, client = await stack.enter_async_context(cluster(tmp_path, *objects, config))
        result = NlkComparison(client, hosts, *objects, config)
        result.log = await stack.enter_async_context(
            running_nlk(version, server, client, tmp_path, text)
        )
        yield result


async def test_nlk_0_3_and_gatehouse_follow_the_same_changes(tmp_path: Path) -> None:
    ports = (port("nlk-web", 30080), port("nlk-db", 30081, port=81))
    app = service("app", *ports, annotations=ANNOTATIONS)
    async with comparison(tmp_path, "nlk-0.3", *NODES, app) as both:
        assert (await both.compare())["http/web"] == ["10.0.0.1:30080", "10.0.0.2:30080"]
        await both.put(node("c", "10.0.0.3"))
        assert (await both.compare())["stream/db"][2:] == ["10.0.0.3:30081"]
        await both.put(service("app", port("nlk-web", 30090), ports[1], annotations=ANNOTATIONS))
        assert (await both.compare())["http/web"][0] == "10.0.0.1:30090"
        await both.remove(NODES[0])
        servers = await both.compare()
        assert servers["http/web"] == ["10.0.0.2:30090", "10.0.0.3:30090"]
        # nlk does not empty the upstream of a removed port.
        app = service("app", port("nlk-web", 30090), annotations=ANNOTATIONS)
        await both.put(app)
        left = {name: servers[name] for name in NLK_REMOVED_PORTS.values}
        assert (await both.compare(accepted=left))["stream/db"] == []
        # nlk may leave servers of a removed Service, see NLK_REMOVED_SERVICES.
        await both.remove(app)
        assert (await both.follow())["http/web"] == []


async def test_nlk_1_2_and_gatehouse_follow_the_same_changes(tmp_path: Path) -> None:
    ports = (port("http-web", 30080), port("stream-db", 30081, port=81))
    app = service("app", *ports, annotations=ANNOTATIONS)
    inner = service("inner", port("http-inner"), annotations=ANNOTATIONS, type="ClusterIP")
    del inner["spec"]["ports"][0]["nodePort"]
    lb = service(
        "lb", port("http-lb", 30082), annotations=ANNOTATIONS, type="LoadBalancer",
        ingress=[{"ip": "192.0.2.10"}],
    )  # fmt: skip

    def slices(*members: Object) -> Object:
        return endpoints("inner", *members, ports=(("http-inner", 8080),))

    both_ready = slices(endpoint("10.1.0.1", ready=True), endpoint("10.1.0.2", ready=True))
    async with comparison(tmp_path, "nlk-1.2.7", *NODES, app, inner, lb, both_ready) as both:
        assert await both.compare() == {
            "http/web": ["10.0.0.1:30080", "10.0.0.2:30080"],
            "stream/db": ["10.0.0.1:30081", "10.0.0.2:30081"],
            "http/inner": ["10.1.0.1:8080", "10.1.0.2:8080"],
            "http/lb": ["192.0.2.10:80"],
        }
        await both.put(node("c", "10.0.0.3"))
        assert (await both.compare())["stream/db"][2:] == ["10.0.0.3:30081"]
        await both.put(service("app", port("http-web", 30090), ports[1], annotations=ANNOTATIONS))
        assert (await both.compare())["http/web"][0] == "10.0.0.1:30090"
        await both.put(slices(endpoint("10.1.0.3", ready=True)))
        assert (await both.compare())["http/inner"] == ["10.1.0.3:8080"]
        # nlk keeps endpoints that are not ready.
        await both.put(slices(endpoint("10.1.0.3", ready=True), endpoint("10.1.0.4", ready=False)))
        (upstream,) = NLK_UNREADY_ENDPOINTS.values
        unready = {upstream: ["10.1.0.3:8080", "10.1.0.4:8080"]}
        assert (await both.compare(accepted=unready))["http/inner"] == ["10.1.0.3:8080"]
        await both.put(slices(endpoint("10.1.0.3", ready=True)))
        lb["status"]["loadBalancer"]["ingress"] = [{"ip": "192.0.2.11"}, {"ip": "192.0.2.12"}]
        await both.put(lb)
        assert (await both.compare())["http/lb"] == ["192.0.2.11:80", "192.0.2.12:80"]
        await both.remove(inner)
        await both.remove(lb)
        servers = await both.compare()
        assert (servers["http/inner"], servers["http/lb"]) == ([], [])
        await both.remove(app)
        assert set(map(len, (await both.compare()).values())) == {0}
