"""Errors of external machines in status, and specs that the CRD rejects."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from fakes.external_fixtures import MARKS, OUTSIDE, authority, cluster, options, place
from fakes.external_machines import Machine
from fakes.external_objects import FRONT, balancer, listeners, service, wait_for_status
from fakes.external_traffic import greeting_of, node, web
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["authority", "cluster", "options", "place"]

pytestmark = MARKS


async def test_port_in_use_is_reported_with_nginx_message_and_others_are_served(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE)
    machine.certify(authority, "edge/taken")
    holder = await asyncio.start_server(lambda _, w: w.close(), FRONT, 8100)
    load_balancer = balancer("taken", "nginx", ("lb-1",), listeners(8100))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, load_balancer)
    await cluster.create(resources.SERVICES, service())
    async with holder, node(1, place), machine.running():
        words = f"bind() to {FRONT}:8100 failed (98: Address"
        result = await wait_for_status(cluster, "taken", "HostSyncFailed", "port 8100: rejected by")
        assert words in str(result["hosts"][0])

        async def others_are_served() -> bool:
            with contextlib.suppress(OSError):
                return await greeting_of(8101) == "node-1"
            return False

        await until(others_are_served)
        holder.close()
        await wait_for_status(cluster, "taken", "Programmed")
        assert await web(8100) == (200, "node-1")


async def test_machine_with_wrong_proxy_is_reported(
    cluster: kube.Client, authority: Path, place: Path
) -> None:
    machine = Machine(place, "lb-1", OUTSIDE, "envoy")
    machine.certify(authority, "edge/other")
    load_balancer = balancer("other", "nginx", ("lb-1",), listeners(8110))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, load_balancer)
    async with machine.running():
        words = "lb-1: agent runs another proxy than spec.type: Nginx"
        await wait_for_status(cluster, "other", "HostSyncFailed", words)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hosts": [{"url": "http://a/api"}]}, "machines of the other types a name"),
        ({"hosts": [{"name": "a", "url": "http://a"}]}, "either a url or a name"),
        ({"hosts": [{"name": "a"}, {"name": "a"}]}, "a host may be named once"),
        ({"hosts": [{"name": "a/b"}]}, "spec.hosts[0].name"),
        ({"listeners": None}, "listeners are needed"),
        ({"listeners": []}, "spec.listeners"),
        (
            {"listeners": [{"port": 0, "protocol": "TCP", "upstream": "a"}]},
            "spec.listeners[0].port",
        ),
        ({"listeners": [{"port": 1, "protocol": "SCTP", "upstream": "a"}]}, "protocol"),
        (
            {"listeners": [{"port": 1, "protocol": "TCP", "upstream": "a", "hostname": "a.b"}]},
            "hostname is for HTTP and TLS",
        ),
        (
            {"listeners": [{"port": 1, "protocol": "HTTP", "upstream": "a", "hostname": "a;b"}]},
            "spec.listeners[0].hostname",
        ),
        ({"listeners": [{"port": 1, "protocol": "HTTP", "upstream": "a"}] * 2}, "Duplicate value"),
        ({"tls": {}}, "are for type NginxPlus"),
        ({"parameters": {"weight": 2}}, "are for type NginxPlus"),
        ({"drainSeconds": 3}, "are for type NginxPlus"),
        ({"type": "NginxPlus", "hosts": [{"url": "http://a"}]}, "NGINX Plus has its own"),
    ],
)
async def test_crd_rejects_invalid_external_load_balancer(
    cluster: kube.Client, spec: dict[str, Any], words: str
) -> None:
    manifest = balancer("wrong", "nginx", ("lb-1",), listeners(8160))
    del manifest["spec"]["bindAddress"]
    manifest["spec"] |= spec
    manifest["spec"] = {key: value for key, value in manifest["spec"].items() if value is not None}
    with pytest.raises(kube.Invalid) as refusal:
        await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, manifest)
    assert words in str(refusal.value)


async def test_type_of_a_load_balancer_is_immutable(cluster: kube.Client) -> None:
    manifest = balancer("fixed", "nginx", ("lb-1",), listeners(8170))
    await cluster.create(resources.EXTERNAL_LOAD_BALANCERS, manifest)
    with pytest.raises(kube.Invalid) as refusal:
        change = {"spec": {"type": "Envoy"}}
        await cluster.patch(resources.EXTERNAL_LOAD_BALANCERS, "fixed", change, "edge")
    assert "the type of a load balancer cannot change" in str(refusal.value)
