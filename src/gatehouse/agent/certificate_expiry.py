"""Expiry of certificates, read from DER without the package cryptography.

An agent would need 10 MB more memory for that package. This reader checks no signature: the
certificates are those that the proxy has accepted.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from gatehouse.runtime.prometheus import Sample

MAX_CERTIFICATES = 500
"""Maximum number of certificates with a metric: those that expire first."""

_MAX_NAME = 253
"""Maximum length of a name in a label."""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)

_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _OCTETS = 0x30, 0x17, 0x18, 0x04
_VERSION, _EXTENSIONS, _DNS_NAME = 0xA0, 0xA3, 0x82
_ALTERNATIVE_NAMES = bytes.fromhex("0603551d11")
"""Identifier of the extension with the DNS names."""

_NAME = "gatehouse_certificate_not_after_timestamp_seconds"
_HELP = "Unix time at which a certificate of the proxy expires."


class Expiry(NamedTuple):
    """Expiry of one certificate."""

    not_after: float
    """In Unix seconds."""
    fingerprint: str
    """First 16 hexadecimal digits of the SHA-256 of the certificate."""
    dns_name: str
    """First DNS name; empty: it has none."""


def parse_expiry(pem: bytes) -> Expiry | None:
    """Return the expiry of the first certificate of a chain; None if it cannot be read."""
    try:
        match = _PEM.search(pem)
        der = binascii.a2b_base64(match[1]) if match else b""
        parts = _parts(_parts(der, _SEQUENCE)[0][1])
        # Version, serial number, algorithm, issuer, validity, subject, key, extensions.
        fields = parts[1:] if parts[0][0] == _VERSION else parts
        kind, text = _parts(fields[3][1])[1]
        name = next(_dns_names(fields[6:]), "")
        return Expiry(_unix_time(kind, text), hashlib.sha256(der).hexdigest()[:16], name)
    except (ValueError, IndexError):
        return None


def certificate_samples(expiries: Iterable[Expiry]) -> list[Sample]:
    """Return the metrics of certificates, each once."""
    return [
        Sample(
            _NAME,
            _HELP,
            expiry.not_after,
            labels={"fingerprint": expiry.fingerprint, "dns_name": expiry.dns_name},
        )
        for expiry in sorted(set(expiries))[:MAX_CERTIFICATES]
    ]


def _parts(data: bytes, kind: int | None = None) -> list[tuple[int, bytes]]:
    """Return type and content of the elements of `data`, or of the only one, of type `kind`.

    Raises ValueError.
    """
    result: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length > 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if length > len(data) - at:
            raise ValueError("truncated DER")
        result.append((tag, data[at : at + length]))
        at += length
    if kind is None:
        return result
    if not result or result[0][0] != kind:
        raise ValueError("unexpected DER")
    return _parts(result[0][1])


def _unix_time(kind: int, text: bytes) -> float:
    if kind not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("unexpected type of time")
    digits = text.decode("ascii")
    if kind == _UTC_TIME:
        # Two digits mean 1950 to 2049 (RFC 5280), other than in Python.
        digits = ("19" if digits >= "50" else "20") + digits
    moment = datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return moment.timestamp()


def _dns_names(fields: Iterable[tuple[int, bytes]]) -> Iterator[str]:
    for tag, content in fields:
        if tag != _EXTENSIONS:
            continue
        for _, extension in _parts(content, _SEQUENCE):
            if not extension.startswith(_ALTERNATIVE_NAMES):
                continue
            for kind, value in _parts(extension):
                if kind == _OCTETS:
                    for name_kind, name in _parts(value, _SEQUENCE):
                        if name_kind == _DNS_NAME:
                            yield name.decode("ascii", "replace")[:_MAX_NAME]
