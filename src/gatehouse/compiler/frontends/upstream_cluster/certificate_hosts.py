"""Hostnames that certificates cover."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from cryptography import x509

from gatehouse.compiler.frontends.certificate_names import dns_names
from gatehouse.compiler.frontends.shortened_lists import shortened_list
from gatehouse.compiler.frontends.upstream_cluster.findings import (
    ClusterFinding,
    ClusterReason,
)

MAX_LISTED_NAMES = 5
"""Maximum number of names in a message."""


class LeafCertificate(msgspec.Struct, frozen=True):
    """The first certificate of a chain."""

    place: str
    """Source of the chain: field, or Secret and key."""
    names: tuple[str, ...]
    """DNS names of its subjectAltName, in lower case."""


def leaf(chain: bytes, place: str) -> LeafCertificate:
    """Parse the first certificate of a PEM chain, which must have one."""
    parsed = x509.load_pem_x509_certificates(chain)[0]
    return LeafCertificate(place, dns_names(parsed))


def certificate_covers(names: Collection[str], host: str) -> bool:
    """Return whether a certificate's names match a hostname in lower case (RFC 6125 6.4).

    ``*`` matches exactly one label, the first. The common name is ignored.
    """
    return host in names or f"*.{host.partition('.')[2]}" in names


def uncovered_finding(
    certificate: LeafCertificate, hosts: Iterable[str]
) -> tuple[ClusterFinding, ...]:
    """Return a finding with the hostnames that a certificate does not cover."""
    missing = [host for host in hosts if not certificate_covers(certificate.names, host)]
    if not missing:
        return ()
    own = (
        f"certificate names: {shortened_list(sorted(certificate.names), MAX_LISTED_NAMES)}"
        if certificate.names
        else "it has no DNS names"
    )
    names = shortened_list(sorted(missing), MAX_LISTED_NAMES)
    message = f"{certificate.place}: the certificate does not cover {names}; {own}"
    return (ClusterFinding(ClusterReason.NAMES_NOT_COVERED, message),)
