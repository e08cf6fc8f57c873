"""Sentences about the expected answer: status and cause in one line. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.compiler.evaluation.answers import AnswerShare, is_preflight, lacks_credentials
from gatehouse.compiler.evaluation.explanation import (
    AnswerVerdict,
    ExpectedResponse,
    ExplainedBackend,
    UnattachedRoute,
)
from gatehouse.compiler.evaluation.http_matching import HttpDecision, RouteMismatch
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.compiler.ir import http as ir


def unmatched_cause(
    decision: HttpDecision, request: HttpRequest, unattached: Sequence[UnattachedRoute]
) -> str:
    """Return the reason why no route answers a request on a port that is served."""
    if decision.outcome == "bad-request":
        field = "Host" if not request.has_valid_host else "path"
        return f"the {field} is not valid: {request.host if field == 'Host' else request.target}"
    if decision.outcome == "misdirected":
        return f"Host {request.hostname} belongs to another listener than SNI {request.sni}"
    if decision.outcome == "no-handshake":
        sni = f"SNI {request.sni}" if request.sni else "a handshake without SNI"
        return f"no listener on port {request.port} has a hostname for {sni}"
    nearest = nearest_mismatch(decision.mismatches)
    if nearest is not None and nearest.fields[0].field != "path":
        return _mismatch_cause(nearest)
    if unattached:
        return f"{unattached[0].route} is not served here: {unattached[0].reason}"
    if len(decision.mismatches) > 1:
        count, path = len(decision.mismatches), request.target.partition("?")[0]
        return (
            f"no match: {count} matches of routes for {request.hostname} need other paths than "
            f"{path!r}"
        )
    if nearest is not None:
        return _mismatch_cause(nearest)
    return f"no route has a hostname for {request.hostname} on port {request.port}"


def nearest_mismatch(mismatches: Sequence[RouteMismatch]) -> RouteMismatch | None:
    """Return the route that nearly matches: its path matches, and the fewest fields do not."""
    return min(
        mismatches,
        key=lambda entry: (entry.fields[0].field == "path", len(entry.fields)),
        default=None,
    )


def _mismatch_cause(mismatch: RouteMismatch) -> str:
    reasons = " and ".join(field.text for field in mismatch.fields)
    return f"no match: {mismatch.route.origin} {reasons}"


def matched_response(
    route: ir.Route,
    request: HttpRequest,
    shares: Sequence[AnswerShare],
    backends: Sequence[ExplainedBackend],
    problems: Sequence[str],
) -> ExpectedResponse:
    """Return the expected response of a matched route.

    ``problems``: messages of findings about its rule.
    """
    own = [share.status for share in shares if share.status is not None]
    verdict: AnswerVerdict = (
        "forwarded" if not own else "mixed" if len(own) < len(shares) else "answered"
    )
    location = next((share.location for share in shares if share.location), "")
    statuses = tuple(dict.fromkeys(own))
    grpc = isinstance(route.action, ir.Forward | ir.Respond) and route.action.grpc
    cause = _matched_cause(route, request, backends, problems, location)
    if own:
        prefix = ", ".join(map(str, statuses))
        cause = f"{prefix}{' for some requests' if verdict == 'mixed' else ''}: {cause}"
    return ExpectedResponse(verdict, cause, statuses, location, grpc)


def _matched_cause(
    route: ir.Route,
    request: HttpRequest,
    backends: Sequence[ExplainedBackend],
    problems: Sequence[str],
    location: str,
) -> str:
    if is_preflight(route, request):
        return f"{route.origin} answers CORS preflight requests"
    if route.authentication is not None and lacks_credentials(route, request):
        return f"{route.authentication.origin.whole} requires credentials"
    if location:
        return f"redirect to {location}"
    broken = [entry.problem for entry in backends if entry.problem and entry.weight]
    if broken or problems:
        return "; ".join(dict.fromkeys((*problems, *broken)))
    if isinstance(route.action, ir.Forward):
        names = [entry.backend for entry in backends if entry.weight]
        return f"forwarded to {' or '.join(names)}"
    if backends:
        return f"{route.origin.whole}: the weights of all backendRefs are 0"
    return f"{route.origin.whole}: the rule has no backendRefs"
