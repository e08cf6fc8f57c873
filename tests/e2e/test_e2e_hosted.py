"""Hosted kube-apiservers in a whole `gatehouse up`: access, and connections across changes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fakes import apiservers
from fakes.apiservers import Client, ConnectionRejected, Server, apiserver, connect, server_name_at
from fakes.authority import Authority
from fakes.durations import pace
from fakes.installation import Installation, apply, holds
from fakes.patience import limit, until
from gatehouse.apis import resources
from gatehouse.compiler.ir.http import Endpoint
from gatehouse.kube import client as kube
from gatehouse.kube import errors as kube_errors
from kube_base.types.resource import Resource

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = float(os.environ.get("CHURN_SECONDS", "20"))
HELD = 200
"""Connections that live through all changes."""

OUTSIDE, INSIDE = 8443, 9443
Object = dict[str, Any]

DNS_ENDPOINT: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "dnsendpoints.externaldns.k8s.io"},
    "spec": {
        "group": "externaldns.k8s.io",
        "names": {
            "kind": "DNSEndpoint", "listKind": "DNSEndpointList",
            "plural": "dnsendpoints", "singular": "dnsendpoint",
        },
        "scope": "Namespaced",
        "versions": [{
            "name": "v1alpha1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": True,
            }},
        }],
    },
}  # fmt: skip


def meta(name: str, **more: Any) -> Object:
    return {"name": name, "namespace": "default", **more}


def gateway(*listeners: Object) -> Object:
    every = {"allowedRoutes": {"namespaces": {"from": "All"}}}
    names = {"name": "names", "port": OUTSIDE, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
    inside = {"name": "inside", "port": INSIDE, "protocol": "gatehouse.dev/ProxyProtocol"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": meta("apis", annotations={"gatehouse.dev/trusted-proxies": "127.0.66.0/24"}),
        "spec": {
            "gatewayClassName": "gatehouse-envoy",
            "listeners": [names | every, inside | every, *listeners],
        },
    }


def endpoints(name: str, *servers: Endpoint) -> Object:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": meta(f"{name}-1", labels={"kubernetes.io/service-name": name}),
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": servers[0].port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [server.address]} for server in servers],
    }


def service(name: str) -> Object:
    ports = [{"name": "https", "port": 443, "protocol": "TCP"}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(name), "spec": {"ports": ports}}


def hosted(name: str, *hosts: str, address: str = "", **spec: Any) -> Object:
    expected: Object = {
        "parentRefs": [{"name": "apis"}],
        "hosts": list(hosts) or [f"api.{name}.test"],
        "service": {"name": name},
        **spec,
    }
    if address:
        expected["advertiseAddress"] = address
    return {
        "apiVersion": "gatehouse.dev/v1alpha1",
        "kind": "HostedAPIServer",
        "metadata": meta(name),
        "spec": expected,
    }


async def serve(client: kube.Client, server: Server, **spec: Any) -> None:
    name = server.name
    await apply(
        client, [service(name), endpoints(name, server.endpoint), hosted(name, **spec)]
    )  # fmt: skip
    await holds(client, "HostedAPIServer", name, "Programmed")


async def remove(client: kube.Client, name: str) -> None:
    await client.delete(resources.HOSTED_API_SERVERS, name, "default")
    await client.delete(resources.SERVICES, name, "default")
    await client.delete(resources.ENDPOINT_SLICES, f"{name}-1", "default")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def trust(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False
    context.load_cert_chain(*authority.issue("alice", x509.DNSName("alice")))
    return context


@pytest.fixture
async def address(client: kube.Client) -> str:
    await apply(client, [gateway()])
    condition = await holds(client, "Gateway", "apis", "Programmed")
    return str(condition["addresses"][0]["value"])


async def test_external_and_internal_clients_reach_their_own_cluster(
    client: kube.Client, authority: Authority, trust: ssl.SSLContext, address: str,
    installation: Installation, tmp_path: Path,
) -> None:  # fmt: skip
    names, inside = (address, OUTSIDE), (address, INSIDE)
    async with (
        apiserver(authority, "a", needs_certificate=True) as a,
        apiserver(authority, "b") as b,
    ):
        await serve(client, a, address="10.1.2.3", dns={"publish": True})
        await serve(client, b, address="fd00::5", allowedSources=["127.0.9.0/24", "192.0.2.0/24"])
        alice = await connect(names, trust, "API.a.test")
        assert (alice.server, alice.shown) == ("a", "alice")
        assert await server_name_at(names, trust, "api.b.test", source="127.0.9.1") == "b"
        assert await server_name_at(names, trust, "api.b.test", source="127.0.8.1") == ""
        assert await server_name_at(names, trust, "api.c.test") == ""
        assert await server_name_at(names, trust, None) == ""

        async def through(header: bytes, source: str = "127.0.66.1") -> str:
            return await server_name_at(inside, trust, None, header=header, source=source)

        first, second = apiservers.version_1, apiservers.version_2
        assert await through(first("192.0.2.1", "10.1.2.3", 443)) == "a"
        assert await through(second("192.0.2.1", "10.1.2.3", 443)) == "a"
        assert await through(second("2001:db8::1", "fd00::5", 443)) == ""
        assert await through(first("192.0.2.1", "10.1.2.3", 6443)) == ""
        assert await through(first("192.0.2.1", "10.1.2.3", 443), "127.0.67.1") == ""
        assert await through(apiservers.LOCAL) == await through(apiservers.UNKNOWN) == ""

        hosted_api_server = await client.get(resources.HOSTED_API_SERVERS, "a", "default")
        assert hosted_api_server["status"]["readyEndpoints"] == 1
        assert hosted_api_server["status"]["addresses"] == [{"type": "IPAddress", "value": address}]

        with pytest.raises(kube_errors.Invalid, match="already used by HostedAPIServer default/a"):
            await apply(client, [hosted("late", "api.a.test")])
        assert await server_name_at(names, trust, "api.a.test") == "a"

        zone = tmp_path / "zone"
        command = [sys.executable, "-m", "gatehouse", "dns", "zone", "--zone", "test"]
        where = ["--kubeconfig", str(installation.kubeconfig), "--output", str(zone)]
        process = await asyncio.create_subprocess_exec(*command, *where)
        assert await process.wait() == 0
        assert zone.read_text() == (
            f"$ORIGIN test.\napi.a 60 IN A {address}\napi.b 60 IN A {address}\n"
        )
        # Chains, lists and names change around it.
        await apply(client, [hosted("b", address="fd00::5", allowedSources=["127.0.8.0/24"])])

        async def other_list() -> bool:
            return await server_name_at(names, trust, "api.b.test", source="127.0.8.1") == "b"

        await until(other_list)
        assert await server_name_at(names, trust, "api.b.test", source="127.0.9.1") == ""
        await client.delete(resources.HOSTED_API_SERVERS, "b", "default")

        async def gone() -> bool:
            return await server_name_at(names, trust, "api.b.test", source="127.0.8.1") == ""

        await until(gone)
        assert await alice.echo("still here") == "still here"
        alice.close()
        await remove(client, "a")


async def test_dns_endpoint_lists_hostnames_of_its_server(
    client: kube.Client, authority: Authority, address: str
) -> None:
    definitions = Resource(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
        namespaced=False,
    )  # fmt: skip
    with contextlib.suppress(kube.AlreadyExists):
        await client.create(definitions, DNS_ENDPOINT)

    async def published() -> Any:
        with contextlib.suppress(kube.NotFound):
            dns_endpoint = await client.get(resources.DNS_ENDPOINTS, "d", "default")
            return [(e["dnsName"], e["targets"]) for e in dns_endpoint["spec"]["endpoints"]]
        return []

    async with apiserver(authority, "d") as d:
        await serve(client, d, dns={"publish": True, "ttlSeconds": 30})
        expected = [("api.d.test", [address])]
        await until(lambda: _is(published, expected))
        more = hosted("d", "api.d.test", "other.d.test", dns={"publish": True})
        await apply(client, [more])
        await until(lambda: _is(published, [*expected, ("other.d.test", [address])]))
        await apply(client, [hosted("d", dns={"publish": False})])
        await until(lambda: _is(published, []))
        await remove(client, "d")


async def _is(read: Any, expected: Any) -> bool:
    return bool(await read() == expected)


class Held:
    """Connections that say something all the time."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self.said = Counter[str]()
        self.lost: list[str] = []

    async def run(self, ends: float) -> None:
        await asyncio.gather(*(self._talk(client, ends) for client in self.clients))

    async def _talk(self, client: Client, ends: float) -> None:
        number = 0
        while time.monotonic() < ends:
            number += 1
            try:
                async with limit():
                    assert await client.echo(str(number)) == str(number)
            except (ConnectionRejected, TimeoutError) as error:
                self.lost.append(f"{client.server}: {error!r}")
                return
            self.said[client.server] += 1
            await pace(0.5)


async def _change(
    client: kube.Client, number: int, backend_pairs: list[tuple[Server, Server]]
) -> None:
    """Do the next of: a name more, endpoints that move, a list, a name less."""
    name = f"churn-{number // 4}"
    one, other = backend_pairs[number % len(backend_pairs)]
    match number % 4:
        case 0:
            sources = {"allowedSources": ["127.0.0.0/8"]} if number % 8 else {}
            hosted_object = hosted(
                name, address=f"10.9.{number // 250}.{number % 250 + 1}", **sources
            )
            await apply(client, [service(name), endpoints(name, one.endpoint), hosted_object])
        case 1:
            ready = [one.endpoint, other.endpoint]
            await apply(client, [endpoints(one.name, ready[number // 4 % 2])])
        case 2:
            await apply(client, [endpoints(name, other.endpoint)])
        case _:
            if number > 40:
                await remove(client, f"churn-{number // 4 - 10}")


@pytest.mark.long
async def test_connections_survive_hostname_additions_and_removals(
    client: kube.Client, authority: Authority, trust: ssl.SSLContext, address: str
) -> None:
    """Tests of the back end cover later ends, after Envoy drained the changed filter chains."""
    async with contextlib.AsyncExitStack() as stack:
        backend_pairs = []
        for number in range(5):
            one = await stack.enter_async_context(apiserver(authority, f"kept-{number}"))
            other = await stack.enter_async_context(apiserver(authority, f"kept-{number}"))
            backend_pairs.append((one, other))
            await serve(client, one, address=f"10.8.0.{number + 1}")
        connections = []
        for number in range(HELD):
            name = f"kept-{number % 5}"
            header = apiservers.version_2("192.0.2.1", f"10.8.0.{number % 5 + 1}", 443)
            if number % 2:
                connection = await connect((address, OUTSIDE), trust, f"api.{name}.test")
            else:
                connection = await connect(
                    (address, INSIDE), trust, None, header=header, source="127.0.66.1"
                )
            assert connection.server == name
            connections.append(connection)
        held, begun = Held(connections), time.monotonic()
        talking = asyncio.create_task(held.run(begun + SECONDS))
        number = 0
        while time.monotonic() - begun < SECONDS:
            await _change(client, number, backend_pairs)
            number += 1
            await asyncio.sleep(max(0.0, begun + number * 0.1 - time.monotonic()))
        await talking
        last = f"churn-{(number - 1) // 4}"
        await holds(client, "HostedAPIServer", last, "Programmed")
        reached = await server_name_at((address, OUTSIDE), trust, f"api.{last}.test")
        for connection in connections:
            connection.close()
    print(f"{number} changes in {SECONDS:.0f} s; {sum(held.said.values())} echoes over {HELD}")
    assert not held.lost, f"{len(held.lost)} of {HELD}: {held.lost[:10]}"
    assert min(held.said.values()) > HELD / 5
    assert reached.startswith("kept-")
