"""Explanations of requests: the decision on the IR, with what the objects say about it. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import msgspec

from gatehouse.apis import gateway, routes
from gatehouse.compiler.evaluation import answers, causes
from gatehouse.compiler.evaluation.backend_facts import (
    applied_rule,
    applied_settings,
    applied_tls_policies,
    empty_clusters,
    explain_backends,
)
from gatehouse.compiler.evaluation.explanation import (
    ExpectedResponse,
    ExplainedListener,
    Explanation,
    RuledOutMatch,
    UnattachedRoute,
)
from gatehouse.compiler.evaluation.http_matching import (
    HttpDecision,
    decide_http,
    matches_target,
    most_specific,
)
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.compiler.evaluation.listener_facts import filter_notes, filter_problems
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.gateway_api import ENVOY, NGINX, gateway_addresses
from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import (
    attachments,
)
from gatehouse.compiler.frontends.gateway_api.attachment.named_routes import routes_of
from gatehouse.compiler.frontends.gateway_api.classes import class_controller
from gatehouse.compiler.frontends.gateway_api.inputs import ROUTES_KEY, unsupported_key
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import (
    ListenerState,
    ordered_listeners,
)
from gatehouse.compiler.frontends.gateway_api.routes import grpc
from gatehouse.compiler.frontends.gateway_api.routes.rules import translate, translate_path
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.grpc_status import grpc_status_name, grpc_status_of
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Ask, Key

HTTP_KINDS = ("HTTPRoute", "GRPCRoute")

RULE_PLACE = re.compile(r"(?P<rule>rules\[(?P<number>\d+)\])(\.|:|$)")
"""Start of the place of a match or finding: its rule."""


def explain_http(ask: Ask, key: Key, request: HttpRequest, assume_endpoints: bool) -> Explanation:
    """Return the explanation of the answer of one Gateway to a request.

    ``assume_endpoints``: Services without EndpointSlices have endpoints.
    """
    compiled = ask(combined.compile_combined_gateway, key)
    base = explanation_base(ask, key, http_text(request))
    if compiled is None:
        return unserved_gateway(ask, key, base)
    encoded = base.controller == ENVOY
    missing: list[Unsupported] = []

    def is_missing(route: http.Route) -> bool:
        rejected = [finding for finding in _unsupported(ask, key, route) if finding.in_match]
        missing.extend(rejected)
        return bool(rejected)

    decision = decide_http(compiled, request, encoded_patterns=encoded, is_missing=is_missing)
    listeners = _listeners(ask, key, request.port)
    if decision.listener is None:
        answer = missing_port(listeners, request, base)
        if any(listener.port == request.port for listener in compiled.api_listeners):
            where = f"port {request.port} serves kube-apiservers"
            cause = f"{where}: see gatehouse explain kube-request"
            answer = ExpectedResponse("forwarded", cause)
        return msgspec.structs.replace(base, answer=answer)
    unattached = unattached_routes(ask, key, request.hostname, request.port, target=request.target)
    base = msgspec.structs.replace(
        base,
        listener=_selected_listener(listeners, decision, request),
        hostname=decision.virtual_host.hostname if decision.virtual_host else None,
        ruled_out=tuple(_ruled_out(missing, decision)),
        unattached=unattached,
        notes=filter_notes(decision.virtual_host),
    )
    if decision.route is None:
        missing += _invalid_expressions(ask, key, decision)
        rejected = "; ".join(f"{finding.origin}: {finding.reason}" for finding in missing)
        cause = rejected or causes.unmatched_cause(decision, request, unattached)
        answer = _unmatched(compiled, decision, request, cause, every_call=encoded)
        return msgspec.structs.replace(base, answer=answer)
    empty = empty_clusters(ask, compiled, assume_endpoints=assume_endpoints)
    return _matched(ask, (key, request, empty), compiled, decision, base)


def _ruled_out(missing: Iterable[Unsupported], decision: HttpDecision) -> Iterator[RuledOutMatch]:
    """Yield the matches that do not apply, those first that the data plane lacks."""
    yield from (RuledOutMatch(str(finding.origin), (finding.reason,)) for finding in missing)
    for candidate in decision.mismatches:
        fields = tuple(field.text for field in candidate.fields)
        yield RuledOutMatch(str(candidate.route.origin), fields)


def _invalid_expressions(ask: Ask, key: Key, decision: HttpDecision) -> Iterable[Unsupported]:
    """Yield the findings about matches that only an invalid regular expression rules out."""
    for mismatch in decision.mismatches:
        if all(field.invalid for field in mismatch.fields):
            findings = _unsupported(ask, key, mismatch.route)
            yield from (finding for finding in findings if not finding.served)


def http_text(request: HttpRequest) -> str:
    """Return a request as one line."""
    scheme = "https" if request.tls else "http"
    return f"{request.method} {scheme}://{request.host}{request.target} to port {request.port}"


def explanation_base(ask: Ask, key: Key, request: str) -> Explanation:
    """Return an explanation with the facts about the Gateway."""
    return Explanation(
        request,
        f"{key[1]}/{key[2]}",
        ask.read(key).spec.gateway_class_name,
        ask(class_controller, key),
        ExpectedResponse("no-answer", ""),
        ask(gateway_addresses, key),
    )


def unserved_gateway(ask: Ask, key: Key, base: Explanation) -> Explanation:
    """Return the explanation for a Gateway without configuration."""
    status = combined.desired_status(ask, key)
    conditions = getattr(status, "conditions", ())
    bad = [candidate for candidate in conditions if candidate.status == "False"]
    why = bad[0].message if bad else "no controller manages it"
    cause = f"no answer: Gateway {base.gateway} is not served: {why}"
    return msgspec.structs.replace(base, answer=ExpectedResponse("no-answer", cause))


def _listeners(ask: Ask, key: Key, port: int) -> tuple[ListenerState, ...]:
    return tuple(state for state in ask(ordered_listeners, key) if state.spec.port == port)


def no_listener_cause(port: int) -> str:
    """Return the cause of a request to a port that no listener serves."""
    return f"no answer: no listener on port {port}"


def missing_port(
    listeners: Iterable[ListenerState], request: HttpRequest, base: Explanation
) -> ExpectedResponse:
    """Return the response on a port without a served listener of the request's protocol."""
    cause = no_listener_cause(request.port)
    for state in listeners:
        name, protocol = state.spec.name, state.spec.protocol
        if protocol == "HTTPS" and state.served and not request.tls:
            cause = f"listener {name} on port {request.port} is HTTPS"
            if base.controller == NGINX:
                return ExpectedResponse("answered", f"400: {cause}", (400,))
            return ExpectedResponse("no-answer", f"no answer: {cause}")
        if state.findings:
            cause = f"no answer: {state.findings[0].message}"
        elif protocol != ("HTTPS" if request.tls else "HTTP"):
            cause = f"no answer: listener {name} on port {request.port} is {protocol}"
    return ExpectedResponse("no-answer", cause)


def explained_listener(state: ListenerState) -> ExplainedListener:
    """Return a listener with the messages of its findings."""
    spec = state.spec
    return ExplainedListener(
        str(object_of(spec.owner)),
        spec.name,
        spec.port,
        spec.protocol,
        spec.hostname,
        tuple(finding.message for finding in state.findings),
    )


def _selected_listener(
    listeners: tuple[ListenerState, ...], decision: HttpDecision, request: HttpRequest
) -> ExplainedListener | None:
    served = {state.spec.hostname: state for state in listeners if state.served}
    host = decision.virtual_host
    name = host.listener if host else most_specific(served, request.sni or request.hostname)
    return explained_listener(served[name]) if name in served else None


def _unmatched(
    compiled: ir.GatewayConfiguration,
    decision: HttpDecision,
    request: HttpRequest,
    cause: str,
    *,
    every_call: bool,
) -> ExpectedResponse:
    shares = answers.expected_answers(decision, request, frozenset())
    if not shares or shares[0].status is None:
        return ExpectedResponse("no-answer", f"no answer: the TLS handshake fails: {cause}")
    status = shares[0].status
    known = answers.is_unmatched_call(decision, request, always=every_call)
    if not (known and compiled.settings.http2):
        return ExpectedResponse("answered", f"{status}: {cause}", (status,))
    text = f"{status} (gRPC status {grpc_status_name(grpc_status_of(status))}): {cause}"
    return ExpectedResponse("answered", text, (status,), grpc=True)


def unattached_routes(
    ask: Ask,
    key: Key,
    hostname: str,
    port: int,
    kinds: Collection[str] = HTTP_KINDS,
    target: str | None = None,
) -> tuple[UnattachedRoute, ...]:
    """Return the routes for a hostname, and for the path of a request target if there is one,
    that are not served on a port of a Gateway.

    Those that no listener accepts come first, and those with another Gateway come last.
    """
    named = ask(routes_of, key)
    result = []
    for route_key in ask.read(ROUTES_KEY):
        route = ask.read(route_key)
        if route_key[0] not in kinds or not _names_hostname(route, hostname):
            continue
        if target is not None and not _has_path(route, target):
            continue
        name = f"{route_key[0]} {route_key[1]}/{route_key[2]}"
        if route_key in named:
            order, reason = _unserved_reason(ask, key, route_key, port)
        else:
            order, reason = 2, parent_problem(ask, route_key)
        if reason:
            result.append((order, UnattachedRoute(name, reason)))
    result.sort(key=lambda entry: entry[0])
    return tuple(candidate for _, candidate in result)


def _names_hostname(route: object, hostname: str) -> bool:
    if not isinstance(route, routes.RouteObject):
        # A malformed object has its own status.
        return False
    names = [name.lower() for name in getattr(route.spec, "hostnames", ())] or [""]
    return most_specific(names, hostname) is not None


def _has_path(route: object, target: str) -> bool:
    match route:
        case routes.GRPCRoute():
            rules = tuple(map(grpc.as_http, route.spec.rules))
        case routes.HTTPRoute():
            rules = route.spec.rules
        case _:
            return False
    return any(
        not rule.matches
        or any(matches_target(translate_path(match.path), target) for match in rule.matches)
        for rule in rules
    )


def _unserved_reason(ask: Ask, key: Key, route: Key, port: int) -> tuple[int, str]:
    """Return the order and the reason why a port does not serve a route; empty if it does."""
    results = [candidate for candidate in ask(attachments, route) if candidate.gateway == key]
    if not results:
        return 1, f"useDefaultGateways: no listener allows {route[0]} from namespace {route[1]}"
    ports = {place.port for candidate in results for place in candidate.listener_hostnames}
    if port in ports:
        return 0, ""
    if ports:
        return 1, f"attached to port {', '.join(map(str, sorted(ports)))} only"
    refusals = [candidate.refusal.message for candidate in results if candidate.refusal is not None]
    return 0, refusals[0] if refusals else "its listener is not served"


def _matched(
    ask: Ask,
    place: tuple[Key, HttpRequest, frozenset[str]],
    compiled: ir.GatewayConfiguration,
    decision: HttpDecision,
    base: Explanation,
) -> Explanation:
    key, request, empty = place
    route = decision.route
    assert route is not None
    owner = (route.origin.kind, route.origin.namespace, route.origin.name)
    resolved = RULE_PLACE.match(route.origin.part)
    assert resolved is not None
    where, spec_rule = resolved["rule"], _rule(ask, owner, int(resolved["number"]))
    backends = explain_backends(ask, (key, owner), spec_rule.backend_refs, where, empty)
    unchecked = filter_problems(ask, key, request.port, decision.virtual_host)
    problems = [*unchecked, *rule_problems(ask, key, owner, request, where)]
    unsupported = _unsupported(ask, key, route)
    if any(not candidate.served for candidate in unsupported):
        grpc = route.origin.kind == "GRPCRoute"
        route = msgspec.structs.replace(route, action=http.Respond(500, grpc=grpc))
        decision = msgspec.structs.replace(decision, route=route)
        problems += [
            f"{where}: {candidate.reason}" for candidate in unsupported if not candidate.served
        ]
    shares = answers.expected_answers(decision, request, empty)
    unserved = (not candidate.served and not candidate.rejected for candidate in unsupported)
    if any(unserved) and _has_pattern(route.match):
        # The reason may be the match, which the proxy does not have then.
        shares = (*shares, answers.AnswerShare(1, 404))
    redirects = isinstance(route.action, http.Redirect)
    return msgspec.structs.replace(
        base,
        match=str(route.origin),
        applied=(
            *applied_rule(owner, spec_rule, where),
            *applied_settings(ask, (key, owner), route, compiled),
            *applied_tls_policies(ask, (key, owner), spec_rule.backend_refs),
        ),
        backends=backends,
        answer=causes.matched_response(
            route, request, shares, () if redirects else backends, problems
        ),
        notes=(*base.notes, *_notes(route, unsupported)),
    )


def _unsupported(ask: Ask, gateway: Key, route: http.Route) -> list[Unsupported]:
    """Return the findings of the back end and the proxies of a Gateway about a match."""
    owner = (route.origin.kind, route.origin.namespace, route.origin.name)
    findings = unsupported_key(ask, gateway, owner)
    return [finding for finding in findings if finding.origin == route.origin]


def _has_pattern(match: http.Match) -> bool:
    values = (*match.headers, *match.query)
    return isinstance(match.path, http.PathRegex) or any(value.regex for value in values)


def _notes(route: http.Route, unsupported: list[Unsupported]) -> tuple[str, ...]:
    notes = [f"not supported: {item.reason}" for item in unsupported if item.served]
    if route.external_auth:
        notes.append("an external authorization service may reject the request")
    if route.client_addresses:
        notes.append("the address of the client decides whether the request is served")
    return tuple(notes)


def _rule(ask: Ask, route: Key, number: int) -> routes.RouteRule | routes.GrpcRule:
    resolved = ask.read(route)
    assert isinstance(resolved, routes.HTTPRoute | routes.GRPCRoute)
    rule: routes.RouteRule | routes.GrpcRule = resolved.spec.rules[number]
    return rule


def rule_problems(
    ask: Ask, key: Key, route: Key, request: HttpRequest, where: str
) -> Iterable[str]:
    """Yield the messages of findings about a rule; those of backendRefs are in the backends."""
    protocol = "HTTPS" if request.tls else "HTTP"
    translated = ask(translate, key, route, request.port, protocol)
    for finding in translated.findings:
        resolved = RULE_PLACE.match(finding.message)
        if resolved and resolved["rule"] == where and not _is_of_backend(finding.message, where):
            yield finding.message


def _is_of_backend(message: str, where: str) -> bool:
    rest = message.removeprefix(where)
    return rest.startswith(".backendRefs[") and ".filters" not in rest


def parent_problem(ask: Ask, route: Key) -> str:
    """Return why no managed Gateway serves a route; empty if one is named that does."""
    results = ask(attachments, route)
    if any(candidate.refusal is None for candidate in results):
        return ""
    if results:
        return results[0].refusal.message if results[0].refusal else ""
    spec = ask.read(route).spec
    for index, candidate in enumerate(spec.parent_refs):
        key = (candidate.kind or "Gateway", candidate.namespace or route[1], candidate.name)
        place, parent = f"parentRefs[{index}]: {key[0]} {key[1]}/{key[2]}", ask.read(key)
        if parent is None:
            return f"{place} not found"
        if isinstance(parent, gateway.Gateway):
            class_name = parent.spec.gateway_class_name
            return f"{place} has the class {class_name}, which Gatehouse does not manage"
        return f"{place} belongs to no Gateway that Gatehouse manages"
    if spec.use_default_gateways == gateway.DEFAULT_SCOPE:
        return "useDefaultGateways: no default Gateway allows the route"
    return "parentRefs is empty"
