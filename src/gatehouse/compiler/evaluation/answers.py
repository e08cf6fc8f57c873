"""Expected answers of a proxy, derived from the IR. No I/O."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from gatehouse.compiler.evaluation.http_matching import STATUSES, HttpDecision
from gatehouse.compiler.evaluation.http_request import HttpRequest, normalize_path, query_parameters
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import ApiKeys, KeySource, Oidc

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PATH_CHARACTERS = "/~!$&'()*+,;=:@"


class AnswerShare(msgspec.Struct, frozen=True, rename="camel"):
    """One possible answer to a request."""

    weight: int
    """Share of the requests, relative to the weights of the other answers."""
    status: int | None
    """Status that the proxy answers itself; None: the answer is that of a backend."""
    cluster: str = ""
    """Name of the cluster; empty: none takes part."""
    location: str = ""
    """Value of Location in a redirect."""


def expected_answers(
    decision: HttpDecision, request: HttpRequest, empty_clusters: frozenset[str]
) -> tuple[AnswerShare, ...]:
    """Return the possible answers to a request; empty if the proxy sends no answer.

    ``empty_clusters``: names of the clusters without endpoints.
    """
    route = decision.route
    if route is None:
        status = STATUSES.get(decision.outcome)
        return () if status is None else (AnswerShare(1, status),)
    if is_preflight(route, request):
        return (AnswerShare(1, 204),)
    if route.authentication is not None and lacks_credentials(route, request):
        leads_to_login = isinstance(route.authentication, Oidc) and _navigates(request)
        return (AnswerShare(1, 302 if leads_to_login else 401),)
    match route.action:
        case ir.Respond(status):
            return (AnswerShare(1, status),)
        case ir.Redirect():
            location = expected_location(route.match, route.action, request)
            return (AnswerShare(1, route.action.status, location=location),)
        case ir.Forward():
            return _forwarded(route.action, empty_clusters)


def is_unmatched_call(decision: HttpDecision, request: HttpRequest, *, always: bool) -> bool:
    """Return whether a request without a route is answered with a status of gRPC.

    ``always``: the proxy, such as Envoy, knows calls on all hostnames. NGINX knows them on the
    hostnames of GRPCRoutes and on those without any route.
    """
    host = decision.virtual_host
    known = host is None or host.knows_calls
    return request.is_call and decision.outcome in ("no-hostname", "no-match") and (always or known)


def is_preflight(route: ir.Route, request: HttpRequest) -> bool:
    """Return whether the proxy answers a request itself because it is a CORS preflight request."""
    return (
        route.cors is not None
        and request.method == "OPTIONS"
        and bool(request.header("origin"))
        and bool(request.header("access-control-request-method"))
    )


def lacks_credentials(route: ir.Route, request: HttpRequest) -> bool:
    """Return whether a request has no credentials for the authentication of a route."""
    if isinstance(route.authentication, ApiKeys):
        return not any(_has_key(source, request) for source in route.authentication.sources)
    header = "cookie" if isinstance(route.authentication, Oidc) else "authorization"
    return route.authentication is not None and not request.header(header)


def _navigates(request: HttpRequest) -> bool:
    """Return whether a browser shows the response to its user, who can log in."""
    return (
        request.method in ("GET", "HEAD")
        and not request.header("upgrade")
        and request.header("sec-fetch-mode").lower() in ("", "navigate")
    )


def _has_key(source: KeySource, request: HttpRequest) -> bool:
    match source.kind:
        case "header":
            return bool(request.header(source.name.lower()))
        case "query":
            return bool(query_parameters(request.target).get(source.name))
        case "cookie":
            cookies = (part.strip() for part in request.header("cookie").split(";"))
            return any(
                name == source.name and bool(value)
                for name, _, value in (cookie.partition("=") for cookie in cookies)
            )


def _forwarded(action: ir.Forward, empty_clusters: frozenset[str]) -> tuple[AnswerShare, ...]:
    shares = [
        AnswerShare(
            backend.weight, 503 if backend.cluster in empty_clusters else None, backend.cluster
        )
        for backend in action.backends
    ]
    return (*shares, *([AnswerShare(action.failing, 500)] if action.failing else []))


def expected_location(match: ir.Match, action: ir.Redirect, request: HttpRequest) -> str:
    """Return the value of Location."""
    scheme = action.scheme or ("https" if request.tls else "http")
    known = _DEFAULT_PORTS[scheme]
    port = f":{action.port}" if action.port not in (None, known) else ""
    origin = f"{scheme}://{action.hostname or request.hostname}{port}"
    if action.path is None:
        return f"{origin}{request.target}"
    query = request.target.partition("?")[2]
    path = rewritten_path(match, action.path, normalize_path(request.target) or b"/")
    return f"{origin}{quote(path, safe=_PATH_CHARACTERS)}{'?' + query if query else ''}"


def rewritten_path(match: ir.Match, rewrite: ir.PathRewrite, path: bytes) -> bytes:
    """Return a path after its replacement. ``path``: normalised and decoded."""
    if isinstance(rewrite, ir.FullPath):
        return rewrite.value.encode()
    prefix = match.path.value.rstrip("/").encode()
    base = rewrite.value.rstrip("/").encode()
    return base + path[len(prefix) :] or b"/"
