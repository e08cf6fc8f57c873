"""Headers by which authentication passes claims to a Service: other routes must remove them.

Those of an AuthenticationFilter have claims, those of an ExternalAuth filter what its server says,
and those of a SecurityPolicy either, or the name of the client with a key.

A backend that trusts such a header cannot tell by which route a request came. Only the namespace
of the Service decides which headers it trusts: a foreign route must not remove headers from its
requests.
"""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.apis import nginx_authentication as api
from gatehouse.apis import nginx_gateway, routes
from gatehouse.apis.security_policies import SecurityPolicy
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.inputs import (
    authenticated_routes_by_service,
    policies_with_headers,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import (
    ApiKeys,
    Authentication,
    Basic,
    ExternalAuth,
)
from gatehouse.incremental.query import Ask, Key

_OF_CLIENTS = frozenset({"authorization", "cookie"})
"""Headers in lower case that clients send to any Service."""

ServiceName = tuple[str, str]
"""Namespace and name."""

KIND = "AuthenticationFilter"


def authenticated_services(route: routes.RouteObject) -> Iterable[ServiceName]:
    """Yield the Services of the route's own namespace behind its filters of both kinds."""
    yield from (service for service, _ in _authenticated(route))
    yield from (service for service, _ in _authorized(route))


def unset(
    ask: Ask,
    services: Iterable[ServiceName],
    authentication: Authentication | None,
    external: ExternalAuth | None,
) -> tuple[str, ...]:
    """Return the claim headers of Services that a rule's own authentication does not set.

    An authorization server that may set any header is responsible for all of them.
    """
    if external is not None and not external.response_headers:
        return ()
    own = set(_headers(authentication))
    own |= {name.lower() for name in external.response_headers} if external is not None else set()
    trusted = {name for service in services for name in ask(trusted_headers, service)}
    return tuple(sorted(trusted - own))


def edited(edit: ir.HeaderEdit, removed: tuple[str, ...]) -> ir.HeaderEdit:
    """Return an edit that removes headers of the client first."""
    return ir.HeaderEdit(edit.set, edit.add, (*removed, *edit.remove)) if removed else edit


def trusted_headers(ask: Ask, service: ServiceName) -> tuple[str, ...]:
    """Return the claim headers of a Service in lower case, sorted."""
    keys = ask.read(authenticated_routes_by_service(*service))
    names = {
        name
        for key in keys
        for candidate, name in ask(service_claim_headers, key)
        if candidate == service
    }
    for key in ask.read(policies_with_headers(service[0])):
        policy: SecurityPolicy = ask.read(key)
        if any(
            _serves(ask, (target.kind, key[1], target.name), service) for target in policy.targets
        ):
            names |= set(_server_headers(policy.spec.external_auth))
            names |= set(_valid(policy.spec.identity_headers))
    return tuple(sorted(names))


def _serves(ask: Ask, target: Key, service: ServiceName) -> bool:
    """Return whether the target of a policy is a route to a Service of its namespace, or a Gateway,
    which may have such routes."""
    route = ask.read(target)
    if isinstance(route, routes.HTTPRoute | routes.GRPCRoute):
        backends = (backend for rule in route.spec.rules for backend in rule.backend_refs)
        return any((one.namespace or target[1], one.name) == service for one in backends)
    return target[0] == "Gateway"


def _server_headers(spec: routes.ExternalAuthSpec | None) -> Iterable[str]:
    """Yield the headers in lower case that only an authorization server may set."""
    for name in spec.http.allowed_response_headers if spec is not None else ():
        if not header_names.request_problem("set", name) and name.lower() not in _OF_CLIENTS:
            yield name.lower()


def _valid(names: Iterable[str]) -> Iterable[str]:
    """Yield the names in lower case of headers that may be set."""
    for name in names:
        if not header_names.request_problem("set", name):
            yield name.lower()


def service_claim_headers(ask: Ask, key: Key) -> tuple[tuple[ServiceName, str], ...]:
    """Return the Services of a route with the claim headers that its filters pass to them."""
    route = ask.read(key)
    if not isinstance(route, routes.RouteObject):
        return ()
    claims = (
        (service, claim.proxy_set_header.lower())
        for service, name in _authenticated(route)
        for claim in _claims(ask.read((KIND, key[1], name)))
        if claim.proxy_set_header
    )
    return (*claims, *_authorized(route))


def _authorized(route: routes.RouteObject) -> Iterable[tuple[ServiceName, str]]:
    """Yield each Service of the route's namespace with each header that only an authorization
    server may set."""
    if not isinstance(route, routes.HTTPRoute):
        return
    own = route.metadata.namespace
    for rule in route.spec.rules:
        headers = {
            name
            for item in rule.filters
            if item.type == "ExternalAuth"
            for name in _server_headers(item.external_auth)
        }
        for backend in rule.backend_refs:
            if (backend.namespace or own) == own:
                yield from (((own, backend.name), name) for name in sorted(headers))


def _authenticated(route: routes.RouteObject) -> Iterable[tuple[ServiceName, str]]:
    """Yield each Service of the route's namespace with each AuthenticationFilter before it."""
    own = route.metadata.namespace
    for rule in route.spec.rules:
        if isinstance(rule, routes.StreamRule):
            continue
        filters = [
            route_filter.extension_ref.name
            for route_filter in rule.filters
            if route_filter.extension_ref is not None
            and (route_filter.extension_ref.group, route_filter.extension_ref.kind)
            == (nginx_gateway.NGINX_GATEWAY_GROUP, KIND)
        ]
        for backend in rule.backend_refs:
            if (backend.namespace or own) == own:
                yield from (((own, backend.name), name) for name in filters)


def _claims(resource: object) -> Iterable[api.ClaimRule]:
    """Yield all claims of a filter, even if it is invalid: its backend trusts the headers."""
    if isinstance(resource, api.AuthenticationFilter):
        for method in (resource.spec.jwt, resource.spec.oidc):
            if method is not None:
                yield from (claim for rule in method.authorization.rules for claim in rule.claims)


def _headers(authentication: Authentication | None) -> Iterable[str]:
    if authentication is None or isinstance(authentication, Basic):
        return ()
    if isinstance(authentication, ApiKeys):
        return (authentication.client_header.lower(),)
    requirements = authentication.authorization.requirements
    return (
        claim.header.lower()
        for requirement in requirements
        for claim in requirement.claims
        if claim.header
    )
