"""Filters of a listener, which run before a route is chosen (GEP-5224): what of them is valid."""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.apis import gateway
from gatehouse.apis.routes import ExternalAuthSpec
from gatehouse.compiler.frontends.gateway_api.external_auth_values import external_auth_problems
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.incremental.query import Ask, Key

FILTERS_FIELD = "filters.requests"


def filter_findings(
    ask: Ask, key: Key, listener: gateway.ListenerSpec, controller: str
) -> list[Finding]:
    """Return a finding for each filter for which a listener of a Gateway is not accepted.

    "If a filter is unsupported by the implementation, the listener MUST be rejected via status"
    (GEP-5224).
    """
    filters = listener.filters.requests
    where = f"listener {listener.name}: {FILTERS_FIELD}"
    unsupported = [*_unsupported(filters, where)]
    auth = filters[0].external_auth if filters else None
    if auth is not None and controller == gateway.NGINX_CONTROLLER:
        unsupported += _unsupported_by_nginx(auth, f"{where}[0].externalAuth")
    if unsupported or auth is None:
        return [Finding(Reason.UNSUPPORTED_VALUE, message) for message in unsupported]
    problems = external_auth_problems(ask, key, auth, f"{where}[0].externalAuth")
    return [Finding(Reason.INVALID_LISTENER_FILTER, message) for message in problems]


def _unsupported(filters: tuple[gateway.ListenerFilter, ...], where: str) -> Iterator[str]:
    """Yield a message for each filter that no data plane supports."""
    for index, item in enumerate(filters):
        place = f"{where}[{index}]"
        if item.type != "ExternalAuth" or item.external_auth is None:
            yield f"{place}: {item.type} is not supported"
        elif index:
            yield f"{place}: more than one filter is not supported"


def _unsupported_by_nginx(auth: ExternalAuthSpec, where: str) -> Iterator[str]:
    """Yield a message for each field of a check that NGINX does not support."""
    if auth.protocol == "GRPC":
        yield f"{where}.protocol: GRPC is not supported by NGINX"
    elif not auth.http.allowed_response_headers:
        field = f"{where}.http.allowedResponseHeaders"
        yield f"{field}: must not be empty, because NGINX copies only known ones"
    if auth.forward_body.max_size:
        yield f"{where}.forwardBody: not supported by NGINX"
