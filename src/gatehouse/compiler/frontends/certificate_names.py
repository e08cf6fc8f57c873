"""DNS names and validity of certificates."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509


def dns_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names of a certificate's subjectAltName, in lower case."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
        ValueError,
    ):
        # Clients cannot read names from it either.
        return ()
    return tuple(name.lower() for name in extension.value.get_values_for_type(x509.DNSName))


def validity_of(certificate: x509.Certificate) -> tuple[int, int]:
    """Return the first second of a certificate's validity and the first one after it, in Unix time.

    Of an invalid pair the times are equal, so that the certificate counts as expired.
    """
    starts = int(certificate.not_valid_before_utc.timestamp())
    return starts, max(starts, int(certificate.not_valid_after_utc.timestamp()) + 1)


def rfc3339(timestamp: int) -> str:
    """Return a time in Unix seconds as text."""
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
