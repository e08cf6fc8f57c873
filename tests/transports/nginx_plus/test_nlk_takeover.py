"""Hosts that nlk has filled are taken over without the removal of a live server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fakes.hosts import JITTER, plus, running_host
from fakes.load_balancer_world import World, nlk, nlk_file, node, port, service
from gatehouse.compiler.backends.nginx_plus import generate_upstreams
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.dataplane.nginx_plus import DesiredUpstreams

ANNOTATIONS = {"nginx.com/nginxaas": "nginxaas", "nginxinc.io/nlk-db": "stream"}
CONFIGS = [
    pytest.param(nlk(nginx_hosts="http://h/api"), "nlk-web", "nlk-db", id="0.x"),
    pytest.param(nlk_file("nginx-hosts: http://h/api"), "http-web", "stream-db", id="1.x"),
]


def desired(config: Any, ports: Sequence[str], *nodes: Any) -> DesiredUpstreams:
    listed = [port(name, 30080 + number) for number, name in enumerate(ports)]
    world = World(config, *nodes, service("app", *listed, annotations=ANNOTATIONS))
    return generate_upstreams(world.plus(front.NLK_CONFIG_KEY)).desired


def filled(*addresses: str) -> Any:
    """Return a host with these addresses, as nlk adds them: without parameters."""
    result = plus("http/web", "stream/db", "http/foreign")
    for number, (kind, name) in enumerate((("http", "web"), ("stream", "db"))):
        for address in addresses:
            body = {"server": f"{address}:{30080 + number}"}
            result.upstreams[kind, name].add(body, None, 9)
    result.upstreams["http", "foreign"].load("192.0.2.1:80")
    return result


@pytest.mark.parametrize(("config", "web", "db"), CONFIGS)
async def test_host_with_the_same_servers_gets_no_change(config: Any, web: str, db: str) -> None:
    nodes = (node("a", "10.0.0.1"), node("b", "10.0.0.2"))
    async with running_host(filled("10.0.0.2", "10.0.0.1")) as host:
        host.worker.set_desired(desired(config, (web, db), *nodes))
        await host.pass_(JITTER)
        await host.pass_(60)
        assert host.reports[-1].behind == 0
        assert not [call for call in host.calls() if not call.startswith("GET ")]
        assert host.held("http/foreign") == ["192.0.2.1:80"]


@pytest.mark.parametrize(("config", "web", "db"), CONFIGS)
async def test_only_differences_are_sent_and_additions_come_first(
    config: Any, web: str, db: str
) -> None:
    nodes = (node("a", "10.0.0.1"), node("c", "10.0.0.3"))
    async with running_host(filled("10.0.0.1", "10.0.0.2")) as host:
        live = {server.id for server in host.upstream("http/web").servers.values()} - {1}
        host.worker.set_desired(desired(config, (web, db), *nodes))
        await host.pass_(JITTER)
        changes = [call for call in host.calls() if not call.startswith("GET ")]
        for path in ("/http/upstreams/web/servers", "/stream/upstreams/db/servers"):
            assert [call for call in changes if path in call] == [
                f"POST {path}",
                f"DELETE {path}/1",
            ]
        assert len(changes) == 4
        assert live <= host.upstream("http/web").servers.keys()
        assert host.held("http/web") == ["10.0.0.1:30080", "10.0.0.3:30080"]


@pytest.mark.parametrize(("config", "web", "db"), CONFIGS)
async def test_filled_host_keeps_its_servers_while_no_node_is_known(
    config: Any, web: str, db: str
) -> None:
    async with running_host(filled("10.0.0.1", "10.0.0.2")) as host:
        host.worker.set_desired(desired(config, (web, db)))
        await host.pass_(JITTER)
        assert host.held("http/web") == ["10.0.0.1:30080", "10.0.0.2:30080"]
        assert not [call for call in host.calls() if not call.startswith("GET ")]
