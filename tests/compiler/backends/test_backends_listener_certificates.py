"""Several certificates of a listener: real proxies select one by SNI and key type.

"Implementations MAY choose to support attaching multiple certificates to a Listener, but this
behavior is implementation-specific" (ListenerTLSConfig.certificateRefs).
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from differential.proxies import Runner
from fakes.authority import Authority
from fakes.authorized_traffic import RUNNERS
from fakes.specified_objects import (
    CLASS,
    compiled_gateway,
    key_pair_secret,
    serving_configuration,
    serving_objects,
)
from gatehouse.compiler.ir.gateway import GatewayConfiguration

pytestmark = pytest.mark.process

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: c
  listeners:
  - {name: http, port: 8080, protocol: HTTP}
  - name: all
    port: 8443
    protocol: HTTPS
    tls: {certificateRefs: [{name: first}, {name: wild}, {name: exact}, {name: rsa}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: all}
spec:
  parentRefs: [{name: gw}]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: to.test}}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: own}
spec:
  parentRefs: [{name: gw}]
  hostnames: [own.w.test]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: own.test}}]}]
"""
CERTIFICATES = {"first": ["first.test"], "wild": ["*.w.test", "~.*"], "exact": ["a.w.test"]}
ECDSA, RSA = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"


async def _presented(address: str, name: str, ciphers: str) -> tuple[str, bytes]:
    """Return the name of the certificate for a SNI, and the head of a response."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)
    reader, writer = await asyncio.open_connection(address, 8443, ssl=context, server_hostname=name)
    tls = writer.get_extra_info("ssl_object")
    certificate = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True))
    writer.write(f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return certificate.subject.rfc4514_string().removeprefix("CN="), head


@pytest.mark.parametrize("runner", RUNNERS)
async def test_certificate_fits_name_and_key_type_of_the_client(
    runner: Runner, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    files = {
        name: authority.issue(name, *map(x509.DNSName, names))
        for name, names in CERTIFICATES.items()
    }
    key = rsa.generate_private_key(65537, 2048)
    files["rsa"] = authority.issue("rsa", x509.DNSName("first.test"), key=key)
    secrets = [key_pair_secret(name, pair) for name, pair in files.items()]
    async with serving_objects(runner, tmp_path, CLASS.split("---")[0], GATEWAY, *secrets) as proxy:
        expected = {
            ("first.test", ECDSA): "first", ("first.test", RSA): "rsa",
            ("a.w.test", ECDSA): "exact", ("b.w.test", ECDSA): "wild",
            ("own.w.test", ECDSA): "wild",
            # The first reference serves names that no certificate has.
            ("other.test", ECDSA): "first",
        }  # fmt: skip
        presented = {client: await _presented(proxy.address, *client) for client in expected}
        assert {client: name for client, (name, _) in presented.items()} == expected
        # The routes of the hostname serve all of its names.
        destinations = {client[0]: head for client, (_, head) in presented.items()}
        assert b"https://own.test" in destinations.pop("own.w.test")
        assert all(b"https://to.test" in head for head in destinations.values())


def _without_https_hosts(gateway: GatewayConfiguration) -> GatewayConfiguration:
    """Return what a search serves while all hosts of an HTTPS port are held back."""
    listeners = tuple(
        msgspec.structs.replace(listener, virtual_hosts=())
        if listener.protocol == "HTTPS"
        else listener
        for listener in gateway.listeners
    )
    return msgspec.structs.replace(gateway, listeners=listeners, certificates=())


@pytest.mark.parametrize("runner", RUNNERS)
async def test_handshakes_fail_on_a_port_without_hosts(runner: Runner, tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("first", x509.DNSName("first.test"))
    objects = [CLASS.split("---")[0], GATEWAY, key_pair_secret("first", pair)]
    gateway = _without_https_hosts(compiled_gateway(*objects))
    async with serving_configuration(runner, tmp_path, gateway) as proxy:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await _presented(proxy.address, "first.test", ECDSA)
        # Other ports serve.
        reader, writer = await asyncio.open_connection(proxy.address, 8080)
        writer.write(b"GET / HTTP/1.1\r\nHost: first.test\r\n\r\n")
        assert b"//to.test" in await reader.readuntil(b"\r\n\r\n")
        writer.close()
