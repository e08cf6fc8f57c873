"""Objects that Gatehouse accepts and a proxy rejects."""

from __future__ import annotations

import base64
import datetime
import ssl
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fakes.installation import HTTPS_PORT, route
from fakes.strict_nginx import REFUSED_ORGANIZATION

WEAK = ec.SECP192R1()
"""A curve that Gatehouse parses and that both proxies reject."""


def listener(name: str, port: int = HTTPS_PORT) -> dict[str, Any]:
    """Return a listener for ``<name>.example`` with the certificate in Secret ``name``."""
    return {
        "name": name,
        "hostname": f"{name}.example",
        "port": port,
        "protocol": "HTTPS",
        "tls": {"certificateRefs": [{"name": name}]},
    }


def secret(name: str, curve: ec.EllipticCurve) -> dict[str, Any]:
    """Return a Secret with a self-signed certificate for ``<name>.example``."""
    key = ec.generate_private_key(curve)
    certificate = _self_signed(key, x509.NameAttribute(NameOID.COMMON_NAME, name), name)
    return _key_pair(name, certificate.public_bytes(serialization.Encoding.PEM), key)


def refused_pair(name: str) -> dict[str, Any]:
    """Return a Secret for ``<name>.example`` that Envoy and the strict NGINX reject."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _key_pair(name, _refused(key, name), key)


def refused_authority(name: str, namespace: str) -> dict[str, Any]:
    """Return a ConfigMap with CA certificates that Envoy and the strict NGINX reject."""
    pem = _refused(ec.generate_private_key(ec.SECP256R1()), name)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"ca.crt": pem.decode()},
    }


def _key_pair(name: str, certificate: bytes, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    data = {"tls.crt": certificate, "tls.key": private}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "default"},
        "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
    }


def _self_signed(
    key: ec.EllipticCurvePrivateKey, attribute: x509.NameAttribute[str], name: str
) -> x509.Certificate:
    subject = x509.Name([attribute])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(f"{name}.example")]), False)
        .sign(key, hashes.SHA256())
    )


def _refused(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    """Return a certificate of version 1 with extensions, which OpenSSL and Gatehouse accept, and
    with the organization that the strict NGINX rejects."""
    attribute = x509.NameAttribute(NameOID.ORGANIZATION_NAME, REFUSED_ORGANIZATION)
    der = _self_signed(key, attribute, name).public_bytes(serialization.Encoding.DER)
    content = _element(der)
    body, rest = _element(content), content[sum(_header(content)) :]
    refused = _sequence(_sequence(body.removeprefix(_VERSION_3)) + rest)
    return ssl.DER_cert_to_PEM_cert(refused).encode()


_VERSION_3 = bytes.fromhex("a003020102")


def _header(element: bytes) -> tuple[int, int]:
    """Return the sizes of the header and of the content of a DER element."""
    if element[1] < 128:
        return 2, element[1]
    octets = element[1] - 128
    return 2 + octets, int.from_bytes(element[2 : 2 + octets])


def _element(encoded: bytes) -> bytes:
    """Return the content of the first DER element."""
    header, size = _header(encoded)
    return encoded[header : header + size]


def _sequence(content: bytes) -> bytes:
    """Return a DER sequence of at least 256 bytes."""
    return bytes((0x30, 0x82)) + len(content).to_bytes(2) + content


def filtering(name: str, snippet: str) -> list[dict[str, Any]]:
    """Return a SnippetsFilter for locations, and a route ``/<name>`` that uses it."""
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": name}
    snippets_filter = {
        "apiVersion": "gateway.nginx.org/v1alpha1",
        "kind": "SnippetsFilter",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"snippets": [{"context": "http.server.location", "value": snippet}]},
    }
    filters = [{"type": "ExtensionRef", "extensionRef": reference}]
    return [snippets_filter, route(name, f"/{name}", filters=filters)]
