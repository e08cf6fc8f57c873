"""Statuses of InferencePools, with an entry for each Gateway whose routes refer to them."""

from __future__ import annotations

from gatehouse.apis import inference, routes
from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import attachments
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import routes_by_service
from gatehouse.compiler.frontends.gateway_api.reference_grants import permitted
from gatehouse.compiler.frontends.gateway_api.routes.inference_pools import (
    is_pool_reference,
    picker_of,
    pool_reference,
)
from gatehouse.compiler.frontends.gateway_api.routes.pod_selections import (
    PodSelection,
    missing_service,
    selecting_service,
)
from gatehouse.compiler.frontends.gateway_api.status.ancestors import ancestor_entry
from gatehouse.compiler.frontends.gateway_api.status.types import MAX_PARENTS, PolicyStatus
from gatehouse.incremental.query import Ask, Key


def pool_status(ask: Ask, key: Key) -> PolicyStatus | None:
    """Return the desired status of an InferencePool."""
    pool = ask.read(key)
    if not isinstance(pool, inference.InferencePool):
        return None
    parents = sorted(ask(_parents, key).items())[:MAX_PARENTS]
    picker = ask(picker_of, key[1], key[2])
    message = f"the InferencePool is accepted{missing_service(ask, key)}"
    entries = []
    for gateway, accepted in parents:
        findings = []
        if not accepted:
            refused = "the Gateway accepts no route that refers to the InferencePool"
            findings.append(Finding(Reason.POOL_ROUTE_NOT_ACCEPTED, refused))
        if picker.problem:
            findings.append(Finding(Reason.INVALID_PICKER, picker.problem))
        entries.append(ancestor_entry(ask, gateway, message, findings, pool.metadata.generation))
    return PolicyStatus(tuple(entries), MAX_PARENTS, ("parents", "parentRef"))


def _parents(ask: Ask, key: Key) -> dict[Key, bool]:
    """Return the Gateways whose routes may refer to a pool, and whether one is accepted there."""
    result: dict[Key, bool] = {}
    for route in ask.read(routes_by_service(key[1], key[2])):
        if not _refers(ask.read(route), key) or not ask(
            permitted, pool_reference(route, (key[1], key[2]))
        ):
            continue
        for entry in ask(attachments, route):
            result[entry.gateway] = result.get(entry.gateway, False) or entry.refusal is None
    return result


def _refers(route: object, key: Key) -> bool:
    """Return whether a rule of an HTTPRoute or GRPCRoute has a pool as a backend."""
    if not isinstance(route, routes.HTTPRoute | routes.GRPCRoute):
        return False
    own = route.metadata.namespace
    return any(
        is_pool_reference(reference)
        and (reference.namespace or own, reference.name) == (key[1], key[2])
        for rule in route.spec.rules
        for reference in rule.backend_refs
    )


def desired_pool_service(ask: Ask, key: Key) -> PodSelection | None:
    """Return the Service that the controller writes for an InferencePool; None if no Gateway
    serves it."""
    selection: PodSelection | None = ask(selecting_service, key)
    if selection is None:
        return None
    return selection if any(ask(_parents, key).values()) else None
