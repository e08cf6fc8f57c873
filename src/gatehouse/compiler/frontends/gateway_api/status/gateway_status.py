"""Statuses of Gateways, ListenerSets and their listeners."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import Attachment, ListenerKey
from gatehouse.compiler.frontends.gateway_api.attachment.virtual_hosts import route_attachments
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway, settings
from gatehouse.compiler.frontends.gateway_api.extensions import (
    effective,
    overrides,
    parameters,
    policy_conflicts,
)
from gatehouse.compiler.frontends.gateway_api.extensions.unserved_parameters import (
    unserved_parameters,
)
from gatehouse.compiler.frontends.gateway_api.findings import (
    ALL_RESOLVED,
    Condition,
    Finding,
    Reason,
    fold_findings,
)
from gatehouse.compiler.frontends.gateway_api.inputs import programmed_input, unsupported_key
from gatehouse.compiler.frontends.gateway_api.listeners import (
    addresses,
    frontend_tls,
    listener_sets,
)
from gatehouse.compiler.frontends.gateway_api.listeners import listeners as listening
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import ListenerState
from gatehouse.compiler.frontends.gateway_api.routes.listener_checks import listener_check
from gatehouse.compiler.frontends.gateway_api.status.certificate_validity import (
    certificates_of_gateway,
    certificates_of_listener,
    validity_findings,
)
from gatehouse.compiler.frontends.gateway_api.status.types import (
    GatewayStatus,
    ListenerStatus,
    SetStatus,
)
from gatehouse.compiler.frontends.gateway_api.status.unsupported import messages
from gatehouse.compiler.frontends.gateway_api.translate import client_certificate
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.incremental.grouping import entry_count
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table


def gateway_status(ask: Ask, key: Key) -> GatewayStatus | None:
    """Return the desired status of a Gateway; None if it is not managed."""
    gateway_object = ask.read(key)
    if not isinstance(gateway_object, gateway.Gateway) or not ask(is_managed_gateway, key):
        return None
    everyone = ask(listening.ordered_listeners, key)
    own = tuple(state for state in everyone if state.spec.owner == key)
    programmed = _programmed(ask, key, everyone)
    findings = [_accepted(ask, key, own), programmed, *_references(ask, key, gateway_object)]
    findings += validity_findings(ask, certificates_of_gateway(ask, key))
    findings += effective.affected(ask, key, key)
    if gateway_object.spec.default_scope == gateway.DEFAULT_SCOPE:
        message = "the Gateway has the default scope All"
        findings.append(Finding(Reason.DEFAULT_GATEWAY, message))
    assignment = ask(addresses.address_assignment, key)
    if assignment.finding is not None:
        findings.append(assignment.finding)
    return GatewayStatus(
        conditions=fold_findings(tuple(findings), (), gateway_object.metadata.generation),
        addresses=assignment.assigned,
        listeners=_listeners(ask, key, own, programmed, gateway_object.metadata.generation),
        sets=sum(
            1 for owner in ask(listener_sets.listener_owners, key)[1:] if _attached(owner, everyone)
        ),
    )


def set_status(ask: Ask, key: Key) -> SetStatus | None:
    """Return the desired status of a ListenerSet; None if its Gateway is not managed."""
    listener_set = ask.read(key)
    target = ask(listener_sets.parent_of, key)
    if target is None or not isinstance(listener_set, gateway.ListenerSet):
        return None
    generation = listener_set.metadata.generation
    refusal = ask(listener_sets.listener_set_refusal, key)
    if refusal is not None:
        unserved = Finding(Reason.SET_NOT_ALLOWED_PROGRAMMED, refusal.message)
        return SetStatus(fold_findings((refusal, unserved), (), generation))
    everyone = ask(listening.ordered_listeners, target)
    own = tuple(state for state in everyone if state.spec.owner == key)
    programmed = _programmed(ask, target, everyone)
    # One valid listener is enough, even if others lack a certificate.
    bad = [state.spec.name for state in own if not state.served]
    findings = [_of_listeners(own, bad, "the ListenerSet is accepted", Reason.ACCEPTED)]
    if not any(state.served for state in own):
        message = "spec.listeners: no valid listener; see the conditions of each listener"
        findings.append(Finding(Reason.SET_LISTENERS_INVALID_PROGRAMMED, message))
    else:
        findings.append(programmed)
    return SetStatus(
        fold_findings(tuple(findings), (), generation),
        _listeners(ask, target, own, programmed, generation),
    )


def _attached(owner: Key, everyone: tuple[ListenerState, ...]) -> bool:
    return any(state.spec.owner == owner and state.served for state in everyone)


def _accepted(ask: Ask, key: Key, states: tuple[ListenerState, ...]) -> Finding:
    own = ask(parameters.gateway_parameters_of, key)
    if problem := own.problem or own.refused:
        message = f"spec.infrastructure.parametersRef: {problem}"
        return Finding(Reason.INVALID_PARAMETERS, message)
    if refused := overrides.refused_metadata(ask.read(key), ask(settings).metadata_domains):
        return Finding(Reason.INVALID_PARAMETERS, refused)
    outer = ask(parameters.of_class_at, key)
    if outer.rejected:
        message = f"GatewayClass {ask.read(key).spec.gateway_class_name}: spec.parametersRef"
        return Finding(Reason.INVALID_PARAMETERS, f"{message}: {outer.problem}")
    if problems := ask(policy_conflicts.trace_credentials, key).problems:
        message = f"{ask(parameters.collector_origin, key)}: {'; '.join(problems)}"
        return Finding(Reason.INVALID_PARAMETERS, message)
    unsupported = ask(addresses.unsupported_address, key)
    missing = "; ".join(ask(_unsupported_settings, key))
    good = (
        f"the Gateway is accepted; not supported: {missing}"
        if missing
        else "the Gateway is accepted"
    )
    bad = [state.spec.name for state in states if not state.spec.accepted]
    some = Reason.GATEWAY_SOME_LISTENERS_INVALID
    return unsupported or _of_listeners(states, bad, good, some)


def _of_listeners(
    states: Sequence[ListenerState], bad: list[str], good: str, some: Reason
) -> Finding:
    """Return the Accepted finding of the owner of listeners.

    ``bad``: names of the invalid ones. ``some``: the reason if others are valid.
    """
    if not bad:
        return Finding(Reason.ACCEPTED, good)
    message = f"spec.listeners: invalid listeners {', '.join(bad)}; see their conditions"
    return Finding(some if len(bad) < len(states) else Reason.GATEWAY_LISTENERS_INVALID, message)


def _references(ask: Ask, key: Key, gateway_object: gateway.Gateway) -> list[Finding]:
    """Return the findings about ``spec.tls``."""
    findings = []
    loose = ask(frontend_tls.insecure, key)
    if loose:
        message = f"{', '.join(loose)}: clients without a valid certificate are accepted"
        findings.append(Finding(Reason.INSECURE_FRONTEND, message))
    if gateway_object.spec.tls.backend.client_certificate_ref is None:
        return findings
    certificate = ask(client_certificate, key)
    if isinstance(certificate, Finding):
        reason = certificate.reason
        if reason is Reason.INVALID_CERTIFICATE_REF:
            reason = Reason.INVALID_CLIENT_CERTIFICATE
        message = f"spec.tls.backend.clientCertificateRef: {certificate.message}"
        findings.append(Finding(reason, message))
    else:
        findings.append(ALL_RESOLVED)
    return findings


def _programmed(ask: Ask, key: Key, states: tuple[ListenerState, ...]) -> Finding:
    unusable = ask(addresses.address_assignment, key).unusable
    if unusable is not None:
        return unusable
    if not any(state.served for state in states):
        return Finding(Reason.NOT_PROGRAMMED, "spec.listeners: no valid listener")
    plane = programmed_input(ask, key)
    reason, message = plane.reason, plane.message
    if plane.programmed:
        reason, message = Reason.PROGRAMMED, "all data planes confirmed the configuration"
        if plane.message:
            message += f"; not provisioned: {plane.message}"
    if plane.left_out:
        message += f"; {plane.left_out}"
    return Finding(reason, message)


def _listeners(
    ask: Ask, key: Key, states: tuple[ListenerState, ...], programmed: Finding, generation: int
) -> tuple[ListenerStatus, ...]:
    counts = ask(attached_routes, key)
    unserved = ask(unserved_ports, key)
    return tuple(
        ListenerStatus(
            state.spec.name,
            state.spec.kinds,
            counts.get(state.spec.key, 0),
            _listener_conditions(
                ask, key, state, programmed, unserved.get(state.spec.port), generation
            ),
        )
        for state in states
    )


def _listener_conditions(
    ask: Ask,
    target: Key,
    state: ListenerState,
    programmed: Finding,
    unserved: Unsupported | None,
    generation: int,
) -> tuple[Condition, ...]:
    accepted = "the listener is accepted"
    if state.unsupported:
        accepted += f"; not supported: {'; '.join(state.unsupported)}"
    defaults = [
        Finding(Reason.ACCEPTED, accepted),
        Finding(Reason.NO_CONFLICTS, "no conflict with other listeners"),
        ALL_RESOLVED,
    ]
    validity = validity_findings(ask, certificates_of_listener(ask, target, state))
    checked = state.has_filters and state.served
    unchecked = ask(listener_check, target, state.spec.key).findings if checked else ()
    findings = (*state.findings, *validity, *unchecked)
    message = f"listener {state.spec.name}: {messages([unserved])[0]}" if unserved else ""
    if unserved and not unserved.rejected:
        findings = (*findings, Finding(Reason.UNSUPPORTED_VALUE, message))
    if not state.served or (unserved and not unserved.rejected):
        programmed = Finding(
            Reason.NOT_PROGRAMMED, "the listener is invalid; see its other conditions"
        )
    elif unserved:
        programmed = Finding(Reason.NOT_PROGRAMMED, message)
    return fold_findings(findings, (*defaults, programmed), generation)


def unserved_ports(ask: Ask, key: Key) -> dict[int, Unsupported]:
    """Return the ports that the data plane's proxy does not support or rejected."""
    findings = unsupported_key(ask, key, key)
    return {finding.origin.port: finding for finding in findings if finding.origin.port}


def _unsupported_settings(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the settings of the Gateway and its backends that the data plane does not support."""
    findings = unsupported_key(ask, key, key)
    generated = messages(finding for finding in findings if not finding.origin.port)
    return (*ask(unserved_parameters, key), *generated)


def attached_routes(ask: Ask, key: Key) -> Table[ListenerKey, int]:
    """Return the number of routes attached to each listener of a Gateway and its ListenerSets."""

    def listeners_of(_: Key, attachments: Iterable[Attachment]) -> Iterable[ListenerKey]:
        return (
            place
            for attachment in attachments
            if attachment.gateway == key
            for place in attachment.listeners
        )

    return ask.group_by(ask(route_attachments, key), listeners_of, entry_count)
