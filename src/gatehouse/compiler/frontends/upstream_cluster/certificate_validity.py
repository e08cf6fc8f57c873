"""Validity of certificates by time and by hostname.

An invalid certificate is still presented, because that is better than none; the status reports it.
The current time is an input: the controller sets for each point in time whether it has passed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

import msgspec
from cryptography import x509

from gatehouse.compiler.frontends.inputs import passed
from gatehouse.compiler.frontends.upstream_cluster.findings import Finding, Reason
from gatehouse.incremental.query import Ask

MAX_LISTED_NAMES = 5
"""Maximum number of names in a message."""


class Leaf(msgspec.Struct, frozen=True):
    """The first certificate of a chain."""

    place: str
    """Source of the chain: field, or Secret and key."""
    starts: int
    """Start of validity in Unix seconds."""
    ends: int
    names: tuple[str, ...]
    """DNS names of its subjectAltName, in lower case."""


def leaf(chain: bytes, place: str) -> Leaf:
    """Parse the first certificate of a PEM chain, which must have one."""
    found = x509.load_pem_x509_certificates(chain)[0]
    return Leaf(
        place,
        int(found.not_valid_before_utc.timestamp()),
        int(found.not_valid_after_utc.timestamp()) + 1,
        _names(found),
    )


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
        ValueError,
    ):
        # Clients cannot read names from it either.
        return ()
    return tuple(each.lower() for each in found.value.get_values_for_type(x509.DNSName))


def covers(names: Collection[str], host: str) -> bool:
    """Return whether a certificate's names match a hostname in lower case (RFC 6125 6.4).

    ``*`` matches exactly one label, the first. The common name is ignored.
    """
    return host in names or f"*.{host.partition('.')[2]}" in names


def out_of_time(ask: Ask, leaves: Iterable[Leaf | None]) -> tuple[Finding, ...]:
    """Return findings about expired or not yet valid certificates, all with one reason."""
    expired, early = [], []
    for each in leaves:
        if each is None:
            continue
        if ask.read(passed(each.ends)) is True:
            expired.append(f"{each.place}: the certificate expired at {_rfc3339(each.ends - 1)}")
        elif ask.read(passed(each.starts)) is False:
            early.append(
                f"{each.place}: the certificate is not valid before {_rfc3339(each.starts)}"
            )
    reason = Reason.CERTIFICATE_EXPIRED if expired else Reason.CERTIFICATE_EARLY
    return tuple(Finding(reason, message) for message in (*expired, *early))


def uncovered(found: Leaf, hosts: Iterable[str]) -> tuple[Finding, ...]:
    """Return a finding with the hostnames that a certificate does not cover."""
    missing = [host for host in hosts if not covers(found.names, host)]
    if not missing:
        return ()
    own = f"certificate names: {_listed(found.names)}" if found.names else "it has no DNS names"
    message = f"{found.place}: the certificate does not cover {_listed(missing)}; {own}"
    return (Finding(Reason.NAMES_NOT_COVERED, message),)


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - MAX_LISTED_NAMES} more" if len(found) > MAX_LISTED_NAMES else ""
    return ", ".join(found[:MAX_LISTED_NAMES]) + more


def _rfc3339(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
