"""Authorities and the certificates that they issue, as files."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def _subject(name: str, *organizations: str) -> x509.Name:
    groups = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)
        for organization in organizations
    ]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def self_signed(name: str, ends: datetime.timedelta) -> str:
    """Return the PEM certificate of a CA that is valid from two days ago, for ``ends`` from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(_subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


class Authority:
    """A CA that issues certificates in its own directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / f"{name}.pem"
        self._certificate = self._sign(
            name, self._key, [x509.BasicConstraints(ca=True, path_length=None)]
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)
        self.file.write_bytes(self.pem)

    def _sign(
        self,
        name: str,
        key: PrivateKey,
        extensions: Sequence[x509.ExtensionType],
        ends: datetime.timedelta = DAY,
        organizations: Sequence[str] = (),
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_subject(name, *organizations))
            .issuer_name(_subject(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + ends)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def issue(
        self,
        name: str,
        *names: x509.GeneralName,
        ends: datetime.timedelta = DAY,
        key: PrivateKey | None = None,
    ) -> tuple[Path, Path]:
        """Issue a certificate for ``names``, valid for ``ends`` from now. Return its files."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(
            name, key, [x509.SubjectAlternativeName(names)] if names else [], ends
        )
        return self._written(name, certificate, key)

    def issue_to(
        self, user: str, *groups: str, ends: datetime.timedelta = DAY
    ) -> tuple[Path, Path]:
        """Issue a client certificate of a Kubernetes user. Return its files."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(user, key, [], ends, organizations=groups)
        return self._written(f"{self._name}-{certificate.serial_number:x}", certificate, key)

    def _written(
        self, name: str, certificate: x509.Certificate, key: PrivateKey
    ) -> tuple[Path, Path]:
        files = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def server(self, name: str, *names: x509.GeneralName) -> ssl.SSLContext:
        """Return a server-side TLS context with a certificate for ``names``."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name, *names))
        return context
