"""Ports of Services without an endpoint that gets requests, and the reason.

References to such a port are resolved, so that the condition `ResolvedRefs` stays True. Its message
has the reason. The controller decides when a problem is reported, by an input: endpoints may come
and go all the time, and a Service may have thousands of routes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import astuple

from gatehouse.apis import core, routes
from gatehouse.compiler.frontends.gateway_api import dependencies
from gatehouse.compiler.frontends.gateway_api.cluster_key import INFERENCE_POOL, SERVICE, ClusterKey
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    BackendReference,
    GatewayCluster,
)
from gatehouse.compiler.frontends.gateway_api.routes.service_ports import (
    ALL_PORTS,
    backend_slices,
    cluster_port,
)
from gatehouse.compiler.frontends.gateway_api.translate import gateway_cluster
from gatehouse.compiler.frontends.shortened_lists import shortened_list
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

_Rule = routes.RouteRule | routes.GrpcRule | routes.StreamRule

_weight = operator.attrgetter("weight")

MAX_REPORTED = 3
"""Maximum number of backends that the message of a condition names."""


class BackendProblem(msgspec.Struct, frozen=True):
    """Why no endpoint of a Service port gets requests."""

    backend: Key
    """The backend."""
    text: str
    """Message that names the backend and the port. It has no numbers of endpoints, so that it
    changes only if the cause does."""


def backend_problem_key(gateway: Key, cluster: ClusterKey) -> Key:
    """Return the key of the reported text about a backend of a Gateway; None: it has no problem."""
    return ("BackendProblem", gateway[1], gateway[2], *astuple(cluster))


def backend_problems(ask: Ask, gateway: Key) -> Table[tuple[str, ClusterKey], BackendProblem]:
    """Return the problems of a Gateway's backends as they are now."""
    return ask.map(_backend_problem, ask(dependencies.clusters_of_gateway, gateway))


def _backend_problem(ask: Ask, cluster: GatewayCluster) -> BackendProblem | None:
    if ask(gateway_cluster, cluster).endpoints:
        return None
    key = cluster[1]
    port = cluster_port(ask, key)
    if not isinstance(port, core.ServicePort):
        return None
    cause = endpoints_cause(slices_of(ask, key), port.name, key)
    return BackendProblem((key.kind, key.namespace, key.service), f"{backend_name(key)}: {cause}")


def slices_of(ask: Ask, key: ClusterKey) -> list[core.EndpointSlice]:
    """Return the EndpointSlices of a backend."""
    slices = (
        ask.read(entry) for entry in backend_slices(ask, key.kind, key.namespace, key.service)
    )
    return [entry for entry in slices if isinstance(entry, core.EndpointSlice)]


def backend_name(key: ClusterKey) -> str:
    """Return the name of a backend with its port in messages."""
    if key.kind == INFERENCE_POOL:
        return f"{key.kind} {key.namespace}/{key.service}"
    suffix = "/UDP" if key.transport == "UDP" else ""
    return f"{key.kind} {key.namespace}/{key.service} port {key.port}{suffix}"


def endpoints_cause(slices: Iterable[core.EndpointSlice], name: str, key: ClusterKey) -> str:
    """Return why no endpoint of a backend gets requests. ``name``: that of the Service port."""
    filled = [entry for entry in slices if entry.endpoints and not entry.has_names]
    if not filled:
        is_service = key.kind == SERVICE
        return "the Service has no endpoints" if is_service else "no Pod has the labels"
    return port_cause(filled, name, key.transport) or "none of its endpoints is ready"


def port_cause(slices: Iterable[core.EndpointSlice], name: str, transport: str) -> str:
    """Return that endpoints exist, but no EndpointSlice has the Service port; empty otherwise.

    A port of an EndpointSlice belongs to a Service port if the names are equal, whatever the
    numbers are.
    """
    filled = [entry for entry in slices if entry.endpoints and not entry.has_names]
    ports = {(port.protocol, port.name) for entry in filled for port in entry.ports if port.port}
    if not filled or name == ALL_PORTS or (transport, name) in ports:
        return ""
    known = ", ".join(sorted(_port_name(*port) for port in ports)) or "none"
    own = _port_name(transport, name)
    return f"no EndpointSlice of the Service has the port {own}; their ports: {known}"


def _port_name(transport: str, name: str) -> str:
    return f"{name!r} ({transport})" if name else f"without name ({transport})"


def reported_problems(
    ask: Ask, gateway: Key, route: routes.RouteObject, clusters: Iterable[ClusterKey]
) -> str:
    """Return the reported problems of a route's backends that should get requests, as a suffix."""
    texts = {cluster: ask.read(backend_problem_key(gateway, cluster)) for cluster in clusters}
    if not any(texts.values()):
        return ""
    namespace = route.metadata.namespace
    used = {
        (
            reference.kind,
            reference.namespace or namespace,
            reference.name,
            reference.port if reference.kind == SERVICE else None,
        )
        for reference in used_references(route)
    }
    relevant = dict.fromkeys(
        text for cluster, text in sorted(texts.items()) if text and _as_referred(cluster) in used
    )
    more = len(relevant) - MAX_REPORTED
    suffix = f"; and {more} more" if more > 0 else ""
    return "".join(f"; {text}" for text in list(relevant)[:MAX_REPORTED]) + suffix


def _as_referred(key: ClusterKey) -> tuple[str, str, str, int | None]:
    """Return kind, namespace, name and port as references have them. Those of Services have one."""
    port = key.port if key.kind == SERVICE else None
    return key.kind, key.namespace, key.service, port


def used_references(route: routes.RouteObject) -> Iterator[BackendReference]:
    """Yield the references of a route that should get requests, with those of its filters: mirrors
    and authorization servers."""
    rules: Iterable[_Rule] = route.spec.rules
    for rule in rules:
        if not isinstance(rule, routes.StreamRule):
            yield from routes.filter_references(rule.filters)
        for reference in rule.backend_refs:
            if reference.weight:
                yield reference
                yield from routes.filter_references(reference.filters)


def weight_problems(route: routes.RouteObject) -> str:
    """Return the rules whose backends all have the weight 0, as a suffix of a message.

    Their requests are answered 500, and connections are closed, as specified.
    """
    all_rules: Iterable[_Rule] = route.spec.rules
    weights = [[*map(_weight, rule.backend_refs)] for rule in all_rules]
    if all(map(any, weights)):
        return ""
    # A rule without backends has filters that answer.
    bad = [index for index, own in enumerate(weights) if own and not any(own)]
    if not bad:
        return ""
    rules = [f"rules[{index}].backendRefs" for index in bad]
    return f"; {shortened_list(rules, MAX_REPORTED)}: {ALL_WEIGHTS_ZERO}"


ALL_WEIGHTS_ZERO = "all weights are 0, so that no backend gets requests"
"""Text about a rule in the message of a good condition."""
