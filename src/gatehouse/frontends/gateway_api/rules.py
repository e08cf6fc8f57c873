"""The rules of an HTTPRoute as the IR's routes: one for each match, not yet in order."""

from __future__ import annotations

import msgspec

from gatehouse.apis import gateway
from gatehouse.frontends.gateway_api import durations, filters
from gatehouse.frontends.gateway_api.backends import ClusterKey, resolve
from gatehouse.frontends.gateway_api.filters import Filters
from gatehouse.frontends.gateway_api.findings import Finding, Reason
from gatehouse.frontends.gateway_api.precedence import Rank, rank
from gatehouse.ir import http as ir
from gatehouse.query import Ask, Key


class Ranked(msgspec.Struct, frozen=True):
    """A route with its place in the order of all routes of a virtual host."""

    rank: Rank
    route: ir.Route


class Translated(msgspec.Struct, frozen=True):
    """Everything that a route's rules mean on one kind of listener."""

    routes: tuple[Ranked, ...] = ()
    clusters: tuple[ClusterKey, ...] = ()
    findings: tuple[Finding, ...] = ()
    whole: bool = True
    """Whether at least one rule is served as asked."""


def translate(ask: Ask, which: tuple[Key, int, str]) -> Translated:
    """Translate the route at ``which[0]`` for listeners of port ``which[1]``, protocol ``[2]``."""
    key, port, protocol = which
    route = ask.read(key)
    if not isinstance(route, gateway.HTTPRoute):
        return Translated()
    routes: list[Ranked] = []
    clusters: set[ClusterKey] = set()
    findings: list[Finding] = []
    served = 0
    for index, rule in enumerate(route.spec.rules):
        compiled = _rule(ask, key, rule, f"rules[{index}]", port, protocol)
        findings += compiled.findings
        clusters |= set(compiled.clusters)
        served += not compiled.broken
        for number, match in enumerate(rule.matches or (gateway.RouteMatch(),)):
            name = f"{key[1]}/{key[2]}/{index}/{number}"
            routes.append(
                Ranked(
                    rank(match, route.metadata, index, number),
                    msgspec.structs.replace(compiled.route, name=name, match=_match(match)),
                )
            )
    return Translated(tuple(routes), tuple(sorted(clusters)), tuple(findings), served > 0)


class _Rule(msgspec.Struct, frozen=True):
    route: ir.Route
    clusters: tuple[ClusterKey, ...] = ()
    findings: tuple[Finding, ...] = ()
    broken: bool = False


def _rule(
    ask: Ask, key: Key, rule: gateway.RouteRule, where: str, port: int, protocol: str
) -> _Rule:
    asked = filters.compile_filters(ask, key[1], rule.filters, where)
    findings = [*asked.findings, *_unserved(rule, where)]
    if findings:
        broken = ir.Route("", ir.Match(), ir.Respond(500))
        unsupported = any(found.reason is Reason.UNSUPPORTED_VALUE for found in findings)
        return _Rule(broken, findings=tuple(findings), broken=unsupported)
    if asked.redirect is not None:
        action: ir.Action = filters.redirect(asked.redirect, port, protocol)
        return _Rule(_route(action, asked))
    backends, clusters, backend_findings = _backends(ask, key[1], rule, where)
    timeouts = rule.timeouts or gateway.Timeouts()
    action = ir.Forward(
        backends=backends,
        rewrite=asked.rewrite,
        request_timeout=durations.seconds(timeouts.request) or 0.0,
        backend_timeout=durations.seconds(timeouts.backend_request) or 0.0,
    )
    return _Rule(_route(action, asked), clusters, backend_findings)


def _route(action: ir.Action, asked: Filters) -> ir.Route:
    return ir.Route(
        name="",
        match=ir.Match(),
        action=action,
        request_headers=asked.request_headers,
        response_headers=asked.response_headers,
        snippet=asked.snippet,
    )


def _unserved(rule: gateway.RouteRule, where: str) -> list[Finding]:
    """Give a finding for each field that would be silently ignored otherwise."""
    messages = []
    if rule.retry is not None:
        messages.append(f"{where}.retry is not served yet")
    if rule.session_persistence is not None:
        messages.append(f"{where}.sessionPersistence is not served yet")
    timeouts = rule.timeouts or gateway.Timeouts()
    for field, text in (
        ("request", timeouts.request),
        ("backendRequest", timeouts.backend_request),
    ):
        if text and durations.seconds(text) is None:
            messages.append(f"{where}.timeouts.{field}: {text!r} is no duration")
    for number, match in enumerate(rule.matches):
        place = f"{where}.matches[{number}]"
        if match.path.type not in ("Exact", "PathPrefix", "RegularExpression"):
            messages.append(f"{place}.path.type {match.path.type} is not known")
        for kind, named in (("headers", match.headers), ("queryParams", match.query_params)):
            messages += [
                f"{place}.{kind}[{index}].type {item.type} is not known"
                for index, item in enumerate(named)
                if item.type not in ("Exact", "RegularExpression")
            ]
    return [Finding(Reason.UNSUPPORTED_VALUE, message) for message in messages]


def _backends(
    ask: Ask, namespace: str, rule: gateway.RouteRule, where: str
) -> tuple[tuple[ir.Backend, ...], tuple[ClusterKey, ...], tuple[Finding, ...]]:
    backends: list[ir.Backend] = []
    clusters: list[ClusterKey] = []
    findings: list[Finding] = []
    for index, reference in enumerate(rule.backend_refs):
        place = f"{where}.backendRefs[{index}]"
        found = resolve(ask, namespace, reference, place)
        asked = filters.compile_filters(ask, namespace, reference.filters, place)
        troubles = [*asked.findings]
        if asked.redirect is not None or asked.snippet or asked.rewrite != ir.Rewrite():
            message = f"{place}.filters: only header modifiers are served on a backend"
            troubles.append(Finding(Reason.UNSUPPORTED_VALUE, message))
        name = ""
        if isinstance(found, Finding):
            troubles.append(found)
        elif not troubles:
            name = found.name
            clusters.append(found)
        findings += troubles
        backends.append(
            ir.Backend(name, reference.weight, asked.request_headers, asked.response_headers)
        )
    return tuple(backends), tuple(clusters), tuple(findings)


def _match(match: gateway.RouteMatch) -> ir.Match:
    return ir.Match(
        path=_path(match.path),
        method=match.method.upper(),
        # Of several entries with one name the first counts (HTTPRouteMatch).
        headers=_named(match.headers, lower=True),
        query=_named(match.query_params, lower=False),
    )


def _path(path: gateway.PathMatch) -> ir.PathMatch:
    match path.type:
        case "Exact":
            return ir.PathExact(path.value)
        case "RegularExpression":
            return ir.PathRegex(path.value)
    return ir.PathPrefix(path.value.rstrip("/") or "/")


def _named(items: tuple[gateway.NamedMatch, ...], *, lower: bool) -> tuple[ir.ValueMatch, ...]:
    first: dict[str, ir.ValueMatch] = {}
    for item in items:
        name = item.name.lower() if lower else item.name
        regex = item.type == "RegularExpression"
        first.setdefault(name, ir.ValueMatch(name, item.value, regex))
    return tuple(first.values())
