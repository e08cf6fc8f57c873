"""Translation of HTTPRoute and GRPCRoute rules to IR: one route per match, unordered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gatehouse.apis import routes as api
from gatehouse.compiler.frontends.gateway_api.cluster_key import (
    INFERENCE_POOL,
    X_BACKEND,
    ClusterKey,
)
from gatehouse.compiler.frontends.gateway_api.extensions import (
    backend_traffic_policies,
    effective,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.routes import (
    backend_filters,
    backend_sessions,
    claim_headers,
    durations,
    expressions,
    filters,
    retries,
    security,
)
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    resolve_backend,
    tls_resolved,
)
from gatehouse.compiler.frontends.gateway_api.routes.external_names import external_name
from gatehouse.compiler.frontends.gateway_api.routes.inference_pools import (
    endpoint_picker,
    picker_of,
)
from gatehouse.compiler.frontends.gateway_api.routes.precedence import Rank, call_rank, rank
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import SecretFile
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key


class Ranked(msgspec.Struct, frozen=True):
    """A route of the IR with its precedence within a virtual host."""

    rank: Rank
    route: ir.Route
    owner: Key
    """The HTTPRoute or GRPCRoute."""


class Translated(msgspec.Struct, frozen=True):
    """Translation of a route for one kind of listener."""

    routes: tuple[Ranked, ...] = ()
    clusters: tuple[ClusterKey, ...] = ()
    findings: tuple[Finding, ...] = ()
    services: tuple[Key, ...] = ()
    """The backends and endpoint pickers that exist and are referred to."""
    secrets: tuple[SecretFile, ...] = ()
    """Secrets that authentication refers to."""
    dropped: frozenset[Origin] = frozenset()
    """Origins of IR routes whose rules are invalid."""


def translate(ask: Ask, gateway: Key, key: Key, port: int, protocol: str) -> Translated:
    """Translate a route for listeners of a Gateway."""
    route = ask.read(key)
    if not isinstance(route, api.GRPCRoute | api.HTTPRoute):
        return Translated()
    place = call_rank if isinstance(route, api.GRPCRoute) else rank
    routes: list[Ranked] = []
    clusters: set[ClusterKey] = set()
    findings: list[Finding] = []
    secrets: dict[str, SecretFile] = {}
    dropped: set[Origin] = set()
    patterns = 0
    checks = security.route_checks(ask, gateway, key)
    for index, rule in enumerate(expressions.http_rules(route)):
        own = expressions.number_of_rule(rule)
        patterns += own
        excess = expressions.expressions_message(ask, (gateway, key), patterns) if own else ""
        where, listener = f"rules[{index}]", (port, protocol)
        compiled = _rule(ask, (gateway, key), rule, where, listener, checks, excess)
        findings += compiled.findings
        clusters |= set(compiled.clusters)
        for cluster in compiled.clusters:
            if cluster.kind == INFERENCE_POOL and (picker := _picker(ask, cluster)) is not None:
                clusters.add(picker)
        secrets.update({secret.name: secret for secret in compiled.secrets})
        for number, match in enumerate(rule.matches or (api.RouteMatch(),)):
            name = f"{key[1]}/{key[2]}/{index}/{number}"
            origin = Origin(key[0], key[1], key[2], f"rules[{index}].matches[{number}]")
            dropped |= {origin} if compiled.broken else set()
            routes.append(
                Ranked(
                    place(match, route.metadata, index, number),
                    msgspec.structs.replace(
                        compiled.route,
                        name=name,
                        match=_match(match),
                        origin=origin,
                    ),
                    key,
                )
            )
    return Translated(
        tuple(routes),
        tuple(sorted(cluster for cluster in clusters if ask(tls_resolved, gateway, cluster))),
        tuple(findings),
        tuple(sorted({(entry.kind, entry.namespace, entry.service) for entry in clusters})),
        tuple(secrets[name] for name in sorted(secrets)),
        frozenset(dropped),
    )


def _picker(ask: Ask, pool: ClusterKey) -> ClusterKey | None:
    """Return the cluster of the endpoint picker of an InferencePool."""
    picker: ClusterKey | None = ask(picker_of, pool.namespace, pool.service).cluster
    return picker


class _Rule(msgspec.Struct, frozen=True):
    route: ir.Route
    clusters: tuple[ClusterKey, ...] = ()
    findings: tuple[Finding, ...] = ()
    secrets: tuple[SecretFile, ...] = ()
    broken: bool = False
    """An invalid value makes the whole rule unusable."""


def _rule(
    ask: Ask,
    place: GatewayObject,
    rule: api.RouteRule,
    where: str,
    listener: tuple[int, str],
    checks: security.Checks,
    excess: str = "",
) -> _Rule:
    key = place[1]
    own_filters = filters.compile_filters(ask, place, rule.filters, where, listener)
    compiled_filters = security.with_checks(checks, own_filters, key[1])
    findings = [*compiled_filters.findings, *_invalid_fields(rule, where, excess)]
    only, compiled_filters, conflict = backend_filters.with_only_backend(
        ask, place, rule, where, listener, compiled_filters
    )
    findings += conflict
    if findings:
        return _broken_rule(findings)
    route, secrets = compiled_filters.route, compiled_filters.secrets
    forward = route.action
    if not isinstance(forward, ir.Forward):
        return _Rule(route, compiled_filters.clusters, compiled_filters.notes, secrets)
    backends, failing, own, backend_findings = _backends(ask, place, rule, where, listener)
    findings = [*compiled_filters.notes, *backend_findings]
    clusters = (*own, *compiled_filters.clusters)
    if not backends:
        only = ir.Respond(500, grpc=key[0] == "GRPCRoute")
    if only is not None:
        broken = not backends and _has_invalid_value(backend_findings)
        route = msgspec.structs.replace(route, action=only)
        return _Rule(route, clusters, tuple(findings), secrets, broken)
    limits = _timeouts(rule)
    action = msgspec.structs.replace(
        forward,
        backends=backends,
        failing=failing,
        rewrite=_rewrite(ask, forward.rewrite, backends, clusters),
        request_timeout=limits[0] or 0.0,
        backend_timeout=limits[1] or 0.0,
        unlimited=0.0 in limits and not any(limits),
        retry=retries.retry(rule.retry),
        grpc=key[0] == "GRPCRoute",
    )
    request_headers = _without_claims(ask, route, clusters)
    route = msgspec.structs.replace(route, action=action, request_headers=request_headers)
    return _Rule(route, clusters, tuple(findings), secrets)


def _broken_rule(findings: Sequence[Finding]) -> _Rule:
    """Return a rule that answers 500."""
    return _Rule(
        ir.Route(action=ir.Respond(500)),
        findings=tuple(findings),
        broken=_has_invalid_value(findings),
    )


def _timeouts(rule: api.RouteRule) -> list[float | None]:
    """Return the timeouts of the exchange and of an attempt."""
    timeouts = rule.timeouts or api.Timeouts()
    return [durations.parse_duration(text) for text in (timeouts.request, timeouts.backend_request)]


def _persistence(
    ask: Ask, at: GatewayObject, rule: api.RouteRule, where: str, cluster: ClusterKey
) -> ir.Persistence | None:
    """Return the sessions of a backend: those of the rule, of the XBackend, or of a policy of the
    Service. None: it has none."""
    gateway, key = at
    place = f"{key}/{where}"
    if rule.session_persistence is not None:
        return retries.persistence(rule.session_persistence, place)
    if cluster.kind == X_BACKEND:
        return backend_sessions.own_persistence(ask, cluster)
    target = (cluster.kind, cluster.namespace, cluster.service)
    policy = effective.backend_traffic(ask, gateway, target)
    if policy is None or policy.session is None:
        return None
    origin = policy.origin.field(backend_traffic_policies.SESSION_FIELD)
    return retries.persistence(policy.session, place, origin)


def _rewrite(
    ask: Ask,
    rewrite: ir.Rewrite,
    backends: Iterable[ir.Backend],
    clusters: Iterable[ClusterKey],
) -> ir.Rewrite:
    """Return the rewriting of requests. A host outside the cluster gets its own name as Host, which
    it expects, if all backends have the same one."""
    used = {backend.cluster for backend in backends}
    names = {
        ask(external_name, (cluster.kind, cluster.namespace, cluster.service))
        for cluster in clusters
        if cluster.name in used
    }
    if rewrite.hostname is not None or len(names) != 1 or "" in names:
        return rewrite
    return msgspec.structs.replace(rewrite, hostname=names.pop())


def _without_claims(ask: Ask, route: ir.Route, clusters: Iterable[ClusterKey]) -> ir.HeaderEdit:
    """Return the changes of requests, which remove a client's claim headers for its Services."""
    services = {(cluster.namespace, cluster.service) for cluster in clusters}
    unset = claim_headers.unset(ask, services, route.authentication, route.external_auth)
    return claim_headers.edited(route.request_headers, unset)


def _has_invalid_value(findings: Iterable[Finding]) -> bool:
    return any(finding.reason is Reason.UNSUPPORTED_VALUE for finding in findings)


def _invalid_fields(rule: api.RouteRule, where: str, excess: str) -> list[Finding]:
    """Return a finding for each invalid field. `excess`: message about regular expressions."""
    messages = [*retries.retry_problems(rule, where)]
    if excess:
        messages.append(f"{where}.matches: {excess}")
    timeouts = rule.timeouts or api.Timeouts()
    for field, text in (
        ("request", timeouts.request),
        ("backendRequest", timeouts.backend_request),
    ):
        if text and durations.parse_duration(text) is None:
            messages.append(f"{where}.timeouts.{field}: {text!r} must be a duration")
    for number, match in enumerate(rule.matches):
        place = f"{where}.matches[{number}]"
        if match.path.type not in ("Exact", "PathPrefix", "RegularExpression"):
            messages.append(f"{place}.path.type: {match.path.type} is not supported")
        for kind, named in (("headers", match.headers), ("queryParams", match.query_params)):
            messages += [
                f"{place}.{kind}[{index}].type: {item.type} is not supported"
                for index, item in enumerate(named)
                if item.type not in ("Exact", "RegularExpression")
            ]
    return [Finding(Reason.UNSUPPORTED_VALUE, message) for message in messages]


def _backends(
    ask: Ask, at: GatewayObject, rule: api.RouteRule, where: str, listener: tuple[int, str]
) -> tuple[tuple[ir.Backend, ...], int, tuple[ClusterKey, ...], tuple[Finding, ...]]:
    """Return the valid backends, the weight of the invalid ones, all clusters and findings."""
    backends: list[ir.Backend] = []
    failing = 0
    clusters: list[ClusterKey] = []
    findings: list[Finding] = []
    for index, reference in enumerate(rule.backend_refs):
        place = f"{where}.backendRefs[{index}]"
        cluster = resolve_backend(ask, at, reference, place)
        compiled_filters = filters.compile_filters(ask, at, reference.filters, place, listener)
        problems = [*compiled_filters.findings]
        unsupported = ""
        if reference.filters:
            unsupported = backend_filters.unsupported_on_backend(
                compiled_filters, len(rule.backend_refs)
            )
        if unsupported:
            message = f"{place}.filters: {unsupported}"
            problems.append(Finding(Reason.UNSUPPORTED_VALUE, message))
        findings += problems
        if isinstance(cluster, Finding):
            findings.append(cluster)
        elif not problems:
            clusters.append(cluster)
        if isinstance(cluster, Finding) or problems or not ask(tls_resolved, at[0], cluster):
            failing += reference.weight
        elif reference.weight:
            edits = compiled_filters.route.request_headers, compiled_filters.route.response_headers
            picker = endpoint_picker(ask, cluster) if cluster.kind == INFERENCE_POOL else None
            session = _persistence(ask, at, rule, where, cluster)
            backends.append(ir.Backend(cluster.name, reference.weight, *edits, picker, session))
    return tuple(backends), failing, tuple(clusters), tuple(findings)


def _match(match: api.RouteMatch) -> ir.Match:
    return ir.Match(
        path=translate_path(match.path),
        method=match.method.upper(),
        # The first of several entries with one name applies (HTTPRouteMatch).
        headers=_named(match.headers, lower=True),
        query=_named(match.query_params, lower=False),
    )


def translate_path(path: api.PathMatchSpec) -> ir.PathMatch:
    """Return the path match of the IR."""
    match path.type:
        case "Exact":
            return ir.PathExact(path.value)
        case "RegularExpression":
            return ir.PathRegex(path.value)
    return ir.PathPrefix(path.value.rstrip("/") or "/")


def _named(items: tuple[api.NamedMatch, ...], *, lower: bool) -> tuple[ir.ValueMatch, ...]:
    first: dict[str, ir.ValueMatch] = {}
    for item in items:
        name = item.name.lower() if lower else item.name
        regex = item.type == "RegularExpression"
        first.setdefault(name, ir.ValueMatch(name, item.value, regex))
    return tuple(first.values())
