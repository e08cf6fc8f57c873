"""Statuses of XBackends, with an entry for each Gateway whose routes refer to one."""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.apis import backends, resources, routes
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.compiler.frontends.certificate_validity import Dated
from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import attachments
from gatehouse.compiler.frontends.gateway_api.extensions.policy_conflicts import exporting_gateways
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import routes_by_service, unsupported_key
from gatehouse.compiler.frontends.gateway_api.listeners.certificates import key_pair_of_secret
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.frontends.gateway_api.routes import (
    backend_sessions,
    backend_tls,
    retries,
    x_backends,
)
from gatehouse.compiler.frontends.gateway_api.routes.pod_selections import (
    PodSelection,
    missing_service,
    selecting_service,
)
from gatehouse.compiler.frontends.gateway_api.status.ancestors import ancestor_entry
from gatehouse.compiler.frontends.gateway_api.status.certificate_validity import (
    certificates_of_policy,
    leaf_certificate,
    validity_findings,
)
from gatehouse.compiler.frontends.gateway_api.status.types import MAX_PARENTS, PolicyStatus
from gatehouse.compiler.frontends.gateway_api.status.unsupported import messages
from gatehouse.compiler.frontends.shortened_lists import shortened_list
from gatehouse.compiler.ir.unsupported import UNTRACKED_TIMEOUT
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Ask, Key

_MAX_RULES = 3
"""Maximum number of rules that the message of a condition names."""


def gateways_of_backend(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the Gateways with a route that may refer to an XBackend, or that send spans to it,
    sorted."""
    gateways = {
        gateway
        for route in ask.read(routes_by_service(key[1], key[2]))
        if _refers(ask, route, key)
        for gateway in _gateways(ask, route)
    }
    return tuple(sorted(gateways | {*ask(exporting_gateways, key)}))


def _refers(ask: Ask, key: Key, backend: Key) -> bool:
    """Return whether a route has a permitted reference to an XBackend."""
    route, group = ask.read(key), resources.X_BACKENDS.group
    if not isinstance(route, routes.RouteObject):
        return False
    across = Reference(GATEWAY_API_GROUP, key[0], key[1], group, *backend)
    return any(
        backend_sessions.refers_to(reference, key[1]) == backend
        for reference in routes.backend_references(route)
    ) and ask(permitted, across)


def backend_status(ask: Ask, key: Key) -> PolicyStatus | None:
    """Return the desired status of an XBackend."""
    backend = ask.read(key)
    if not isinstance(backend, backends.XBackend):
        return None
    accepted = f"the backend is accepted{missing_service(ask, key)}"
    entries = tuple(
        ancestor_entry(
            ask,
            gateway,
            accepted,
            _findings(ask, gateway, key, backend.spec),
            backend.metadata.generation,
        )
        for gateway in ask(gateways_of_backend, key)[:MAX_PARENTS]
    )
    return PolicyStatus(entries, limit=MAX_PARENTS)


def _findings(ask: Ask, gateway: Key, key: Key, spec: backends.BackendSpec) -> tuple[Finding, ...]:
    """Return what is wrong with an XBackend at a Gateway."""
    if refused := ask(x_backends.x_backend_problem, gateway, key):
        return (
            Finding(Reason.POLICY_INVALID, refused.message.removeprefix(f"{object_of(key)}: ")),
        )
    findings = [
        Finding(Reason.PARTIALLY_INVALID if part.served else Reason.POLICY_INVALID, message)
        for part in unsupported_key(ask, gateway, key)
        for message in messages([part])
    ]
    findings += _sessions(ask, gateway, key, spec)
    if spec.tls.mode != backends.NO_TLS:
        resolved = ask(backend_tls.backend_tls_at, gateway, key)
        findings += resolved.findings
        findings += validity_findings(ask, backend_certificates(ask, key))
    return tuple(findings)


def _sessions(ask: Ask, gateway: Key, key: Key, spec: backends.BackendSpec) -> Iterator[Finding]:
    """Yield what is not served of the sessions of an XBackend at a Gateway."""
    session, field = spec.session_persistence, "spec.sessionPersistence"
    if session is None:
        return
    if retries.persistence(session, "").absolute_timeout:
        why = f"{field}.absoluteTimeout: {UNTRACKED_TIMEOUT}"
        yield Finding(Reason.PARTIALLY_INVALID, why)
    rules = [
        f"{object_of(route)}: {why}"
        for route in sorted(ask.read(routes_by_service(key[1], key[2])))
        if _refers(ask, route, key) and gateway in _gateways(ask, route)
        for why in backend_sessions.unserved_rules(ask.read(route), key)
    ]
    if rules:
        message = f"{field}: is not supported for {shortened_list(rules, _MAX_RULES)}"
        yield Finding(Reason.PARTIALLY_INVALID, message)


def _gateways(ask: Ask, route: Key) -> set[Key]:
    """Return the Gateways that a route is attached to."""
    return {entry.gateway for entry in ask(attachments, route) if entry.refusal is None}


def backend_certificates(ask: Ask, key: Key) -> Iterator[Dated]:
    """Yield the CA certificates and the client certificate of an XBackend."""
    trust = ask(backend_tls.resolve_backend_tls, key).trust
    yield from certificates_of_policy(ask, trust, "spec.tls.validation")
    reference = backend_tls.client_reference(ask, key)
    if reference is None:
        return
    holder = (reference.namespace or key[1], reference.name)
    # Without a grant, a condition would disclose the validity of another namespace's certificate.
    across = Reference(resources.X_BACKENDS.group, key[0], key[1], "", "Secret", *holder)
    if ask(permitted, across):
        own = ask(key_pair_of_secret, holder)
        yield from leaf_certificate(own, "spec.tls.clientCertificateRef")


def desired_service(ask: Ask, key: Key) -> PodSelection | None:
    """Return the Service that the controller writes for an XBackend; None if no Gateway uses it."""
    selection: PodSelection | None = ask(selecting_service, key)
    return selection if selection is not None and ask(gateways_of_backend, key) else None
