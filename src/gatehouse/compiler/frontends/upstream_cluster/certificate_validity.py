"""Validity of certificates by time and by hostname.

An invalid certificate is still presented, because that is better than none; the status reports it.
The current time is an input: the controller sets for each point in time whether it has passed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from cryptography import x509

from gatehouse.compiler.frontends.certificate_names import dns_names, rfc3339, validity_of
from gatehouse.compiler.frontends.inputs import deadline_key
from gatehouse.compiler.frontends.upstream_cluster.findings import (
    ClusterFinding,
    ClusterReason,
)
from gatehouse.incremental.query import Ask

MAX_LISTED_NAMES = 5
"""Maximum number of names in a message."""


class LeafCertificate(msgspec.Struct, frozen=True):
    """The first certificate of a chain."""

    place: str
    """Source of the chain: field, or Secret and key."""
    starts: int
    """Start of validity in Unix seconds."""
    ends: int
    names: tuple[str, ...]
    """DNS names of its subjectAltName, in lower case."""


def leaf(chain: bytes, place: str) -> LeafCertificate:
    """Parse the first certificate of a PEM chain, which must have one."""
    parsed = x509.load_pem_x509_certificates(chain)[0]
    return LeafCertificate(place, *validity_of(parsed), dns_names(parsed))


def certificate_covers(names: Collection[str], host: str) -> bool:
    """Return whether a certificate's names match a hostname in lower case (RFC 6125 6.4).

    ``*`` matches exactly one label, the first. The common name is ignored.
    """
    return host in names or f"*.{host.partition('.')[2]}" in names


def out_of_time(ask: Ask, leaves: Iterable[LeafCertificate | None]) -> tuple[ClusterFinding, ...]:
    """Return findings about expired or not yet valid certificates, all with one reason."""
    expired, early = [], []
    for leave in leaves:
        if leave is None:
            continue
        if ask.read(deadline_key(leave.ends)) is True:
            expired.append(f"{leave.place}: the certificate expired at {rfc3339(leave.ends - 1)}")
        elif ask.read(deadline_key(leave.starts)) is False:
            early.append(
                f"{leave.place}: the certificate is not valid before {rfc3339(leave.starts)}"
            )
    reason = ClusterReason.CERTIFICATE_EXPIRED if expired else ClusterReason.CERTIFICATE_EARLY
    return tuple(ClusterFinding(reason, message) for message in (*expired, *early))


def uncovered_finding(
    certificate: LeafCertificate, hosts: Iterable[str]
) -> tuple[ClusterFinding, ...]:
    """Return a finding with the hostnames that a certificate does not cover."""
    missing = [host for host in hosts if not certificate_covers(certificate.names, host)]
    if not missing:
        return ()
    own = (
        f"certificate names: {_listed(certificate.names)}"
        if certificate.names
        else "it has no DNS names"
    )
    message = f"{certificate.place}: the certificate does not cover {_listed(missing)}; {own}"
    return (ClusterFinding(ClusterReason.NAMES_NOT_COVERED, message),)


def _listed(names: Iterable[str]) -> str:
    hostnames = sorted(names)
    more = (
        f" and {len(hostnames) - MAX_LISTED_NAMES} more"
        if len(hostnames) > MAX_LISTED_NAMES
        else ""
    )
    return ", ".join(hostnames[:MAX_LISTED_NAMES]) + more
