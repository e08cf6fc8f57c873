"""Statuses of policies and filters of ``gateway.nginx.org``."""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import attachments
from gatehouse.compiler.frontends.gateway_api.classes import (
    class_controller,
    controllers,
    is_managed_gateway,
)
from gatehouse.compiler.frontends.gateway_api.dependencies import gateways_using
from gatehouse.compiler.frontends.gateway_api.extensions import policy_conflicts
from gatehouse.compiler.frontends.gateway_api.extensions.extension_filters import (
    filter_at,
    filter_rejection,
    translated_filter,
)
from gatehouse.compiler.frontends.gateway_api.findings import (
    Condition,
    Finding,
    Reason,
    fold_findings,
)
from gatehouse.compiler.frontends.gateway_api.inputs import (
    at_gateway,
    rejected_by_proxy,
    rejecting_gateways,
    unsupported_key,
)
from gatehouse.compiler.frontends.gateway_api.status.certificate_validity import (
    certificates_of_filter,
    validity_findings,
)
from gatehouse.compiler.frontends.gateway_api.status.security_status import security_findings
from gatehouse.compiler.frontends.gateway_api.status.telemetry_status import (
    telemetry_findings,
)
from gatehouse.compiler.frontends.gateway_api.status.traffic_status import traffic_findings
from gatehouse.compiler.frontends.gateway_api.status.types import (
    MAX_ANCESTORS,
    AncestorStatus,
    FilterStatus,
    PolicyStatus,
)
from gatehouse.compiler.frontends.gateway_api.status.unsupported import messages
from gatehouse.incremental.query import Ask, Key


def extension_status(ask: Ask, key: Key) -> PolicyStatus | None:
    """Return the desired status of a policy, with an entry for each ancestor."""
    policy = ask.read(key)
    if not isinstance(policy, api.AttachedPolicy):
        return None
    entries: list[AncestorStatus] = []
    for target in policy.targets:
        where = (target.kind, key[1], target.name)
        if ask.read(where) is None:
            message = f"targetRef: {target.kind} {key[1]}/{target.name} not found"
            finding = Finding(Reason.POLICY_TARGET_NOT_FOUND, message)
            missing = _conditions(policy, (finding,))
            group = "" if target.kind == "Service" else target.group
            entries += [AncestorStatus(name, where, missing, group) for name in ask(controllers)]
            continue
        for ancestor, controller, gateways in _ancestors(ask, where):
            refusal = _refusal(ask, key, ancestor, gateways)
            findings = (refusal,) if refusal else _of_accepted(ask, key, ancestor, gateways)
            entries.append(AncestorStatus(controller, ancestor, _conditions(policy, findings)))
    unique = {(entry.ancestor, entry.controller): entry for entry in entries}
    return PolicyStatus(tuple(unique.values())[:MAX_ANCESTORS])


def filter_status(ask: Ask, key: Key) -> FilterStatus | None:
    """Return the desired status of a filter."""
    resource = ask.read(key)
    if resource is None:
        return None
    translated = ask(translated_filter, key)
    problem = translated if isinstance(translated, str) else ""
    secrets = () if isinstance(translated, str) else translated.secrets
    credentials = tuple(secret.name for secret in secrets)
    accepted = Finding(Reason.ACCEPTED, "the filter is accepted")
    validity = validity_findings(ask, certificates_of_filter(ask, key))
    rejected = _by_controller(ask, rejecting_gateways(ask, key, credentials), key)
    entries = []
    for name in ask(controllers):
        messages_here = (problem,) if problem else rejected.get(name, ())
        refusals = tuple(Finding(Reason.POLICY_INVALID, text) for text in messages_here[:1])
        findings = (*refusals, *validity)
        entries.append((name, fold_findings(findings, (accepted,), resource.metadata.generation)))
    return FilterStatus(tuple(entries))


def _by_controller(ask: Ask, gateways: Iterable[Key], key: Key) -> dict[str, tuple[str, ...]]:
    """Return why Gateways do not serve a filter, by controller."""
    result: dict[str, tuple[str, ...]] = {}
    for gateway in gateways:
        why = filter_rejection(ask, gateway, key, tried=True) or ask(filter_at, gateway, key)
        if isinstance(why, str):
            name = ask(class_controller, gateway)
            result[name] = (*result.get(name, ()), at_gateway(gateway, why))
    return result


def _ancestors(ask: Ask, target: Key) -> list[tuple[Key, str, tuple[Key, ...]]]:
    """Return the ancestors in the status of a policy about ``target``, each with its controller
    and the Gateways that the entry is about."""
    ancestors: tuple[Key, ...]
    match target[0]:
        case "Gateway":
            ancestors = (target,) if ask(is_managed_gateway, target) else ()
        case "Service":
            ancestors = ask(gateways_using, target)
        case _:
            by_name: dict[str, set[Key]] = {}
            for attachment in ask(attachments, target):
                by_name.setdefault(ask(class_controller, attachment.gateway), set()).add(
                    attachment.gateway
                )
            return [(target, name, tuple(sorted(by_name[name]))) for name in sorted(by_name)]
    return [(key, ask(class_controller, key), (key,)) for key in ancestors]


def _of_accepted(
    ask: Ask, key: Key, ancestor: Key, gateways: tuple[Key, ...]
) -> tuple[Finding, ...]:
    """Return the findings about a policy that the Gateways of an ancestor accept."""
    match key[0]:
        case "XTelemetryPolicy":
            return telemetry_findings(ask, key, ancestor)
        case "XBackendTrafficPolicy":
            return traffic_findings(ask, key, ancestor)
        case "SecurityPolicy":
            return security_findings(ask, key, gateways)
    return ()


def _refusal(ask: Ask, key: Key, ancestor: Key, gateways: Iterable[Key]) -> Finding | None:
    """Return why a policy is not accepted for an ancestor; None if it is.

    An entry about a route covers several Gateways, so that the message names the one that does not
    serve the policy.
    """
    rejected = {gateway: rejected_by_proxy(ask, gateway, key, tried=True) for gateway in gateways}
    by_gateway: dict[Key, Finding | None] = {
        gateway: ask(policy_conflicts.policy_rejection, gateway, key)
        or (Finding(Reason.POLICY_INVALID, why) if why else None)
        for gateway, why in rejected.items()
    }
    for gateway, refusal in by_gateway.items():
        if refusal is None:
            continue
        everywhere = len(set(by_gateway.values())) == 1 and not rejected[gateway]
        if everywhere or gateway == ancestor:
            return refusal
        return Finding(refusal.reason, at_gateway(gateway, refusal.message))
    return _unsupported(ask, key, ancestor)


def _unsupported(ask: Ask, key: Key, ancestor: Key) -> Finding | None:
    """Return a finding if the data plane does not support a policy of a Gateway; else None."""
    parts = unsupported_key(ask, ancestor, key) if ancestor[0] == "Gateway" else ()
    return Finding(Reason.POLICY_INVALID, messages(parts)[0]) if parts else None


def _conditions(policy: api.AttachedPolicy, findings: tuple[Finding, ...]) -> tuple[Condition, ...]:
    accepted = Finding(Reason.ACCEPTED, "the policy is accepted")
    return fold_findings(findings, (accepted,), policy.metadata.generation)
