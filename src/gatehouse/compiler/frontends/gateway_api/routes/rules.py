"""Translation of HTTPRoute and GRPCRoute rules to IR: one route per match, unordered."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.apis import routes as api
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.routes import durations, filters, grpc, retries
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    ClusterKey,
    resolve,
    tls_resolved,
)
from gatehouse.compiler.frontends.gateway_api.routes.filters import Filters
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
    services: tuple[tuple[str, str], ...] = ()
    """The Services that exist and are referred to."""
    secrets: tuple[SecretFile, ...] = ()
    """Secrets that authentication refers to."""
    dropped: frozenset[Origin] = frozenset()
    """Origins of IR routes whose rules are invalid."""


def translate(ask: Ask, which: tuple[Key, int, str]) -> Translated:
    """Translate the route at ``which[0]`` for listeners of port ``which[1]``, protocol ``[2]``."""
    key, port, protocol = which
    route = ask.read(key)
    if isinstance(route, api.GRPCRoute):
        rules, place = tuple(grpc.as_http(rule) for rule in route.spec.rules), call_rank
    elif isinstance(route, api.HTTPRoute):
        rules, place = route.spec.rules, rank
    else:
        return Translated()
    routes: list[Ranked] = []
    clusters: set[ClusterKey] = set()
    findings: list[Finding] = []
    secrets: dict[str, SecretFile] = {}
    dropped: set[Origin] = set()
    for index, rule in enumerate(rules):
        compiled = _rule(ask, key, rule, f"rules[{index}]", port, protocol)
        findings += compiled.findings
        clusters |= set(compiled.clusters)
        secrets.update({each.name: each for each in compiled.secrets})
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
        tuple(sorted(each for each in clusters if ask(tls_resolved, each))),
        tuple(findings),
        tuple(sorted({(each.namespace, each.service) for each in clusters})),
        tuple(secrets[name] for name in sorted(secrets)),
        frozenset(dropped),
    )


class _Rule(msgspec.Struct, frozen=True):
    route: ir.Route
    clusters: tuple[ClusterKey, ...] = ()
    findings: tuple[Finding, ...] = ()
    secrets: tuple[SecretFile, ...] = ()
    broken: bool = False
    """An invalid value makes the whole rule unusable."""


def _rule(ask: Ask, key: Key, rule: api.RouteRule, where: str, port: int, protocol: str) -> _Rule:
    compiled_filters = filters.compile_filters(ask, key, rule.filters, where)
    findings = [*compiled_filters.findings, *_invalid_fields(rule, where)]
    if findings:
        broken = ir.Route("", ir.Match(), ir.Respond(500))
        return _Rule(broken, findings=tuple(findings), broken=_has_invalid_value(findings))
    if compiled_filters.redirect is not None:
        action: ir.Action = filters.redirect(compiled_filters.redirect, port, protocol)
        return _Rule(_route(action, compiled_filters), secrets=compiled_filters.secrets)
    backends, failing, clusters, backend_findings = _backends(ask, key, rule, where)
    findings = [*compiled_filters.notes, *backend_findings]
    clusters = (*clusters, *compiled_filters.clusters)
    if not backends:
        response = ir.Respond(500, grpc=key[0] == "GRPCRoute")
        return _Rule(
            _route(response, compiled_filters),
            clusters,
            tuple(findings),
            compiled_filters.secrets,
            _has_invalid_value(backend_findings),
        )
    timeouts = rule.timeouts or api.Timeouts()
    limits = [durations.seconds(text) for text in (timeouts.request, timeouts.backend_request)]
    action = ir.Forward(
        backends=backends,
        failing=failing,
        rewrite=compiled_filters.rewrite,
        request_timeout=limits[0] or 0.0,
        backend_timeout=limits[1] or 0.0,
        unlimited=0.0 in limits and not any(limits),
        mirrors=compiled_filters.mirrors,
        retry=retries.retry(rule.retry),
        persistence=retries.persistence(rule.session_persistence, f"{key}/{where}"),
        grpc=key[0] == "GRPCRoute",
    )
    return _Rule(
        _route(action, compiled_filters), clusters, tuple(findings), compiled_filters.secrets
    )


def _has_invalid_value(findings: Iterable[Finding]) -> bool:
    return any(found.reason is Reason.UNSUPPORTED_VALUE for found in findings)


def _route(action: ir.Action, compiled_filters: Filters) -> ir.Route:
    return ir.Route(
        name="",
        match=ir.Match(),
        action=action,
        request_headers=compiled_filters.request_headers,
        response_headers=compiled_filters.response_headers,
        cors=compiled_filters.cors,
        authentication=compiled_filters.authentication,
        snippets=compiled_filters.snippets,
    )


def _invalid_fields(rule: api.RouteRule, where: str) -> list[Finding]:
    """Return a finding for each invalid field."""
    messages = []
    messages += retries.problems(rule, where)
    timeouts = rule.timeouts or api.Timeouts()
    for field, text in (
        ("request", timeouts.request),
        ("backendRequest", timeouts.backend_request),
    ):
        if text and durations.seconds(text) is None:
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
    ask: Ask, route: Key, rule: api.RouteRule, where: str
) -> tuple[tuple[ir.Backend, ...], int, tuple[ClusterKey, ...], tuple[Finding, ...]]:
    """Return the valid backends, the weight of the invalid ones, all clusters and findings."""
    backends: list[ir.Backend] = []
    failing = 0
    clusters: list[ClusterKey] = []
    findings: list[Finding] = []
    for index, reference in enumerate(rule.backend_refs):
        place = f"{where}.backendRefs[{index}]"
        found = resolve(ask, route, reference, place)
        compiled_filters = filters.compile_filters(ask, route, reference.filters, place)
        problems = [*compiled_filters.findings]
        if compiled_filters != _supported_on_backend(compiled_filters):
            message = f"{place}.filters: only header modifiers are supported for backends"
            problems.append(Finding(Reason.UNSUPPORTED_VALUE, message))
        findings += problems
        if isinstance(found, Finding):
            findings.append(found)
        elif not problems:
            clusters.append(found)
        if isinstance(found, Finding) or problems or not ask(tls_resolved, found):
            failing += reference.weight
        elif reference.weight:
            edits = compiled_filters.request_headers, compiled_filters.response_headers
            backends.append(ir.Backend(found.name, reference.weight, *edits))
    return tuple(backends), failing, tuple(clusters), tuple(findings)


def _supported_on_backend(compiled_filters: Filters) -> Filters:
    """Return only those filters that are supported for backends."""
    return Filters(
        request_headers=compiled_filters.request_headers,
        response_headers=compiled_filters.response_headers,
        findings=compiled_filters.findings,
    )


def _match(match: api.RouteMatch) -> ir.Match:
    return ir.Match(
        path=_path(match.path),
        method=match.method.upper(),
        # The first of several entries with one name applies (HTTPRouteMatch).
        headers=_named(match.headers, lower=True),
        query=_named(match.query_params, lower=False),
    )


def _path(path: api.PathMatch) -> ir.PathMatch:
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
