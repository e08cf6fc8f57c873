"""Certificates of Gateways, listeners, BackendTLSPolicies and filters, with their validity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gatehouse.compiler.frontends import certificate_validity
from gatehouse.compiler.frontends.certificate_validity import Dated
from gatehouse.compiler.frontends.gateway_api.classes import (
    class_controller,
    is_managed_gateway,
    settings,
)
from gatehouse.compiler.frontends.gateway_api.extensions import authentication, parameters
from gatehouse.compiler.frontends.gateway_api.extensions.trace_credentials import TLS
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import NGINX, key_of
from gatehouse.compiler.frontends.gateway_api.listeners import frontend_tls, listener_sets
from gatehouse.compiler.frontends.gateway_api.listeners import listeners as listening
from gatehouse.compiler.frontends.gateway_api.listeners.ca_certificates import (
    authorities_validities,
)
from gatehouse.compiler.frontends.gateway_api.listeners.certificates import key_pair_of_secret
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import ListenerState
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import PROTOCOLS
from gatehouse.compiler.frontends.gateway_api.routes.backend_tls import resolve_backend_tls
from gatehouse.compiler.frontends.gateway_api.translate import client_certificate
from gatehouse.compiler.ir.gateway import Certificate, TrustBundle
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Ask, Key


def validity_findings(ask: Ask, certificates: Iterable[Dated]) -> tuple[Finding, ...]:
    """Return findings about certificates that are not valid now, or not for long."""
    listed = certificate_validity.problems(ask, certificates)
    return tuple(Finding(Reason[name], message) for name, message in listed)


def certificates_of_gateway(ask: Ask, key: Key) -> Iterator[Dated]:
    """Yield the certificates of a Gateway that belong to no listener."""
    own = ask(client_certificate, key)
    yield from leaf_certificate(own, "spec.tls.backend.clientCertificateRef")
    yield from _of_usage_reports(ask, key)
    collector = ask(parameters.collector_credentials, key)
    if collector.trust is None and collector.certificate is None:
        return
    tls = f"{ask(parameters.collector_origin, key)}: spec.{TLS}"
    yield from leaf_certificate(collector.certificate, f"{tls}.clientCertificateRef")
    yield from _authorities(ask, collector.trust, f"{tls}.caCertificateRefs")


def _of_usage_reports(ask: Ask, key: Key) -> Iterator[Dated]:
    """Yield the certificates with which NGINX Plus reports its usage. They are options."""
    if ask(class_controller, key) == NGINX:
        options = ask(settings)
        for holder in options.usage_clients:
            yield from leaf_certificate(
                ask(key_pair_of_secret, (holder[1], holder[2])), "client of usage reports"
            )
        for holder in options.usage_authorities:
            yield from _held(ask, holder, "CA of usage reports")


def certificates_of_listener(ask: Ask, target: Key, state: ListenerState) -> Iterator[Dated]:
    """Yield the certificates of a listener of Gateway ``target``, and the CA certificates that
    verify its clients."""
    where = f"listener {state.spec.name}"
    for certificate in state.certificates:
        yield from leaf_certificate(certificate, f"{where}: tls.certificateRefs")
    protocol = PROTOCOLS.get(state.spec.protocol)
    if protocol is not None and protocol.validates:
        port = (target, state.spec.port)
        _, place = ask(frontend_tls.validation_of, *port)
        trust, _ = ask(frontend_tls.client_trust_of_port, *port)
        yield from _authorities(ask, trust, f"{where}: spec.{place}.validation.caCertificateRefs")


def certificates_of_policy(
    ask: Ask, trust: TrustBundle | None, field: str = "validation"
) -> Iterator[Dated]:
    """Yield the CA certificates of a BackendTLSPolicy, or of a field of another object."""
    yield from _authorities(ask, trust, f"{field}.caCertificateRefs")


def certificates_of_filter(ask: Ask, key: Key) -> Iterator[Dated]:
    """Yield the CA certificates of a filter."""
    for place, holder in authentication.authority_holders(ask.read(key)):
        yield from _held(ask, holder, place)


def leaf_certificate(certificate: object, where: str) -> Iterator[Dated]:
    """Yield a certificate that is not a CA; nothing for a problem."""
    if isinstance(certificate, Certificate) and certificate.validity is not None:
        yield Dated(f"{where}: {certificate.origin}", (certificate.validity,))


def _authorities(ask: Ask, bundle: TrustBundle | None, where: str) -> Iterator[Dated]:
    for origin in bundle.origins if bundle is not None else ():
        yield from _held(ask, key_of(origin), where)


def _held(ask: Ask, holder: Key, where: str) -> Iterator[Dated]:
    if validities := ask(authorities_validities, holder):
        yield Dated(f"{where}: {object_of(holder)}", validities)


def certificates_of_owner(ask: Ask, key: Key) -> Iterator[Dated]:
    """Yield the certificates of a Gateway or ListenerSet and of the listeners that it owns."""
    target = key if key[0] == "Gateway" else ask(listener_sets.parent_of, key)
    if target is None or not ask(is_managed_gateway, target):
        return
    if target == key:
        yield from certificates_of_gateway(ask, key)
    for state in ask(listening.ordered_listeners, target):
        if state.spec.owner == key:
            yield from certificates_of_listener(ask, target, state)


def policy_certificates(ask: Ask, key: Key) -> Iterator[Dated]:
    """Return the CA certificates of a BackendTLSPolicy."""
    return certificates_of_policy(ask, ask(resolve_backend_tls, key).trust)
