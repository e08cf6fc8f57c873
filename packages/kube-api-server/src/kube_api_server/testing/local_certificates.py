"""Certificates of an API server that lives as long as a test run."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube_base.runtime import private_files

_LIFE = datetime.timedelta(days=7)
_CLOCK_SKEW = datetime.timedelta(minutes=5)
_NAMES = (
    x509.DNSName("localhost"),
    x509.DNSName("kubernetes.default.svc"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
)


class CertificateFiles(msgspec.Struct, frozen=True):
    """Paths of a CA's certificate, and of a certificate with its key, all PEM."""

    ca: Path
    cert: Path
    key: Path


class LocalAuthority:
    """A CA whose key is in memory only, and which writes to one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("local-ca", "")
        builder = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._ca = directory / "ca.crt"
        private_files.replace_private_file(self._ca, _pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, *, organization: str = "") -> CertificateFiles:
        """Write a certificate for a server on this machine, or a user with a group."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(name, organization), self._name, key).add_extension(
            x509.SubjectAlternativeName(_NAMES), critical=False
        )
        files = CertificateFiles(
            self._ca, self._directory / f"{name}.crt", self._directory / f"{name}.key"
        )
        private_files.replace_private_file(
            files.cert, _pem(builder.sign(self._key, hashes.SHA256()))
        )
        private_files.replace_private_file(files.key, _key_pem(key))
        return files


def _subject(name: str, organization: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organization:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFE)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
