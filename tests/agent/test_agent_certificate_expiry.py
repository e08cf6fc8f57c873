"""Expiry of certificates, and the state of a configuration."""

from __future__ import annotations

import base64
import functools
import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gatehouse.agent import certificate_expiry
from gatehouse.agent.certificate_expiry import Expiry, parse_expiry
from gatehouse.agent.configuration_state import ConfigurationState

NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "some name")])


def issue(expires: datetime, *names: x509.GeneralName, critical: bool = False) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(1990, 1, 1, tzinfo=UTC))
        .not_valid_after(expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=critical)
    certificate = builder.sign(key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM)


EXPIRIES = [
    datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(2026, 11, 25, 17, 0, tzinfo=UTC),
    datetime(2049, 12, 31, tzinfo=UTC),
    # From here on the time has another type.
    datetime(2050, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
]


@pytest.mark.parametrize("expires", EXPIRIES)
@pytest.mark.parametrize("critical", [True, False])
def test_expiry_and_name_are_those_of_the_first_certificate(
    expires: datetime, critical: bool
) -> None:
    email = x509.RFC822Name("a@b.example")
    names = (email, x509.DNSName("shop.example"), x509.DNSName("b"))
    leaf = issue(expires, *names, critical=critical)
    chain = b"# a comment\n" + leaf + issue(expires - timedelta(days=1))
    expiry = parse_expiry(chain)
    der = x509.load_pem_x509_certificate(leaf).public_bytes(serialization.Encoding.DER)
    fingerprint = hashlib.sha256(der).hexdigest()[:16]
    assert expiry == Expiry(expires.timestamp(), fingerprint, "shop.example")


def test_certificate_without_names_has_an_expiry() -> None:
    expiry = parse_expiry(issue(EXPIRIES[0]))
    assert expiry is not None
    assert (expiry.not_after, expiry.dns_name) == (EXPIRIES[0].timestamp(), "")


def test_hostile_certificates_raise_nothing_and_take_no_time() -> None:
    pem = issue(EXPIRIES[1], x509.DNSName("a"))
    der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    frame = b"-----BEGIN CERTIFICATE-----%s-----END CERTIFICATE-----"
    for at in range(len(der)):
        for value in (0x00, 0x30, 0x80, 0x84, 0xFF):
            broken = der[:at] + bytes([value]) + der[at + 1 :]
            parse_expiry(frame % base64.b64encode(broken))
        parse_expiry(frame % base64.b64encode(der[:at]))
    for text in (b"", b"\xff", frame % b"", frame % b"%%%", frame % base64.b64encode(b"0" * 5)):
        assert parse_expiry(text) is None


def test_number_of_certificates_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_expiry, "MAX_CERTIFICATES", 3)
    expiries = [Expiry(float(number), f"f{number}", "") for number in range(10, 0, -1)]
    samples = certificate_expiry.certificate_samples([*expiries, *expiries])
    assert [sample.value for sample in samples] == [1, 2, 3]


async def test_certificates_are_read_once_and_again_after_a_failure(tmp_path: Path) -> None:
    version = ""
    reads: list[str] = []
    chains = {"one": issue(EXPIRIES[1]), "two": issue(EXPIRIES[2])}
    names = ["one"]
    fails = False

    def read(name: str) -> bytes:
        reads.append(name)
        if fails:
            raise OSError(name)
        return chains[name]

    state = ConfigurationState(
        lambda: version, lambda: {name: functools.partial(read, name) for name in names}
    )

    async def values() -> list[float]:
        await state.update()
        return [sample.value for sample in state.samples() if "not_after" in sample.name]

    assert await values() == []
    assert [sample.name for sample in state.samples()] == ["gatehouse_agent_configuration_info"]
    version = "1"
    assert await values() == [EXPIRIES[1].timestamp()]
    version, names = "2", ["one", "two"]
    fails = True
    assert await values() == [EXPIRIES[1].timestamp()]
    fails = False
    both = [EXPIRIES[1].timestamp(), EXPIRIES[2].timestamp()]
    assert await values() == both
    assert reads == ["one", "two", "two"]
    # While the version is unknown, the last one counts.
    version = ""
    assert await values() == both
