"""Certificates and keys of one installation: created if missing, renewed before expiry."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kube_base.runtime import private_files

CA_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)
"""Tolerated difference between the clocks of this machine and of one that verifies certificates."""

RENEW_BEFORE = timedelta(days=60)
"""Remaining lifetime below which a certificate is renewed."""

CONTROLLER_NAME = "gatehouse-controller.gatehouse-system.svc"
"""DNS name of the agent channel."""


class KeyPair(msgspec.Struct, frozen=True):
    """Paths of a certificate and its key, both PEM."""

    cert: Path
    key: Path


class InstallationCertificate(msgspec.Struct, frozen=True):
    """A certificate that the installation needs."""

    name: str
    common_name: str
    """Common name; empty for a certificate without subject."""
    organizations: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    uri: str = ""
    server: bool = False


APISERVER = InstallationCertificate(
    "apiserver",
    "gatehouse-apiserver",
    dns=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    ips=("127.0.0.1", "::1"),
    server=True,
)
CHANNEL = InstallationCertificate(
    "channel",
    "gatehouse-controller",
    dns=(CONTROLLER_NAME, "localhost"),
    ips=("127.0.0.1", "::1"),
    server=True,
)
ADMIN = InstallationCertificate("admin", "gatehouse-admin", organizations=("system:masters",))
CONTROLLER_CERTIFICATE = InstallationCertificate("controller", "system:gatehouse:controller")
NODE_CERTIFICATE = InstallationCertificate("node", "system:gatehouse:node")
LEAVES = (APISERVER, CHANNEL, ADMIN, CONTROLLER_CERTIFICATE, NODE_CERTIFICATE)


class Pki:
    """Certificates and keys in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def ca(self) -> KeyPair:
        """Return the paths of the CA."""
        return self._pair("ca")

    def leaf(self, leaf: InstallationCertificate) -> KeyPair:
        """Return the paths of a certificate."""
        return self._pair(leaf.name)

    @property
    def token_key(self) -> Path:
        """Return the path of the key that signs ServiceAccount tokens."""
        return self._directory / "tokens.key"

    def ensure(self, *, now: datetime | None = None) -> None:
        """Create or renew certificates and keys that are missing or expire soon."""
        time = now or datetime.now(UTC)
        private_files.make_private_dir(self._directory, marker="ca.crt")
        for pair in (self.ca(), *map(self.leaf, LEAVES)):
            private_files.restrict_file(pair.key)
        private_files.restrict_file(self.token_key)
        if not _is_current(self.ca().cert, time):
            _write_ca(self.ca(), time)
        for leaf in LEAVES:
            if not _is_current(self.leaf(leaf).cert, time) or not _is_signed_by(
                self.leaf(leaf), self.ca()
            ):
                issue(self.ca(), leaf, self.leaf(leaf), time)
        if not self.token_key.exists():
            _write_key(self.token_key, ec.generate_private_key(ec.SECP256R1()))

    def _pair(self, name: str) -> KeyPair:
        return KeyPair(self._directory / f"{name}.crt", self._directory / f"{name}.key")


def ensure_channel(
    directory: Path, names: Sequence[str], addresses: Sequence[str], now: datetime
) -> dict[str, datetime]:
    """Create or renew a CA and a server certificate for the agent channel.

    A certificate is issued if it is missing, expires soon, is not signed by the CA, or has other
    names. Return the expiry of each file written.
    """
    ca = KeyPair(directory / "ca.crt", directory / "ca.key")
    pair = KeyPair(directory / "tls.crt", directory / "tls.key")
    written: dict[str, datetime] = {}
    for key in (ca.key, pair.key):
        private_files.restrict_file(key)
    if not _is_current(ca.cert, now) or not ca.key.exists():
        _write_ca(ca, now)
        written[ca.cert.name] = _expiry(ca.cert)
    valid = (
        _is_current(pair.cert, now)
        and _is_signed_by(pair, ca)
        and _names(pair.cert) == {*names, *addresses}
    )
    if not valid:
        leaf = InstallationCertificate(
            "tls", names[0], dns=tuple(names), ips=tuple(addresses), server=True
        )
        issue(ca, leaf, pair, now)
        written[pair.cert.name] = _expiry(pair.cert)
    return written


def ensure_machine(
    authority: Path, directory: Path, uri: str, now: datetime
) -> dict[str, datetime]:
    """Create or renew the certificate of an external machine and copy the CA certificate.

    ``authority``: directory of ``ca.crt`` and ``ca.key``. Return the expiry of each file written.
    Raises OSError, or ValueError for an invalid CA.
    """
    ca = KeyPair(authority / "ca.crt", authority / "ca.key")
    pair = KeyPair(directory / "tls.crt", directory / "tls.key")
    written: dict[str, datetime] = {}
    ca_certificate = ca.cert.read_bytes()
    if not directory.exists():
        # A CA that cannot sign leaves no directory.
        _signer(ca)
        create_directory(directory)
    private_files.restrict_file(pair.key)
    ca_copy = directory / "ca.crt"
    if not ca_copy.exists() or ca_copy.read_bytes() != ca_certificate:
        _write(ca_copy, ca_certificate, 0o644)
        written[ca_copy.name] = _expiry(ca_copy)
    if not (_is_current(pair.cert, now) and _is_signed_by(pair, ca) and _names(pair.cert) == {uri}):
        # No subject: an API server that trusts the same CA must not see a user in it.
        issue(ca, InstallationCertificate("tls", "", uri=uri), pair, now)
        written[pair.cert.name] = _expiry(pair.cert)
    return written


def _expiry(path: Path) -> datetime:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc


def _names(path: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    try:
        alt_names = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(address) for address in alt_names.get_values_for_type(x509.IPAddress)}
    uris = alt_names.get_values_for_type(x509.UniformResourceIdentifier)
    return {*alt_names.get_values_for_type(x509.DNSName), *uris, *addresses}


def issue(ca: KeyPair, leaf: InstallationCertificate, pair: KeyPair, now: datetime) -> None:
    """Issue a certificate signed by ``ca`` and write it with its key.

    ``now`` sets the start of validity (``LEAF_LIFE`` long). Files are replaced atomically; the key
    has mode 0600. Raises OSError if files cannot be read or written.
    """
    issuer, signer = _signer(ca)
    key = ec.generate_private_key(ec.SECP256R1())
    common_names = [leaf.common_name] if leaf.common_name else []
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names]
    subject += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in leaf.organizations]
    usage = ExtendedKeyUsageOID.SERVER_AUTH if leaf.server else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in leaf.dns]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in leaf.ips]
    names += [x509.UniformResourceIdentifier(leaf.uri)] if leaf.uri else []
    if names:
        # RFC 5280, 4.2.1.6: critical without a subject.
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=not subject)
    certificate = builder.sign(signer, hashes.SHA256())
    _write_key(pair.key, key)
    _write(pair.cert, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _signer(ca: KeyPair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and key of a CA. Raises OSError, or ValueError if one is invalid."""
    issuer = x509.load_pem_x509_certificate(ca.cert.read_bytes())
    key = _existing_key(ca.key)
    if key is None:
        raise ValueError(f"{ca.key} is no EC key in PEM")
    return issuer, key


def create_directory(directory: Path) -> None:
    """Create a directory for private keys, if it is missing, whose content git ignores.

    Raises OSError.
    """
    if not directory.exists():
        directory.mkdir(parents=True, mode=0o700)
        (directory / ".gitignore").write_text("*\n", encoding="utf-8")


def _write_ca(pair: KeyPair, now: datetime) -> None:
    """Create or renew a CA certificate. An existing key is kept, so issued ones stay valid."""
    key = _existing_key(pair.key) or ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gatehouse-ca")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_ca_usage(), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_key(pair.key, key)
    _write(pair.cert, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _ca_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _is_current(path: Path, now: datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return False
    return certificate.not_valid_after_utc - now > RENEW_BEFORE


def _is_signed_by(pair: KeyPair, ca: KeyPair) -> bool:
    certificate = x509.load_pem_x509_certificate(pair.cert.read_bytes())
    issuer = x509.load_pem_x509_certificate(ca.cert.read_bytes())
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # cryptography raises several kinds, all meaning no
        return False
    return pair.key.exists()


def _existing_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, pem, 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    private_files.replace_private_file(path, content, mode, durable=True)
