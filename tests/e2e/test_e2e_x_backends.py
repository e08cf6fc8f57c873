"""XBackends of an installation with real proxies: Pods, TLS, sessions and permissions."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from fakes.authority import Authority
from fakes.https_server import serving
from fakes.installation import (
    BACKEND,
    HOST_NET,
    PORT,
    REVISED,
    address,
    apply,
    get,
    hello,
    holds,
    route,
)
from fakes.installation_fixtures import backends, client
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until, until_equal
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["backends", "client", "installation"]

pytestmark = pytest.mark.process

X_BACKENDS = resources.X_BACKENDS
REFERENCE = {"group": X_BACKENDS.group, "kind": X_BACKENDS.kind, "name": "b"}
SECURE = (f"{HOST_NET}.252", 9443)


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def mutual(authority: Authority) -> Iterator[None]:
    """Serve HTTPS to clients with a certificate of the authority."""
    context = authority.server("app", x509.DNSName("secure.example"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    with serving(context, SECURE):
        yield


def backend(**spec: Any) -> dict[str, Any]:
    selector = {"type": "EndpointSelector", "endpointSelector": {"matchLabels": {"app": "shop"}}}
    return {
        **X_BACKENDS.type_meta,
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {**selector, "port": {"number": BACKEND[1]}, **spec},
    }


def to_backend(**rule: Any) -> dict[str, Any]:
    return route("b", "/b", backendRefs=[REFERENCE], **rule)


class Pods:
    """Pods of another node, which runs nothing."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._names: set[str] = set()

    async def run(self, name: str, ip: str) -> None:
        """Let a ready Pod exist."""
        meta = {"name": name, "namespace": "default", "labels": {"app": "shop"}}
        containers = [{"name": "c", "image": "example.com/shop"}]
        spec = {"nodeName": "elsewhere", "containers": containers}
        pod = {**resources.PODS.type_meta, "metadata": meta, "spec": spec}
        created = await self._client.create(resources.PODS, pod)
        self._names.add(name)
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "podIP": ip, "conditions": conditions}
        await self._client.update_status(resources.PODS, {**created, "status": status})

    async def end(self, name: str) -> None:
        self._names.discard(name)
        await self._client.delete(resources.PODS, name, "default", grace=0)

    async def end_all(self) -> None:
        for name in tuple(self._names):
            await self.end(name)


@pytest.fixture
async def pods(client: kube.Client) -> AsyncIterator[Pods]:
    result = Pods(client)
    yield result
    await result.end_all()


async def services(client: kube.Client) -> list[dict[str, Any]]:
    """Return the Services that the controller wrote for XBackends."""
    listed = (await client.list(resources.SERVICES, "default")).items
    return [
        dict(item)
        for item in listed
        for owner in item["metadata"].get("ownerReferences") or ()
        if owner["kind"] == "XBackend"
    ]


async def conditions(client: kube.Client) -> dict[str, str]:
    """Return the reason of each condition of the XBackend."""
    status = (await client.get(X_BACKENDS, "b", "default")).get("status") or {}
    return {
        entry["type"]: entry["reason"]
        for ancestor in status.get("ancestors") or ()
        for entry in ancestor["conditions"]
    }


async def test_pods_get_requests_as_long_as_they_are_ready(
    client: kube.Client, pods: Pods, backends: None, gateway_class: str
) -> None:
    await apply(client, [*hello(gateway_class), backend(), to_backend()])
    where = await address(client)

    async def answers(expected: set[tuple[int, str]]) -> None:
        got: set[tuple[int, str]] = set()

        async def is_so() -> bool:
            nonlocal got
            got = {await get(where, "/b") for _ in range(8)}
            return got == expected

        await until(is_so, lambda: f"{got}")

    await answers({(503, "")})
    (service,) = await services(client)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"app": "shop"}
    await pods.run("one", BACKEND[0])
    await answers({(200, "app")})
    await pods.run("two", REVISED[0])
    await answers({(200, "app"), (200, "revised")})
    expected = {"Accepted": "Accepted", "ResolvedRefs": "ResolvedRefs"}
    await until_equal(lambda: conditions(client), expected)

    await pods.end("one")
    await answers({(200, "revised")})
    await client.delete(resources.SERVICES, service["metadata"]["name"], "default")
    await until(lambda: _has_services(client, 1))
    await answers({(200, "revised")})

    labels = {"endpointSelector": {"matchLabels": {"app": "shop", "tier": "none"}}}
    await client.patch(X_BACKENDS, "b", {"spec": labels}, "default")
    await answers({(503, "")})
    await client.delete(resources.HTTP_ROUTES, "b", "default")
    await until(lambda: _has_services(client, 0))
    await client.delete(X_BACKENDS, "b", "default")


async def _has_services(client: kube.Client, number: int) -> bool:
    return len(await services(client)) == number


async def test_server_gets_the_client_certificate_of_the_backend(
    client: kube.Client, pods: Pods, mutual: None, authority: Authority, gateway_class: str
) -> None:
    chain, key = (path.read_text() for path in authority.issue("client"))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "client", "namespace": "default"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": chain, "tls.key": key},
    }
    trusted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "authorities", "namespace": "default"},
        "data": {"ca.crt": authority.pem.decode()},
    }
    authorities = [{"group": "", "kind": "ConfigMap", "name": "authorities"}]
    validation = {"hostname": "secure.example", "caCertificateRefs": authorities}
    tls = {
        "mode": "ClientAndServer",
        "clientCertificateRef": {"name": "client"},
        "validation": validation,
    }
    own = backend(port={"number": SECURE[1]}, tls=tls)
    await apply(client, [*hello(gateway_class), trusted, own, to_backend()])
    where = await address(client)
    await pods.run("secure", SECURE[0])

    async def answers(status: int) -> None:
        async def is_so() -> bool:
            return (await get(where, "/b"))[0] == status

        await until(is_so)

    async def resolved_refs() -> str | None:
        return (await conditions(client)).get("ResolvedRefs")

    await answers(500)
    await until_equal(resolved_refs, "InvalidCertificateRef")
    await apply(client, [secret])
    await answers(200)
    await until_equal(resolved_refs, "ResolvedRefs")
    only = {"tls": {"mode": "ServerOnly", "clientCertificateRef": None}}
    await client.patch(X_BACKENDS, "b", {"spec": only}, "default")

    async def is_refused() -> bool:
        return (await get(where, "/b"))[0] in (400, 502, 503)

    await until(is_refused)
    await client.patch(X_BACKENDS, "b", {"spec": {"tls": tls}}, "default")
    await answers(200)
    other = {"tls": {"validation": {"hostname": "other.example"}}}
    await client.patch(X_BACKENDS, "b", {"spec": other}, "default")
    await until(is_refused)
    await client.delete(resources.HTTP_ROUTES, "b", "default")
    await client.delete(X_BACKENDS, "b", "default")


async def test_cookie_of_the_backend_selects_one_pod(
    client: kube.Client, pods: Pods, backends: None, gateway_class: str
) -> None:
    session = {"type": "Cookie", "cookie": {"name": "shop"}}
    await apply(client, [*hello(gateway_class), backend(sessionPersistence=session), to_backend()])
    where = await address(client)
    await pods.run("one", BACKEND[0])
    await pods.run("two", REVISED[0])

    async def both_answer() -> bool:
        return {await get(where, "/b") for _ in range(8)} == {(200, "app"), (200, "revised")}

    await until(both_answer)
    await holds(client, "HTTPRoute", "b", "ResolvedRefs")
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        names = set()
        for _ in range(12):
            async with browser.get(f"http://{where}:{PORT}/b") as response:
                names.add(response.headers["X-Backend"])
        assert {cookie.key for cookie in browser.cookie_jar} == {"shop"}
    assert len(names) == 1
    assert "PartiallyInvalid" not in await conditions(client)


async def test_backend_of_another_namespace_needs_a_grant(
    client: kube.Client, backends: None, gateway_class: str
) -> None:
    elsewhere = f"of-{gateway_class}"
    other = {**resources.NAMESPACES.type_meta, "metadata": {"name": elsewhere}}
    there = backend(type="ExternalHostname", externalHostname={"hostname": "api.example.net"})
    there["metadata"] = {"name": "b", "namespace": elsewhere}
    del there["spec"]["endpointSelector"]
    reference = {**REFERENCE, "namespace": elsewhere}
    own = route("across", "/across", backendRefs=[reference])
    await apply(client, [*hello(gateway_class), other, there, own])
    where = await address(client)

    async def has(reason: str) -> None:
        async def is_so() -> bool:
            current = await holds(client, "HTTPRoute", "across", "ResolvedRefs", "False")
            return bool(current["reason"] == reason)

        await until(is_so)

    await has("RefNotPermitted")
    assert (await get(where, "/across"))[0] == 500
    source = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "default"}
    grant = {
        **resources.REFERENCE_GRANTS.type_meta,
        "metadata": {"name": "g", "namespace": elsewhere},
        "spec": {"from": [source], "to": [{"group": X_BACKENDS.group, "kind": "XBackend"}]},
    }
    await apply(client, [grant])
    await has("ExternalNameNotAllowed")
    assert (await get(where, "/across"))[0] == 500
    await client.delete(resources.HTTP_ROUTES, "across", "default")
    await client.delete(resources.REFERENCE_GRANTS, "g", elsewhere)
    await client.delete(X_BACKENDS, "b", elsewhere)
