"""Who an agent is by the certificate that it showed in the handshake.

The handshake has checked that it is one of the authority's; here its name is read. Tokens count for
nothing where certificates do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec
from cryptography import x509

from gatehouse.transports.agents.token_auth import Denied, Identity

IdentifyMachine = Callable[[str], Identity]
"""Gives the identity of a machine by the URI in its certificate; raises Denied or Unavailable."""

CACHE_SIZE = 1024
"""Certificates whose names are remembered: one is shown again with every call."""


def seconds_left(expires: float) -> float:
    """Give the time until then, which certificates tell by the wall clock; 0 from then on."""
    return max(0.0, expires - time.time())


class CertificateAuthenticator:
    """Reads certificates' names, and asks whose they are."""

    def __init__(self, identify: IdentifyMachine) -> None:
        self._identify = identify
        self._known: dict[bytes, tuple[str, float]] = {}

    def identify(self, peer: Mapping[str, Iterable[bytes]]) -> Identity:
        """Give who ``peer`` is, as gRPC knows it; raises Denied or Unavailable."""
        pem = b"".join(peer.get("x509_pem_cert", ()))
        if not pem:
            raise Denied("no certificate was shown")
        uri, expires = self._read(pem)
        if not seconds_left(expires):
            raise Denied(f"the certificate of {uri} has expired")
        return msgspec.structs.replace(self._identify(uri), expires=expires)

    def _read(self, pem: bytes) -> tuple[str, float]:
        found = self._known.get(pem)
        if found is None:
            found = _name_and_end(pem)
            while len(self._known) >= CACHE_SIZE:
                del self._known[next(iter(self._known))]
            self._known[pem] = found
        return found


def _name_and_end(pem: bytes) -> tuple[str, float]:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (ValueError, x509.ExtensionNotFound):
        uris = []
    # An identity of several names would be none (X.509-SVID, section 2).
    if len(uris) != 1:
        raise Denied("the certificate has not one URI among its names, which would say whose it is")
    return uris[0], certificate.not_valid_after_utc.timestamp()
