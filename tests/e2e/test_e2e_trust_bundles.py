"""CA certificates in a ClusterTrustBundle, towards backends and for clients, on both classes."""

from __future__ import annotations

import http.server
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fakes.authority import Authority
from fakes.https_server import serving
from fakes.installation import HOST_NET, HTTPS_PORT, address, apply, get, hello, route
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from fakes.rejected_objects import secret
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process

BUNDLES = resources.CLUSTER_TRUST_BUNDLES
NAME = "example.com:internal:v1"
REFERENCE = {"group": BUNDLES.group, "kind": BUNDLES.kind, "name": NAME}
SECURE = (f"{HOST_NET}.253", 9443)
META = {"namespace": "default"}


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class _Closing(http.server.BaseHTTPRequestHandler):
    """Closes each connection, since those that exist stay open when CA certificates change."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def secure(authority: Authority) -> Iterator[None]:
    context = authority.server("secure", x509.DNSName("secure.example"))
    with serving(context, SECURE, _Closing):
        yield


def bundle(authority: Authority) -> dict[str, Any]:
    spec = {"signerName": "example.com/internal", "trustBundle": authority.pem.decode()}
    return {**BUNDLES.type_meta, "metadata": {"name": NAME}, "spec": spec}


def backend() -> list[dict[str, Any]]:
    port = {"name": "https", "port": 80, "targetPort": SECURE[1], "protocol": "TCP"}
    labels = {"kubernetes.io/service-name": "secure"}
    validation = {"hostname": "secure.example", "caCertificateRefs": [REFERENCE]}
    target = {"group": "", "kind": "Service", "name": "secure"}
    return [
        {
            **resources.SERVICES.type_meta,
            "metadata": {"name": "secure", **META},
            "spec": {"ports": [port]},
        },
        {
            **resources.ENDPOINT_SLICES.type_meta,
            "metadata": {"name": "secure-1", **META, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": SECURE[1], "protocol": "TCP"}],
            "endpoints": [{"addresses": [SECURE[0]]}],
        },
        {
            **resources.BACKEND_TLS_POLICIES.type_meta,
            "metadata": {"name": "secure", **META},
            "spec": {"targetRefs": [target], "validation": validation},
        },
        route("s", "/s", "secure"),
    ]


def with_clients(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add an HTTPS listener whose clients need a certificate."""
    for manifest in manifests:
        if manifest["kind"] == "Gateway":
            manifest["spec"]["listeners"].append(
                {
                    "name": "clients",
                    "port": HTTPS_PORT,
                    "protocol": "HTTPS",
                    "tls": {"certificateRefs": [{"name": "web"}]},
                }
            )
            validation = {"caCertificateRefs": [REFERENCE]}
            manifest["spec"]["tls"] = {"frontend": {"default": {"validation": validation}}}
    return manifests


async def accepts(where: str, authority: Authority) -> bool:
    """Return whether the listener accepts a client with a certificate of an authority."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(*authority.issue("client"))
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://{where}:{HTTPS_PORT}/", ssl=context) as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, OSError):
        return False


async def policy_condition(client: kube.Client, type_: str) -> tuple[str, str]:
    """Return status and reason of a condition of the policy."""
    policy = await client.get(resources.BACKEND_TLS_POLICIES, "secure", "default")
    for ancestor in (policy.get("status") or {}).get("ancestors") or ():
        for condition in ancestor["conditions"]:
            if condition["type"] == type_:
                return condition["status"], condition["reason"]
    return "", ""


async def test_bundle_is_trusted_while_it_exists(
    client: kube.Client,
    backends: None,
    secure: None,
    authority: Authority,
    tmp_path: Path,
    gateway_class: str,
) -> None:
    other = Authority(tmp_path, "other")

    async def answers(status: int) -> None:
        got = 0

        async def is_so() -> bool:
            nonlocal got
            got = (await get(where, "/s"))[0]
            return got == status

        await until(is_so, lambda: str(got))

    async def has(type_: str, *expected: str) -> None:
        async def is_so() -> bool:
            return await policy_condition(client, type_) == expected

        await until(is_so)

    await client.create(BUNDLES, bundle(authority))
    pair = secret("web", ec.SECP256R1())
    await apply(client, [pair, *with_clients(hello(gateway_class)), *backend()])
    where = await address(client)
    await answers(200)
    await has("ResolvedRefs", "True", "ResolvedRefs")
    await until(partial(accepts, where, authority))
    assert not await accepts(where, other)

    await client.patch(BUNDLES, NAME, {"spec": {"trustBundle": other.pem.decode()}})
    await answers(502 if gateway_class == "gatehouse-nginx" else 503)
    await until(partial(accepts, where, other))
    assert not await accepts(where, authority)

    await client.delete(BUNDLES, NAME)
    await has("ResolvedRefs", "False", "InvalidCACertificateRef")
    await has("Accepted", "False", "NoValidCACertificate")
    await answers(500)
    await until(partial(rejects, where, other))

    await client.create(BUNDLES, bundle(authority))
    await answers(200)
    await until(partial(accepts, where, authority))
    await client.delete(BUNDLES, NAME)


async def rejects(where: str, authority: Authority) -> bool:
    """Return whether the listener rejects a client with a certificate of an authority."""
    return not await accepts(where, authority)
