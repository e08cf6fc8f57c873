"""Validity of certificates by time, for all kinds of objects that hold or reference them.

An invalid certificate is still used, because that is better than none. A condition reports it, and
in time that it expires. The current time is an input: the controller sets for each deadline whether
it has passed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from cryptography import x509

from gatehouse.compiler.frontends.certificate_names import rfc3339, validity_of
from gatehouse.compiler.frontends.inputs import deadline_key
from gatehouse.incremental.query import Ask

WARNING_SECONDS = 14 * 86400
"""Time in seconds before the expiry of a certificate from which a condition warns."""

WARNING_SHARE = 5
"""The condition of a short-lived certificate warns in the last fifth of its validity. Programs
renew certificates before, usually after two thirds."""

Validity = tuple[int, int]
"""First second of the validity of a certificate and first second after it, in Unix time."""

Problem = tuple[str, str]
"""Name of a reason, which all enumerations of reasons have, and a message."""


class Dated(msgspec.Struct, frozen=True):
    """The certificate of a key pair, or the CA certificates of one object."""

    place: str
    """Field, and object that holds them, for messages."""
    validities: tuple[Validity, ...]
    """Validity of each. Peers can be verified as long as one CA certificate is valid."""


def validities_of(pem: bytes) -> tuple[Validity, ...]:
    """Return the validity of each certificate of a valid PEM text."""
    return tuple(map(validity_of, x509.load_pem_x509_certificates(pem)))


def problems(ask: Ask, certificates: Iterable[Dated]) -> list[Problem]:
    """Return the problems of certificates that are not valid now, or not for long.

    The first one selects the reason of the condition.
    """
    listed = [
        (reason, f"{entry.place}: {message}")
        for entry in certificates
        for reason, message in ask(_problems, entry.validities)
    ]
    return sorted(listed, key=lambda problem: _ORDER.index(problem[0]))


_ORDER = (
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_EARLY",
    "CERTIFICATE_EXPIRES",
    "CERTIFICATE_SOME_EXPIRED",
)


def _problems(ask: Ask, validities: tuple[Validity, ...]) -> tuple[Problem, ...]:
    """Return the problems of certificates of which one valid one is enough."""
    expired = [ends for _, ends in validities if ask.read(deadline_key(ends)) is True]
    current = [entry for entry in validities if ask.read(deadline_key(entry[1])) is not True]
    valid = [entry for entry in current if ask.read(deadline_key(entry[0])) is not False]
    expiring = [entry[1] for entry in valid if ask.read(deadline_key(_warning(entry))) is True]
    count, result = len(validities), list[Problem]()
    if expired:
        last = rfc3339(max(expired) - 1)
        some = f"CA certificates expired: {len(expired)} of {count}, the last at {last}"
        message = f"the certificate expired at {last}" if count == 1 else some
        name = "CERTIFICATE_SOME_EXPIRED" if current else "CERTIFICATE_EXPIRED"
        result.append((name, message))
    if current and not valid:
        first = rfc3339(min(starts for starts, _ in current))
        some = f"CA certificates valid: 0 of {count}, the next from {first}"
        message = f"the certificate is not valid before {first}" if count == 1 else some
        result.append(("CERTIFICATE_EARLY", message))
    if expiring:
        first = rfc3339(min(expiring) - 1)
        some = f"CA certificates that expire soon: {len(expiring)} of {count}, the first at {first}"
        message = f"the certificate expires at {first}" if count == 1 else some
        result.append(("CERTIFICATE_EXPIRES", message))
    return tuple(result)


def validity_deadlines(certificates: Iterable[Dated]) -> tuple[int, ...]:
    """Return the times in Unix seconds at which the problems of certificates change, sorted."""
    validities = {validity for entry in certificates for validity in entry.validities}
    times = {moment for entry in validities for moment in (entry[0], _warning(entry), entry[1])}
    return tuple(sorted(times))


def _warning(validity: Validity) -> int:
    """Return the time in Unix seconds from which a condition warns."""
    starts, ends = validity
    return ends - min(WARNING_SECONDS, (ends - starts) // WARNING_SHARE)
