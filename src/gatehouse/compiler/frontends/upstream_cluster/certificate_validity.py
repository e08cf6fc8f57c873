"""Whether certificates hold: their time, and the names that clients verify them by.

One that does not is shown all the same, which beats nothing; the status tells of it. What time it
is is an input: the controller says of each moment whether it has passed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

import msgspec
from cryptography import x509

from gatehouse.compiler.frontends.upstream_cluster.findings import Finding, Reason
from gatehouse.compiler.frontends.upstream_cluster.inputs import passed
from gatehouse.incremental.query import Ask

MAX_LISTED_NAMES = 5
"""Names that a message lists."""


class Leaf(msgspec.Struct, frozen=True):
    """The first certificate of a chain."""

    place: str
    """Where the chain stands: field, or Secret and key."""
    starts: int
    """Seconds since 1970."""
    ends: int
    names: tuple[str, ...]
    """DNS names of its subjectAltName, in lower case."""


def leaf(chain: bytes, place: str) -> Leaf:
    """Read the first certificate of a PEM chain, which holds one."""
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
        # Clients can read no names from it either.
        return ()
    return tuple(each.lower() for each in found.value.get_values_for_type(x509.DNSName))


def covers(names: Collection[str], host: str) -> bool:
    """Whether one of a certificate's names is a host's (RFC 6125 6.4; ``host``: lower case).

    ``*`` stands for exactly one label, the first; the common name for nothing.
    """
    return host in names or f"*.{host.partition('.')[2]}" in names


def out_of_time(ask: Ask, leaves: Iterable[Leaf | None]) -> tuple[Finding, ...]:
    """Tell of certificates that have expired or are not valid yet, all by one reason."""
    expired, early = [], []
    for each in leaves:
        if each is None:
            continue
        if ask.read(passed(each.ends)) is True:
            expired.append(f"{each.place}: the certificate expired at {_shown(each.ends - 1)}")
        elif ask.read(passed(each.starts)) is False:
            early.append(f"{each.place}: the certificate is not valid before {_shown(each.starts)}")
    reason = Reason.CERTIFICATE_EXPIRED if expired else Reason.CERTIFICATE_EARLY
    return tuple(Finding(reason, message) for message in (*expired, *early))


def uncovered(found: Leaf, hosts: Iterable[str]) -> tuple[Finding, ...]:
    """Tell of the hosts for which clients do not take a certificate."""
    missing = [host for host in hosts if not covers(found.names, host)]
    if not missing:
        return ()
    own = f"its names are {_listed(found.names)}" if found.names else "it has no DNS names"
    message = f"{found.place}: the certificate does not cover {_listed(missing)}; {own}"
    return (Finding(Reason.NAMES_NOT_COVERED, message),)


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - MAX_LISTED_NAMES} more" if len(found) > MAX_LISTED_NAMES else ""
    return ", ".join(found[:MAX_LISTED_NAMES]) + more


def _shown(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
