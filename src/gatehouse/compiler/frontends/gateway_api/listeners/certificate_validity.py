"""Validity of the certificates of listeners and Gateways by time.

An expired certificate is still presented, because that is better than none. A condition reports it,
and in time that it expires. The current time is an input: the controller sets for each deadline
whether it has passed.
"""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.certificate_names import rfc3339
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import listener_sets
from gatehouse.compiler.frontends.gateway_api.listeners import listeners as listening
from gatehouse.compiler.frontends.gateway_api.listeners.certificates import resolve_certificate
from gatehouse.compiler.frontends.inputs import deadline_key
from gatehouse.compiler.ir.gateway import Certificate
from gatehouse.incremental.query import Ask, Key

WARNING_SECONDS = 14 * 86400
"""Time in seconds before the expiry of a certificate from which a condition warns."""

WARNING_SHARE = 5
"""The condition of a short-lived certificate warns in the last fifth of its validity. Programs
renew certificates before, usually after two thirds."""


def validity_findings(
    ask: Ask, certificates: Iterable[Certificate], where: str
) -> tuple[Finding, ...]:
    """Return findings about certificates that are not valid now, or not for long.

    ``where``: place of the references in messages.
    """
    findings = []
    for certificate in certificates:
        if certificate.validity is None:
            continue
        starts, ends = certificate.validity
        place = f"{where}: {certificate.origin}"
        if ask.read(deadline_key(ends)) is True:
            message = f"{place}: the certificate expired at {rfc3339(ends - 1)}"
            findings.append(Finding(Reason.CERTIFICATE_EXPIRED, message))
        elif ask.read(deadline_key(starts)) is False:
            message = f"{place}: the certificate is not valid before {rfc3339(starts)}"
            findings.append(Finding(Reason.CERTIFICATE_EARLY, message))
        elif ask.read(deadline_key(_warning_time(starts, ends))) is True:
            message = f"{place}: the certificate expires at {rfc3339(ends - 1)}"
            findings.append(Finding(Reason.CERTIFICATE_EXPIRES, message))
    # The first finding selects the reason of the condition.
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.reason)))


_ORDER = (Reason.CERTIFICATE_EXPIRED, Reason.CERTIFICATE_EARLY, Reason.CERTIFICATE_EXPIRES)


def _warning_time(starts: int, ends: int) -> int:
    return ends - min(WARNING_SECONDS, (ends - starts) // WARNING_SHARE)


def certificate_deadlines(ask: Ask, key: Key) -> tuple[int, ...]:
    """Return the times at which conditions of a Gateway or ListenerSet change."""
    target = key if key[0] == "Gateway" else ask(listener_sets.parent_of, key)
    if target is None or not ask(is_managed_gateway, target):
        return ()
    certificates = [
        certificate
        for state in ask(listening.ordered_listeners, target)
        if state.spec.owner == key
        for certificate in state.certificates
    ]
    certificates += ask(client_certificates, key)
    times = {
        moment
        for certificate in certificates
        if certificate.validity is not None
        for moment in (*certificate.validity, _warning_time(*certificate.validity))
    }
    return tuple(sorted(times))


def client_certificates(ask: Ask, key: Key) -> tuple[Certificate, ...]:
    """Return the certificate that a Gateway presents to backends, if it has a valid one."""
    owner = ask.read(key)
    reference = (
        owner.spec.tls.backend.client_certificate_ref
        if isinstance(owner, gateway.Gateway)
        else None
    )
    if reference is None:
        return ()
    certificate = resolve_certificate(ask, key, key, reference)
    return (certificate,) if isinstance(certificate, Certificate) else ()
