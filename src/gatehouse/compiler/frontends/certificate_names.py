"""DNS names of certificates."""

from __future__ import annotations

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
