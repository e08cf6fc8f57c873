"""Statuses of policies and filters of ``gateway.nginx.org``."""

from __future__ import annotations

from gatehouse.apis import nginx_authentication
from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import attachments
from gatehouse.compiler.frontends.gateway_api.classes import controller_of, controllers, is_managed
from gatehouse.compiler.frontends.gateway_api.dependencies import users
from gatehouse.compiler.frontends.gateway_api.extensions import (
    authentication,
    policy_conflicts,
    snippets,
)
from gatehouse.compiler.frontends.gateway_api.findings import Condition, Finding, Reason, conditions
from gatehouse.compiler.frontends.gateway_api.inputs import rejected_by_proxy, unsupported
from gatehouse.compiler.frontends.gateway_api.status.policy_status import MAX_ANCESTORS
from gatehouse.compiler.frontends.gateway_api.status.types import (
    AncestorStatus,
    FilterStatus,
    PolicyStatus,
)
from gatehouse.compiler.frontends.gateway_api.status.unsupported import messages
from gatehouse.incremental.query import Ask, Key


def extension_status(ask: Ask, key: Key) -> PolicyStatus | None:
    """Return the desired status of a policy, with an entry for each ancestor."""
    policy = ask.read(key)
    if not isinstance(policy, api.Policy):
        return None
    entries: list[AncestorStatus] = []
    for target in policy.targets:
        where = (target.kind, key[1], target.name)
        if ask.read(where) is None:
            message = f"targetRef: {target.kind} {key[1]}/{target.name} not found"
            missing = Finding(Reason.POLICY_TARGET_NOT_FOUND, message)
            policy_conditions = _conditions(policy, missing)
            entries += [
                AncestorStatus(name, where, policy_conditions) for name in ask(controllers, "")
            ]
            continue
        for ancestor, controller in _ancestors(ask, where):
            refusal = ask(policy_conflicts.rejection, key) or _unsupported(ask, key, ancestor)
            entries.append(AncestorStatus(controller, ancestor, _conditions(policy, refusal)))
    unique = {(entry.ancestor, entry.controller): entry for entry in entries}
    return PolicyStatus(tuple(unique.values())[:MAX_ANCESTORS])


def filter_status(ask: Ask, key: Key) -> FilterStatus | None:
    """Return the desired status of a filter."""
    found = ask.read(key)
    problem = ""
    if isinstance(found, api.SnippetsFilter):
        problem = snippets.rejection(ask, key[0]) or rejected_by_proxy(ask, key)
    elif isinstance(found, nginx_authentication.AuthenticationFilter):
        problem = ask(authentication.resolve, key).problem
    else:
        return None
    refusal = Finding(Reason.POLICY_INVALID, problem) if problem else None
    accepted = Finding(Reason.ACCEPTED, "the filter is accepted")
    filter_conditions = conditions(
        (refusal,) if refusal else (), (accepted,), found.metadata.generation
    )
    return FilterStatus(ask(controllers, ""), filter_conditions)


def _ancestors(ask: Ask, target: Key) -> list[tuple[Key, str]]:
    """Return the ancestors in the status of a policy about ``target``, each with its controller."""
    found: tuple[Key, ...]
    match target[0]:
        case "Gateway":
            found = (target,) if ask(is_managed, target) else ()
        case "Service":
            found = ask(users, (target[1], target[2]))
        case _:
            names = {ask(controller_of, each.gateway) for each in ask(attachments, target)}
            return [(target, name) for name in sorted(names)]
    return [(key, ask(controller_of, key)) for key in found]


def _unsupported(ask: Ask, key: Key, ancestor: Key) -> Finding | None:
    """Return a finding if the data plane does not support a policy of a Gateway; else None."""
    found = unsupported(ask, ancestor, key) if ancestor[0] == "Gateway" else ()
    return Finding(Reason.POLICY_INVALID, messages(found)[0]) if found else None


def _conditions(policy: api.Policy, refusal: Finding | None) -> tuple[Condition, ...]:
    accepted = Finding(Reason.ACCEPTED, "the policy is accepted")
    return conditions((refusal,) if refusal else (), (accepted,), policy.metadata.generation)
