"""Validity of certificates by time: those of listeners, Gateways and BackendTLSPolicies.

An expired certificate is still presented, because that is better than none. A condition reports it,
and in time that it expires. The current time is an input: the controller sets for each deadline
whether it has passed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.certificate_names import rfc3339
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import listener_sets
from gatehouse.compiler.frontends.gateway_api.listeners import listeners as listening
from gatehouse.compiler.frontends.gateway_api.listeners.ca_certificates import authorities_validity
from gatehouse.compiler.frontends.gateway_api.listeners.certificates import resolve_certificate
from gatehouse.compiler.frontends.gateway_api.listeners.frontend_tls import client_trust_of_port
from gatehouse.compiler.frontends.gateway_api.routes.backend_tls import resolve_backend_tls
from gatehouse.compiler.frontends.inputs import deadline_key
from gatehouse.compiler.ir.gateway import Certificate, TrustBundle
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key

WARNING_SECONDS = 14 * 86400
"""Time in seconds before the expiry of a certificate from which a condition warns."""

WARNING_SHARE = 5
"""The condition of a short-lived certificate warns in the last fifth of its validity. Programs
renew certificates before, usually after two thirds."""


class Dated(msgspec.Struct, frozen=True):
    """A certificate and the time in which it is valid."""

    origin: Origin
    """Object that holds it."""
    starts: int
    """First second of its validity, in Unix time."""
    ends: int
    """First second after its validity, in Unix time."""

    @property
    def warns(self) -> int:
        """Time in Unix seconds from which a condition warns."""
        share = (self.ends - self.starts) // WARNING_SHARE
        return self.ends - min(WARNING_SECONDS, share)


def dated(certificates: Iterable[Certificate]) -> tuple[Dated, ...]:
    """Return key pairs with their validity, without those whose validity is unknown."""
    return tuple(
        Dated(certificate.origin, *certificate.validity)
        for certificate in certificates
        if certificate.validity is not None
    )


def dated_authorities(ask: Ask, bundle: TrustBundle | None) -> tuple[Dated, ...]:
    """Return the objects that hold the CA certificates of a bundle, with their validity."""
    origins = bundle.origins if bundle is not None else ()
    validities = (
        (origin, ask(authorities_validity, (origin.kind, origin.namespace, origin.name)))
        for origin in origins
    )
    return tuple(Dated(origin, *validity) for origin, validity in validities if validity)


def client_authorities(ask: Ask, which: tuple[Key, int]) -> tuple[Dated, ...]:
    """Return the CA certificates that verify the clients of a Gateway's port."""
    return dated_authorities(ask, ask(client_trust_of_port, which)[0])


def validity_findings(ask: Ask, certificates: Iterable[Dated], where: str) -> tuple[Finding, ...]:
    """Return findings about certificates that are not valid now, or not for long.

    ``where``: place of the references in messages.
    """
    findings = []
    for certificate in certificates:
        starts, ends = certificate.starts, certificate.ends
        place = f"{where}: {certificate.origin}"
        if ask.read(deadline_key(ends)) is True:
            message = f"{place}: the certificate expired at {rfc3339(ends - 1)}"
            findings.append(Finding(Reason.CERTIFICATE_EXPIRED, message))
        elif ask.read(deadline_key(starts)) is False:
            message = f"{place}: the certificate is not valid before {rfc3339(starts)}"
            findings.append(Finding(Reason.CERTIFICATE_EARLY, message))
        elif ask.read(deadline_key(certificate.warns)) is True:
            message = f"{place}: the certificate expires at {rfc3339(ends - 1)}"
            findings.append(Finding(Reason.CERTIFICATE_EXPIRES, message))
    return by_severity(findings)


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings about validity in order: the first selects the reason of the condition."""
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.reason)))


_ORDER = (Reason.CERTIFICATE_EXPIRED, Reason.CERTIFICATE_EARLY, Reason.CERTIFICATE_EXPIRES)


def certificate_deadlines(ask: Ask, key: Key) -> tuple[int, ...]:
    """Return the times at which conditions of a Gateway or ListenerSet change."""
    target = key if key[0] == "Gateway" else ask(listener_sets.parent_of, key)
    if target is None or not ask(is_managed_gateway, target):
        return ()
    certificates = [*dated(ask(client_certificates, key))]
    for state in ask(listening.ordered_listeners, target):
        if state.spec.owner == key:
            certificates += dated(state.certificates)
            if state.spec.protocol == "HTTPS":
                certificates += ask(client_authorities, (target, state.spec.port))
    return _times(certificates)


def policy_deadlines(ask: Ask, key: Key) -> tuple[int, ...]:
    """Return the times at which conditions of a BackendTLSPolicy change."""
    return _times(dated_authorities(ask, ask(resolve_backend_tls, key).trust))


def _times(certificates: Iterable[Dated]) -> tuple[int, ...]:
    times = {moment for entry in certificates for moment in (entry.starts, entry.warns, entry.ends)}
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
