"""Certificates that a proxy rejects are left out; everything else is served at once."""

from __future__ import annotations

import base64
import datetime
import ssl
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fakes.installation import (
    Installation,
    address,
    apply,
    condition,
    get,
    hello,
    holds,
    route,
    traffic,
    until,
)
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long]

HTTPS_PORT = 8443
WEAK = ec.SECP192R1()
"""A curve that Gatehouse parses and that both proxies reject."""


def secret(name: str, curve: ec.EllipticCurve) -> dict[str, Any]:
    """Return a Secret with a self-signed certificate for ``<name>.example``."""
    key = ec.generate_private_key(curve)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(f"{name}.example")]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    data = {"tls.crt": certificate.public_bytes(pem), "tls.key": private}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "default"},
        "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
    }


def listener(name: str) -> dict[str, Any]:
    """Return an HTTPS listener for ``<name>.example`` with the certificate in Secret ``name``."""
    return {
        "name": name,
        "hostname": f"{name}.example",
        "port": HTTPS_PORT,
        "protocol": "HTTPS",
        "tls": {"certificateRefs": [{"name": name}]},
    }


async def answers_https(where: str, name: str) -> bool:
    """Return whether a request to ``<name>.example`` is answered by the backend."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://{where}:{HTTPS_PORT}/"
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                url, ssl=context, server_hostname=f"{name}.example",
                headers={"Host": f"{name}.example"},
            ) as response,
        ):  # fmt: skip
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def resolved(client: kube.Client, name: str) -> dict[str, Any]:
    """Return the condition ResolvedRefs of a listener."""
    found = await client.get(resources.GATEWAYS, "web", "default")
    return next(
        condition
        for each in found["status"]["listeners"]
        if each["name"] == name
        for condition in each["conditions"]
        if condition["type"] == "ResolvedRefs"
    )


@pytest.mark.parametrize("class_name", ["gatehouse-nginx", "gatehouse-envoy"])
async def test_rejected_certificate_leaves_out_only_its_listener(
    installation: Installation, client: kube.Client, backends: None, class_name: str
) -> None:
    manifests = hello(class_name)
    await apply(client, manifests)
    await holds(client, "Gateway", "web", "Programmed")
    where = await address(client)

    async def answers(path: str) -> bool:
        return (await get(where, path))[0] == 200

    await until(lambda: answers("/"))
    async with traffic(where) as seen:
        await apply(client, [secret("good", ec.SECP256R1()), secret("weak", WEAK)])
        listeners = manifests[0]["spec"]["listeners"]
        patch = {"spec": {"listeners": [*listeners, listener("good"), listener("weak")]}}
        await client.patch(resources.GATEWAYS, "web", patch, "default")
        await until(lambda: answers_https(where, "good"))
        await apply(client, [route("after", "/after")])
        await until(lambda: answers("/after"))

        async def rejected() -> bool:
            return "rejected by" in (await resolved(client, "weak"))["message"]

        await until(rejected)
        found = await resolved(client, "weak")
        assert (found["status"], found["reason"]) == ("False", "InvalidCertificateRef")
        assert "Secret default/weak" in found["message"]
        assert (await resolved(client, "good"))["status"] == "True"

        async def named() -> bool:
            found = await condition(client, "Gateway", "web", "Programmed")
            return bool(
                found and found["status"] == "True" and "Secret default/weak" in found["message"]
            )

        await until(named)
        # A renewed certificate is tried at once.
        await apply(client, [secret("weak", ec.SECP256R1())])
        await until(lambda: answers_https(where, "weak"))
    assert set(seen) == {"200"}, seen
