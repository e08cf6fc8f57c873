"""Backends, endpoints, filters and policies of a matched rule, from the objects. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gatehouse.apis import core, resources, routes
from gatehouse.compiler.evaluation.explanation import (
    AppliedSource,
    ExplainedBackend,
    ExplainedEndpoint,
)
from gatehouse.compiler.frontends.gateway_api.backend_problems import (
    backend_name,
    port_cause,
    slices_of,
)
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.frontends.gateway_api.findings import Finding
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import resolve_backend
from gatehouse.compiler.frontends.gateway_api.routes.backend_tls import backend_tls_at
from gatehouse.compiler.frontends.gateway_api.routes.security import route_checks
from gatehouse.compiler.frontends.gateway_api.routes.service_ports import (
    backend_slices,
    backend_tls_policy,
    cluster_port,
    endpoints_of,
    used_endpoints,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.sessions import policy_sessions
from gatehouse.dataplane.origin import NO_ORIGIN, object_of
from gatehouse.incremental.query import Ask, Key
from kube_base.types.ip_addresses import bracketed

NO_ENDPOINTS_STATUS, INVALID_STATUS = 503, 500


def explain_backends(
    ask: Ask,
    place: tuple[Key, Key],
    references: Sequence[routes.BackendRef],
    where: str,
    empty: frozenset[str],
) -> tuple[ExplainedBackend, ...]:
    """Return the backends of a rule.

    ``place``: Gateway and route. ``where``: path of the rule. ``empty``: names of the clusters
    without endpoints.
    """
    total = sum(reference.weight for reference in references) or 1
    result = []
    for index, reference in enumerate(references):
        share = round(100 * reference.weight / total, 2)
        match = resolve_backend(ask, place, reference, f"{where}.backendRefs[{index}]")
        namespace = reference.namespace or place[1][1]
        name = f"{reference.kind} {namespace}/{reference.name}:{reference.port or ''}".rstrip(":")
        if isinstance(match, Finding):
            result.append(
                ExplainedBackend(
                    name,
                    reference.weight,
                    share,
                    status=INVALID_STATUS,
                    problem=match.message,
                )
            )
            continue
        endpoints, problem, status = service_endpoints(ask, match), "", None
        if match.name in empty:
            backend = f"{reference.kind} {namespace}/{reference.name}"
            problem = f"{backend} has 0 of {len(endpoints)} ready"
            problem = _other_port(ask, match) or f"{problem} endpoints"
            status = NO_ENDPOINTS_STATUS
        if invalid := _invalid_tls(ask, place[0], match):
            problem, status = invalid, INVALID_STATUS
        result.append(ExplainedBackend(name, reference.weight, share, endpoints, status, problem))
    return tuple(result)


def _invalid_tls(ask: Ask, gateway: Key, key: ClusterKey) -> str:
    """Return why the TLS settings of a backend allow no connection; empty if they do."""
    policy = ask(backend_tls_policy, key)
    if policy is None or (resolved := ask(backend_tls_at, gateway, policy)).tls is not None:
        return ""
    return f"{object_of(policy)}: {'; '.join(finding.message for finding in resolved.findings)}"


def _other_port(ask: Ask, key: ClusterKey) -> str:
    """Return that a Service has endpoints, but none with the port; empty for other problems."""
    port = cluster_port(ask, key)
    if not isinstance(port, core.ServicePort):
        return ""
    cause = port_cause(slices_of(ask, key), port.name, key.transport)
    return f"{backend_name(key)}: {cause}" if cause else ""


def service_endpoints(ask: Ask, key: ClusterKey) -> tuple[ExplainedEndpoint, ...]:
    """Return all endpoints of a backend, ready or not, sorted."""
    port = cluster_port(ask, key)
    if not isinstance(port, core.ServicePort):
        return ()
    every, ready = set[ir.Endpoint](), set[ir.Endpoint]()
    for slice_key in backend_slices(ask, key.kind, key.namespace, key.service):
        known, transport = ask.read(slice_key), (port.name, key.transport)
        every |= endpoints_of(known, transport, lambda _: True)
        ready |= endpoints_of(known, transport, lambda conditions: conditions.ready)
    terminating = used_endpoints(ask, key, port) - ready
    result = (
        ExplainedEndpoint(_written(endpoint), endpoint in ready, endpoint in terminating)
        for endpoint in every
    )
    return tuple(sorted(result, key=lambda endpoint: endpoint.address))


def _written(endpoint: ir.Endpoint) -> str:
    return f"{bracketed(endpoint.address)}:{endpoint.port}"


def empty_clusters(
    ask: Ask, compiled: GatewayConfiguration, *, assume_endpoints: bool
) -> frozenset[str]:
    """Return the names of the clusters without endpoints.

    ``assume_endpoints``: a Service without EndpointSlices counts as one with endpoints, as for
    manifests, in which EndpointSlices are missing.
    """
    return frozenset(
        cluster.name
        for cluster in compiled.clusters
        for origin in [cluster.origin]
        if not cluster.endpoints
        and not (
            assume_endpoints and not backend_slices(ask, origin.kind, origin.namespace, origin.name)
        )
    )


def applied_rule(
    key: Key, rule: routes.RouteRule | routes.GrpcRule, where: str
) -> tuple[AppliedSource, ...]:
    """Return the filters of a rule and of its backends, and its other fields, with their places."""
    result = [*_filters(key, rule.filters, where)]
    for index, reference in enumerate(rule.backend_refs):
        result += _filters(key, reference.filters, f"{where}.backendRefs[{index}]")
    for name, value in _rule_fields(rule):
        result.append(AppliedSource(name, str(object_of(key).field(f"{where}.{name}")), value))
    return tuple(result)


def _filters(key: Key, filters: Sequence[routes.Filter], where: str) -> Iterator[AppliedSource]:
    for index, item in enumerate(filters):
        source, detail = str(object_of(key).field(f"{where}.filters[{index}]")), ""
        if item.extension_ref is not None:
            reference = item.extension_ref
            detail = f"{reference.kind} {key[1]}/{reference.name}"
        yield AppliedSource(item.type, source, detail)


def _rule_fields(rule: routes.RouteRule | routes.GrpcRule) -> Iterator[tuple[str, str]]:
    """Yield the fields of a rule that change how requests are forwarded, each with its values."""
    if isinstance(rule, routes.RouteRule):
        times = rule.timeouts or routes.Timeouts()
        timeouts = {"request": times.request, "backendRequest": times.backend_request}
        if any(timeouts.values()):
            yield "timeouts", _values(timeouts)
        if rule.retry is not None:
            attempts = str(rule.retry.attempts or "")
            codes = " ".join(map(str, rule.retry.codes))
            fields = {"attempts": attempts, "codes": codes, "backoff": rule.retry.backoff}
            yield "retry", _values(fields)
    if rule.session_persistence is not None:
        yield "sessionPersistence", rule.session_persistence.type


def _values(fields: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value)


def applied_settings(
    ask: Ask, place: tuple[Key, Key], route: ir.Route, compiled: GatewayConfiguration
) -> tuple[AppliedSource, ...]:
    """Return the settings of policies that apply to a route of the IR and to its clusters, and the
    response headers that no filter of its rule replaces.

    ``place``: Gateway and route.
    """
    names = route.action.clusters if isinstance(route.action, ir.Forward) else frozenset()
    clusters = [cluster for cluster in compiled.clusters if cluster.name in names]
    sourced = (*route.settings.sections.values(), *(cluster.settings for cluster in clusters))
    origins = [origin for entry in sourced for _, origin in entry.sources]
    origins += [limit.origin for limit in route.settings.rates.rules]
    origins += [snippet.origin for snippet in route.snippets]
    if route.settings.tracing is not None:
        origins.append(route.settings.tracing.origin)
    checks = (route.authentication, route.external_auth, route.client_addresses)
    of_policy = resources.SECURITY_POLICIES.kind
    origins += [one.origin for one in checks if one is not None and one.origin.kind == of_policy]
    origins += [session.origin for session in policy_sessions(route)]
    if route.policy_retry is not None:
        origins.append(route.policy_retry.origin)
    known = dict.fromkeys(origin for origin in origins if origin != NO_ORIGIN)
    headers = (
        one for one in route_checks(ask, *place).headers if one.header in route.response_headers.set
    )
    return (
        *(AppliedSource(origin.kind, str(origin)) for origin in known),
        *(
            AppliedSource(
                one.origin.kind, str(one.origin), f"{one.header.name}: {one.header.value}"
            )
            for one in headers
        ),
    )


def applied_tls_policies(
    ask: Ask, place: tuple[Key, Key], references: Sequence[routes.BackendRef]
) -> tuple[AppliedSource, ...]:
    """Return the BackendTLSPolicies and XBackends with the TLS settings of a rule."""
    result = {}
    for reference in references:
        match = resolve_backend(ask, place, reference, "")
        policy = backend_tls_policy(ask, match) if isinstance(match, ClusterKey) else None
        if policy is not None:
            result[policy] = AppliedSource(policy[0], str(object_of(policy)))
    return tuple(result.values())
