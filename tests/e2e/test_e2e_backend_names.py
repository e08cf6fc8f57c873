"""Backends whose certificates are checked for names that NGINX cannot check itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fakes.authority import Authority
from fakes.https_server import serving
from fakes.installation import (
    HOST_NET,
    Installation,
    address,
    apply,
    get,
    hello,
    holds,
    route,
    traffic,
)
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.runtime import procfs
from gatehouse.sidecars.base import control

__all__ = ["installation"]

pytestmark = pytest.mark.process

SECURE = (f"{HOST_NET}.252", 9443)
META = {"namespace": "default"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def secure(authority: Authority) -> Iterator[None]:
    """Serve HTTPS under a name of a mesh and a wildcard."""
    names = (x509.UniformResourceIdentifier("spiffe://mesh/app"), x509.DNSName("*.mesh.example"))
    with serving(authority.server("app", *names), SECURE):
        yield


def trusted(authority: Authority) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "authorities", **META},
        "data": {"ca.crt": authority.pem.decode()},
    }


def policy(*names: dict[str, str]) -> dict[str, Any]:
    authorities = {"group": "", "kind": "ConfigMap", "name": "authorities"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "BackendTLSPolicy",
        "metadata": {"name": "secure", **META},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "secure"}],
            "validation": {
                "hostname": "front.example",
                "caCertificateRefs": [authorities],
                "subjectAltNames": list(names),
            },
        },
    }


def service() -> list[dict[str, Any]]:
    port = {"name": "https", "port": 80, "targetPort": SECURE[1], "protocol": "TCP"}
    labels = {"kubernetes.io/service-name": "secure"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "secure", **META},
            "spec": {"ports": [port]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "secure-1", **META, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": SECURE[1], "protocol": "TCP"}],
            "endpoints": [{"addresses": [SECURE[0]]}],
        },
    ]


def uri(value: str) -> dict[str, str]:
    return {"type": "URI", "uri": value}


def hostname(value: str) -> dict[str, str]:
    return {"type": "Hostname", "hostname": value}


async def test_backend_name_and_ca_changes_are_applied(
    installation: Installation,
    client: kube.Client,
    backends: None,
    secure: None,
    authority: Authority,
    tmp_path: Path,
) -> None:
    expected = policy(uri("spiffe://mesh/app"))
    manifests = [*hello(), *service(), trusted(authority), expected, route("s", "/s", "secure")]
    await apply(client, manifests)
    where = await address(client)
    await holds(client, "HTTPRoute", "s", "Accepted")

    async def answers(status: int) -> None:
        await until(lambda: _answers(where, status))

    await answers(200)
    async with traffic(where) as others:
        await apply(client, [policy(uri("spiffe://mesh/other"), hostname("front.example"))])
        await answers(502)
        await apply(client, [policy(uri("spiffe://mesh/other"), hostname("a.mesh.example"))])
        await answers(200)
        await apply(client, [trusted(Authority(tmp_path, "later"))])
        await answers(502)
        await apply(client, [trusted(authority)])
        await answers(200)
    assert others.keys() == {"200"}
    (sockets,) = installation.state.glob("node/pods/*/volumes/run/connectors")
    assert control.pid(sockets) is not None
    await client.delete(resources.HTTP_ROUTES, "s", "default")


async def _answers(where: str, status: int) -> bool:
    return (await get(where, "/s"))[0] == status


async def test_deleted_gateway_leaves_no_process_or_volume(
    installation: Installation,
    client: kube.Client,
    backends: None,
    secure: None,
    authority: Authority,
) -> None:
    expected = policy(uri("spiffe://mesh/app"))
    manifests = [*hello(), *service(), trusted(authority), expected, route("s", "/s", "secure")]
    await apply(client, manifests)
    where = await address(client)
    await until(lambda: _answers(where, 200))
    (sockets,) = installation.state.glob("node/pods/*/volumes/run/connectors")
    pid = control.pid(sockets)
    assert pid is not None
    await client.delete(resources.GATEWAYS, "web", "default")

    async def removed() -> bool:
        gone = not procfs.is_alive(pid)
        return gone and not list(installation.state.glob("node/pods/*/volumes"))

    await until(removed)
