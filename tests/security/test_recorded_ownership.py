"""Takeover of a name or address in the seconds after it was first served.

Who: the owner of an older UpstreamCluster or HostedAPIServer. Through: an edit that names what
another object has got a moment ago, while the controller restarts. What must hold: the other object
keeps it, though a hung instance defers its status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.authority import Authority
from fakes.gateway_estate import ENVOY, Estate
from fakes.ownership_estate import APIS, INSIDE, NAMES, RULE, day
from gatehouse.apis import resources
from gatehouse.controller.deferred_status import MAX_DEFER_SECONDS

Object = dict[str, Any]
RESTART_SECONDS = MAX_DEFER_SECONDS / 4


def upstream_cluster(name: str, created: int, pair: tuple[bytes, bytes], *names: str) -> Object:
    serving = {"certData": pair[0].decode(), "keyData": pair[1].decode()}
    spec = {
        "servers": [{"endpoint": "http://10.0.0.1:8080"}],
        "dispatchPolicies": [{"rules": [RULE]}],
        "secureServing": {**serving, "serverNames": list(names)},
    }
    return {"metadata": {"name": name, "creationTimestamp": day(created)}, "spec": spec}


def hosted_server(name: str, created: int, *hosts: str, address: str = "") -> Object:
    spec: Object = {
        "parentRefs": [{"namespace": "default", "name": "gw"}],
        "hosts": list(hosts),
        "service": {"name": name},
    }
    spec |= {"advertiseAddress": address} if address else {}
    metadata = {"name": name, "namespace": "default", "creationTimestamp": day(created)}
    return {"metadata": metadata, "spec": spec}


class Names:
    """A Gateway with UpstreamClusters and HostedAPIServers of two owners."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.estate = Estate(self.authority)
        self.pair = self.estate.pair("a.test")

    def prepare(self) -> None:
        """Have the Gateway, and what both owners have before."""
        store = self.estate.store
        spec = {"gatewayClassName": ENVOY, "listeners": [APIS, NAMES, INSIDE]}
        metadata = {"name": "gw", "namespace": "default"}
        store.put(resources.GATEWAYS, {"metadata": metadata, "spec": spec})
        for name in ("old", "new"):
            ports = [{"name": "https", "port": 443, "protocol": "TCP"}]
            metadata = {"name": name, "namespace": "default"}
            store.put(resources.SERVICES, {"metadata": metadata, "spec": {"ports": ports}})
        self.edit("old", 1)

    def edit(self, name: str, created: int, *more: str, address: str = "") -> None:
        """Have the objects of an owner, which serve more names, and an address."""
        store = self.estate.store
        names = [f"api.{host}" for host in more]
        store.put(
            resources.UPSTREAM_CLUSTERS,
            upstream_cluster(f"{name}.kube", created, self.pair, *names),
        )
        hosts = [f"{host}.hosted" for host in (name, *more)]
        obj = hosted_server(name, created, *hosts, address=address)
        store.put(resources.HOSTED_API_SERVERS, obj)

    def served(self) -> Mapping[str, str]:
        """Return the objects behind names and the address, as compiled."""
        result = self.estate.controller.loop._last
        gateway = result.gateways["Gateway", "default", "gw"].gateway
        assert gateway is not None
        clusters = [cluster for listener in gateway.api_listeners for cluster in listener.clusters]
        owners = {host: cluster.name for cluster in clusters for host in cluster.hosts}
        for key, status in result.statuses.items():
            if key[0] == "HostedAPIServer":
                owners |= dict.fromkeys(getattr(status, "hosts", ()), key[2])
        services = {backend.name: backend.origin.name for backend in gateway.clusters}
        for listener in gateway.proxy_protocol_listeners:
            owners |= {to.address: services[to.cluster] for to in listener.destinations}
        return owners

    async def until_told(self, agent_messages: int) -> None:
        """Wait until an instance has received a message more."""
        async with asyncio.timeout(RESTART_SECONDS):
            while self.estate.agents.told["default/gw"] <= agent_messages:
                await patience.pause()


@pytest.fixture
def names(tmp_path: Path) -> Names:
    return Names(tmp_path)


async def test_restart_after_a_name_was_served_keeps_its_owner(names: Names) -> None:
    async with names.estate.running(0):
        names.prepare()
        names.estate.agents.connect("gw", ENVOY, 0)
        await names.estate.rest()
        names.estate.agents.connect("gw", ENVOY, 1, hangs=True)
        await names.estate.rest()
        messages = names.estate.agents.told["default/gw"]
        names.edit("new", 9, "x", address="10.1.2.3")
        await names.until_told(messages)
        expected = names.served()
        # Killed: from here on, this controller writes nothing.
    assert (expected["api.x"], expected["x.hosted"]) == ("new.kube", "new")
    assert expected["10.1.2.3"] == "new"
    names.edit("old", 1, "x", address="10.1.2.3")
    names.estate = Estate(names.authority, names.estate.store)
    async with names.estate.running(0):
        names.estate.agents.connect("gw", ENVOY, 0)
        await names.estate.rest()
        assert names.served() == expected


async def test_record_is_written_while_the_status_waits(names: Names) -> None:
    store = names.estate.store
    async with names.estate.running(0):
        names.prepare()
        names.estate.agents.connect("gw", ENVOY, 0)
        names.estate.agents.connect("gw", ENVOY, 1, hangs=True)
        await names.estate.rest()
        names.edit("new", 9, "x", address="10.1.2.3")
        await names.estate.rest()
        status = store.objects["UpstreamCluster", "", "new.kube"]["status"]
        assert status == {"ownedHosts": [{"gateway": "default/gw", "hosts": ["api.x", "new.kube"]}]}
        owned = store.objects["HostedAPIServer", "default", "new"]["status"]
        assert owned == {
            "owned": {
                "hosts": ["new.hosted", "x.hosted"],
                "address": "10.1.2.3",
                "service": "new:443",
            }
        }
