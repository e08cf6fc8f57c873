"""PEM texts in the one form that every proxy reads.

Parsers differ in what they accept around a block: OpenSSL, unlike others, reads no block that
begins within a line. What a proxy gets is therefore written again from what was parsed.
"""

from __future__ import annotations

from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

MALFORMED = (ValueError, TypeError, UnsupportedAlgorithm)
"""Exceptions of a text that cannot be parsed, or whose algorithm is not supported."""


def certificates(text: bytes) -> bytes:
    """Return the certificates of a text, of which there is at least one. Raises MALFORMED."""
    return encode_certificates(x509.load_pem_x509_certificates(text))


def encode_certificates(parsed: Iterable[x509.Certificate]) -> bytes:
    """Return the text of certificates."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in parsed)


def encode_private_key(key: PrivateKeyTypes) -> bytes:
    """Return the text of a private key, which is not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def revocation_list(text: bytes) -> bytes:
    """Return the certificate revocation list of a text. Raises MALFORMED."""
    return x509.load_pem_x509_crl(text).public_bytes(Encoding.PEM)
