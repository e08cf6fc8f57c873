"""The access log of a Gateway's data plane under `gatehouse up`, as its user reads it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fakes.installation import PORT, Installation, address, apply, get, hello, holds
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process

TCP_PORT = 9432


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def objects(gateway_class: str) -> list[dict[str, Any]]:
    """Return the objects of the example, with a TCP listener and its route."""
    gateway, *others = hello(gateway_class)
    gateway["spec"]["listeners"].append({"name": "tcp", "port": TCP_PORT, "protocol": "TCP"})
    tcp_route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "TCPRoute",
        "metadata": {"name": "raw", "namespace": "default"},
        "spec": {
            "parentRefs": [{"name": "web", "sectionName": "tcp"}],
            "rules": [{"backendRefs": [{"name": "app", "port": 80}]}],
        },
    }
    return [gateway, *others, tcp_route]


async def entry(installation: Installation, **fields: str) -> dict[str, Any]:
    """Wait for the only entry with these fields in the log files of data planes, and return it."""

    async def entries() -> list[dict[str, Any]]:
        lines = [
            line
            for file in installation.state.glob("node/pods/*/log")
            for line in file.read_text(errors="replace").splitlines()
            if line.startswith("{") and '"listener":' in line
        ]
        known = [json.loads(line) for line in lines]
        return [e for e in known if all(e.get(name) == value for name, value in fields.items())]

    [result] = await until(entries)
    return dict(result)


async def test_log_of_installed_gateway_has_requests_and_connections(
    installation: Installation, client: kube.Client, gateway_class: str, backends: None
) -> None:
    await apply(client, objects(gateway_class))
    await holds(client, "HTTPRoute", "app", "Accepted")
    await holds(client, "TCPRoute", "raw", "Accepted")
    host = await address(client)
    assert (await get(host, "/seen?token=secret"))[0] == 200
    request = await entry(installation, path="/seen")
    assert (request["route"], request["backend"]) == ("default/app/0", "Service/default/app")
    assert (request["listener"], request["status"]) == (f"default/web:{PORT}", 200)
    reader, writer = await asyncio.open_connection(host, TCP_PORT)
    writer.write(b"GET / HTTP/1.1\r\nHost: raw.example\r\nConnection: close\r\n\r\n")
    received = await reader.read()
    writer.close()
    connection = await entry(installation, listener=f"default/web:{TCP_PORT}")
    assert (connection["route"], connection["backend"]) == ("default/raw/0", "Service/default/app")
    assert connection["bytes_sent"] == len(received) > 0
