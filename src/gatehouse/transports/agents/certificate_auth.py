"""Authentication of agents by client certificate.

The TLS handshake has verified the signature of the CA; this module reads the name. Tokens are
ignored on servers that require certificates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec
from cryptography import x509

from gatehouse.transports.agents.token_auth import Denied, Identity

IdentifyMachine = Callable[[str], Identity]
"""Returns the identity of a machine by its certificate URI. Raises Denied or Unavailable."""

_CACHE_SIZE = 1024
"""Maximum number of cached certificate names. The same certificate comes with every call."""


def seconds_left(expires: float) -> float:
    """Return the seconds until ``expires``, at least 0. Certificates use the wall clock."""
    return max(0.0, expires - time.time())


class CertificateAuthenticator:
    """Identifies agents by the names in their certificates."""

    def __init__(self, identify: IdentifyMachine) -> None:
        self._identify = identify
        self._cache: dict[bytes, tuple[str, float]] = {}

    def identify(self, peer: Mapping[str, Iterable[bytes]]) -> Identity:
        """Return the identity of ``peer``, gRPC's auth context. Raises Denied or Unavailable."""
        pem = b"".join(peer.get("x509_pem_cert", ()))
        if not pem:
            raise Denied("client certificate not found")
        uri, expires = self._read(pem)
        if not seconds_left(expires):
            raise Denied(f"the certificate of {uri} has expired")
        return msgspec.structs.replace(self._identify(uri), expires=expires)

    def _read(self, pem: bytes) -> tuple[str, float]:
        name = self._cache.get(pem)
        if name is None:
            name = _name_and_expiry(pem)
            while len(self._cache) >= _CACHE_SIZE:
                del self._cache[next(iter(self._cache))]
            self._cache[pem] = name
        return name


def _name_and_expiry(pem: bytes) -> tuple[str, float]:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (ValueError, x509.ExtensionNotFound):
        uris = []
    # An identity document with several URIs is invalid (X.509-SVID, section 2).
    if len(uris) != 1:
        raise Denied("the certificate must have exactly one URI as subject alternative name")
    return uris[0], certificate.not_valid_after_utc.timestamp()
