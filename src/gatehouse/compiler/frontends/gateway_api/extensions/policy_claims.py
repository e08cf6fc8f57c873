"""Claims of policies: their sums in a namespace and at a Gateway have ceilings.

The sum of a namespace includes all its policies. The sum of a Gateway includes those that it
serves, which namespaces share by :mod:`~gatehouse.compiler.frontends.gateway_api.fair_shares`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gatehouse.apis import core, routes
from gatehouse.apis import nginx_gateway as api
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api import fair_shares
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import parent_results
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import gateway_limits
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    COUNTED_ZONE_BYTES,
    TrafficSettings,
)
from gatehouse.compiler.frontends.gateway_api.extensions.policy_parsing import (
    age_of,
    parse_policy,
)
from gatehouse.compiler.frontends.gateway_api.inputs import (
    CLAIMS_KEY,
    policies_with_claims,
    routes_by_service,
)
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.ir.settings import MAX_CHECKED_ENDPOINTS, UpstreamSettings
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

_PER_NAMESPACE, _PER_GATEWAY = "PerNamespace", "PerGateway"
_SUMMED = ("zoneBytes", "keepAliveConnections")
"""Names of the ceilings whose claims are added up."""


def claims_message(ask: Ask, gateway: Key, key: Key) -> str:
    """Return the message about a policy that claims more than is left at a Gateway; else empty."""
    limits = ask(gateway_limits, gateway)
    if excess := ask(excess_claims, limits, key[1]).get(key):
        return excess
    return "; ".join(
        f"spec.{field}: {amount} in addition to other claims at Gateway {gateway[1]}/{gateway[2]}: "
        f"{limits.exceeded(exceeded + _PER_GATEWAY, 'sum')}"
        for exceeded in ask(gateway_excess, gateway).get(key, ())
        for field, amount in [ask(policy_claims, limits, key)[exceeded]]
    )


def excess_claims(ask: Ask, limits: ResourceLimits, namespace: str) -> Mapping[Key, str]:
    """Return the policies that claim more than is left for their namespace, each with a message.

    Older policies are served first. A policy with an invalid field claims nothing.
    """
    total, excess = Counter[str](), dict[Key, str]()
    for key in sorted(ask.read(policies_with_claims(namespace)), key=lambda key: age_of(ask, key)):
        own = ask(policy_claims, limits, key)
        messages = [
            f"spec.{field}: {amount} in addition to {total[name]} of older policies in namespace "
            f"{namespace}: {message}"
            for name, (field, amount) in own.items()
            if (message := limits.excess(name + _PER_NAMESPACE, total[name] + amount))
        ]
        if messages:
            excess[key] = "; ".join(messages)
        else:
            total.update({name: amount for name, (_, amount) in own.items()})
    return excess


def policy_claims(ask: Ask, limits: ResourceLimits, key: Key) -> Mapping[str, tuple[str, int]]:
    """Return what a policy claims of each ceiling of sums: field and amount."""
    parsed = ask(parse_policy, limits, key).settings
    if not isinstance(parsed, TrafficSettings):
        return {}
    if parsed.rates.limits:
        zones = sum(limit.memory for limit in parsed.rates.limits)
        return {"zoneBytes": ("rateLimit.local.rules", zones)}
    # Each port of a Service can be an upstream of its own.
    services = (ask.read((target.kind, key[1], target.name)) for target in ask.read(key).targets)
    upstreams = sum(
        len(service.spec.ports) for service in services if isinstance(service, core.Service)
    )
    upstream = parsed.upstream
    counted = upstream.source("endpoint_connections").part or upstream.source("passive_checks").part
    amounts = {
        "zoneBytes": (
            (counted, COUNTED_ZONE_BYTES)
            if counted
            else (upstream.source("nginx.memory").part, upstream.nginx.memory)
        ),
        "keepAliveConnections": _idle_connections(upstream),
    }
    return {
        name: (field, amount * upstreams) for name, (field, amount) in amounts.items() if amount
    }


def _idle_connections(upstream: UpstreamSettings) -> tuple[str, int]:
    """Return the field and the number of idle connections to the endpoints of a Service port.

    A proxy keeps the connections of its checks.
    """
    own, field = upstream.connections or 0, upstream.source("connections").part
    if upstream.active_checks is None:
        return field, own
    return upstream.source("active_checks").part, own + MAX_CHECKED_ENDPOINTS


def gateway_excess(ask: Ask, gateway: Key) -> Mapping[Key, tuple[str, ...]]:
    """Return the policies whose claims do not fit into a Gateway, each with what it exceeds."""
    limits = ask(gateway_limits, gateway)
    ceilings = {name: limits.of(name + _PER_GATEWAY) for name in _SUMMED}
    amounts = {
        key: {name: amount for name, (_, amount) in ask(policy_claims, limits, key).items()}
        for key in ask.entry(_policies_by_gateway, key=gateway) or ()
    }
    if all(
        sum(own.get(name, 0) for own in amounts.values()) <= ceiling
        for name, ceiling in ceilings.items()
    ):
        return {}
    claims = (
        fair_shares.SharedClaim(age_of(ask, key), own)
        for key, own in amounts.items()
        if key not in ask(excess_claims, limits, key[1])
    )
    return fair_shares.exceeding_claims(claims, ceilings)


def _policies_by_gateway(ask: Ask) -> Table[Key, tuple[Key, ...]]:
    """Return the policies with claims that each Gateway serves."""
    return ask.group_by(ask.map(_gateways_of, ask.read(CLAIMS_KEY)), lambda _, gateways: gateways)


def _gateways_of(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the Gateways that serve a policy: those of its targets, sorted."""
    policy = ask.read(key)
    if not isinstance(policy, api.AttachedPolicy):
        return ()
    gateways: set[Key] = set()
    for target in policy.targets:
        where: Key = (target.kind, key[1], target.name)
        match target.kind:
            case "Gateway":
                gateways.add(where)
            case "Service":
                for route in _referring_routes(ask, where):
                    gateways |= _attached_to(ask, route)
            case _:
                gateways |= _attached_to(ask, where)
    return tuple(sorted(gateways))


def _referring_routes(ask: Ask, service: Key) -> Iterable[Key]:
    """Return the routes with a permitted reference to a Service."""
    target = ("Service", service[1], service[2])
    for route in ask.read(routes_by_service(*service[1:])):
        if ask(permitted, Reference(GATEWAY_API_GROUP, route[0], route[1], "", *target)):
            yield route


def _attached_to(ask: Ask, route: Key) -> set[Key]:
    if not isinstance(ask.read(route), routes.RouteObject):
        return set()
    return {entry.gateway for entry in ask(parent_results, route) if entry.refusal is None}
