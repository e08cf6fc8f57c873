"""The real nlk 0.3 and 1.2 fill a host, and Gatehouse takes it over without a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes import peers
from fakes.hosts import JITTER, Host, plus, running_host
from fakes.load_balancer_world import World, nlk, nlk_file, node, port, service
from fakes.nlk import cluster, last_lines, running_nlk
from gatehouse.compiler.backends.nginx_plus import generate_upstreams
from gatehouse.compiler.frontends import external_load_balancer as front

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.peers]

OLD_LABEL: Any = {"node-role.kubernetes.io/master": ""}
NEW_LABEL: Any = {"node-role.kubernetes.io/control-plane": ""}
BOTH_LABELS: Any = {**OLD_LABEL, **NEW_LABEL}
NODES = (node("a", "10.0.0.1"), node("b", "10.0.0.2"), node("m", "10.0.0.9", **BOTH_LABELS))
ANNOTATIONS = {"nginx.com/nginxaas": "nginxaas", "nginxinc.io/nlk-db": "stream"}
SERVERS = {
    "http/web": ["10.0.0.1:30080", "10.0.0.2:30080"],
    "stream/db": ["10.0.0.1:30081", "10.0.0.2:30081"],
}


async def filled(host: Host, log: Path) -> None:
    try:
        await host.until(lambda: {name: host.held(name) for name in SERVERS} == SERVERS)
    except TimeoutError:
        servers = {name: host.held(name) for name in SERVERS}
        raise AssertionError(f"{servers}: {last_lines(log)}") from None


async def take_over(host: Host, *objects: Any) -> None:
    """Synchronize the host with these objects, and assert that nothing changes."""
    host.calls()
    balancer = World(*objects).plus(front.NLK_CONFIG_KEY)
    host.worker.set_desired(generate_upstreams(balancer).desired)
    await host.pass_(JITTER)
    assert host.reports[-1].behind == 0
    assert not [call for call in host.calls() if not call.startswith("GET ")]
    assert {name: host.held(name) for name in SERVERS} == SERVERS


async def test_host_filled_by_nlk_0_3_is_taken_over(tmp_path: Path) -> None:
    peers.binary("nlk-0.3", "nlk")
    ports = (port("nlk-web", 30080), port("nlk-db", 30081, port=81))
    app = service("app", *ports, annotations=ANNOTATIONS)
    async with running_host(plus(*SERVERS)) as host:
        objects = (*NODES, app, nlk(nginx_hosts=host.worker.knowledge._url, tls_mode="no-tls"))
        async with (
            cluster(tmp_path, *objects) as (server, client),
            running_nlk("nlk-0.3", server, client, tmp_path) as log,
        ):
            await filled(host, log)
        await take_over(host, *objects)


async def test_host_filled_by_nlk_1_2_is_taken_over(tmp_path: Path) -> None:
    peers.binary("nlk-1.2.7", "nlk")
    ports = (port("http-web", 30080), port("stream-db", 30081, port=81))
    app = service("app", *ports, annotations=ANNOTATIONS)
    new = node("cp", "10.0.0.2", **NEW_LABEL)
    async with running_host(plus(*SERVERS), authorization="ApiKey azE=") as host:
        text = f'nginx-hosts: ["{host.worker.knowledge._url}"]\ntls-mode: ca-tls\n'
        text += "NGINXAAS_DATAPLANE_API_KEY: k1\n"
        objects = (NODES[0], new, NODES[2], app, nlk_file(text))
        async with (
            cluster(tmp_path, *objects) as (server, client),
            running_nlk("nlk-1.2.7", server, client, tmp_path, text) as log,
        ):
            await filled(host, log)
        header = World(*objects).plus(front.NLK_CONFIG_KEY).hosts[0].authorization.reveal()
        assert header == b"ApiKey azE="
        await take_over(host, *objects)
