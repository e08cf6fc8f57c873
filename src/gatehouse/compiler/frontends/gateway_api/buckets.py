"""Index buckets of each kind, as functions of a decoded object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gatehouse.apis import (
    backends,
    core,
    gateway,
    inference,
    nginx_gateway,
    policies,
    routes,
    security_policies,
    telemetry,
    traffic_policies,
)
from gatehouse.compiler.frontends.gateway_api.inputs import (
    CLAIMS_KEY,
    DEFAULT_GATEWAYS_KEY,
    DEFAULT_PARENT,
    FILTERS,
    GATEWAYS_KEY,
    INFERENCE_POOLS_KEY,
    ROUTES_KEY,
    X_BACKENDS_KEY,
    authenticated_routes_by_service,
    listeners_by_service,
    policies_by_collector,
    policies_by_server,
    policies_by_target,
    policies_with_claims,
    policies_with_headers,
    pools_by_picker,
    routes_by_namespace,
    routes_by_parent,
    routes_by_service,
    routes_with_expressions,
    slices_by_service,
    slices_with_names,
)
from gatehouse.compiler.frontends.gateway_api.routes import claim_headers, expressions
from gatehouse.incremental.query import Key

_MANAGED_BY = "app.kubernetes.io/managed-by"
_SERVICE_NAME = "kubernetes.io/service-name"
_CLAIMING = (
    nginx_gateway.RateLimitPolicy,
    nginx_gateway.UpstreamSettingsPolicy,
    traffic_policies.TrafficPolicy,
)
"""Policies that may claim memory."""


def controller_bucket(value: Any) -> Iterable[Key]:
    """Yield the bucket of a GatewayClass: its controller name."""
    if isinstance(value, gateway.GatewayClass):
        yield ("@classes", value.spec.controller_name)


def gateway_buckets(value: Any) -> Iterable[Key]:
    """Yield the buckets of a Gateway: all Gateways, the default ones, and its servers of checks."""
    yield GATEWAYS_KEY
    yield from _checked_by(value)
    if isinstance(value, gateway.Gateway) and value.spec.default_scope == gateway.DEFAULT_SCOPE:
        yield DEFAULT_GATEWAYS_KEY


def _checked_by(value: Any) -> Iterable[Key]:
    """Yield the buckets of the authorization servers of a Gateway's or ListenerSet's listeners."""
    if isinstance(value, gateway.Gateway | gateway.ListenerSet):
        for listener in value.spec.listeners:
            for item in listener.filters.requests:
                if item.external_auth is not None:
                    server = item.external_auth.backend_ref
                    namespace = server.namespace or value.metadata.namespace
                    yield listeners_by_service(namespace, server.name)


def of_route(value: Any) -> Iterable[Key]:
    """Yield the buckets of a route: its parents and the backends that it refers to."""
    yield ROUTES_KEY
    if isinstance(value, routes.RouteObject):
        yield routes_by_namespace(value.metadata.namespace)
        has_expressions = expressions.number_of_route(value) > 0
        for parent in value.spec.parent_refs:
            namespace = parent.namespace or value.metadata.namespace
            target = (parent.kind or "Gateway", namespace, parent.name)
            yield routes_by_parent(target)
            if has_expressions:
                yield routes_with_expressions(target)
        if value.spec.use_default_gateways == gateway.DEFAULT_SCOPE:
            yield routes_by_parent(DEFAULT_PARENT)
            if has_expressions:
                yield routes_with_expressions(DEFAULT_PARENT)
        for backend in routes.backend_references(value):
            yield routes_by_service(backend.namespace or value.metadata.namespace, backend.name)
        for service in dict.fromkeys(claim_headers.authenticated_services(value)):
            yield authenticated_routes_by_service(*service)


def of_x_backend(value: Any) -> Iterable[Key]:
    """Yield the bucket of all XBackends."""
    if isinstance(value, backends.XBackend):
        yield X_BACKENDS_KEY


def of_listener_set(value: Any) -> Iterable[Key]:
    """Yield the buckets of a ListenerSet: its parent, and its servers of checks."""
    yield from _checked_by(value)
    if isinstance(value, gateway.ListenerSet):
        parent = value.spec.parent_ref
        yield ("@sets", parent.namespace or value.metadata.namespace, parent.name)


def of_backend_tls_policy(value: Any) -> Iterable[Key]:
    """Yield the buckets of a BackendTLSPolicy: the Services that it targets."""
    if isinstance(value, policies.BackendTLSPolicy):
        for target in value.spec.target_refs:
            if (target.group, target.kind) == ("", "Service"):
                yield ("@policies", value.metadata.namespace, target.name)


def of_policy(value: Any) -> Iterable[Key]:
    """Yield the buckets of a policy: its targets, its claims, and its collector."""
    if isinstance(value, _CLAIMING):
        yield CLAIMS_KEY
        yield policies_with_claims(value.metadata.namespace)
    namespace = value.metadata.namespace
    if isinstance(value, nginx_gateway.AttachedPolicy):
        for target in value.targets:
            yield policies_by_target((target.kind, namespace, target.name))
    if isinstance(value, telemetry.XTelemetryPolicy):
        tracing = value.spec.tracing
        if tracing is not None and tracing.provider is not None:
            service = tracing.provider.backend_ref
            yield policies_by_collector(service.namespace or namespace, service.name)


def of_security_policy(value: Any) -> Iterable[Key]:
    """Yield the buckets of a SecurityPolicy: those with keys to fetch, and its server."""
    if isinstance(value, security_policies.SecurityPolicy):
        yield FILTERS
        checks, sets_headers = value.spec.external_auth, bool(value.spec.identity_headers)
        if checks is not None:
            server = checks.backend_ref
            yield policies_by_server(server.namespace or value.metadata.namespace, server.name)
            sets_headers = sets_headers or bool(checks.http.allowed_response_headers)
        if sets_headers:
            yield policies_with_headers(value.metadata.namespace)


def of_filter(_: Any) -> Iterable[Key]:
    """Yield the bucket of all filters of ``gateway.nginx.org``, and of SecurityPolicies."""
    yield FILTERS


def of_endpoint_slice(value: Any) -> Iterable[Key]:
    """Yield the buckets of an EndpointSlice: its Service, and whether its addresses are names."""
    service = value.metadata.labels.get(_SERVICE_NAME)
    if service:
        yield slices_by_service(value.metadata.namespace, service)
        if isinstance(value, core.EndpointSlice) and value.has_names:
            yield slices_with_names(value.metadata.namespace, service)


def of_inference_pool(value: Any) -> Iterable[Key]:
    """Yield the buckets of an InferencePool: all InferencePools, and its endpoint picker."""
    if isinstance(value, inference.InferencePool):
        yield INFERENCE_POOLS_KEY
        if value.spec.endpoint_picker_ref is not None:
            yield pools_by_picker(value.metadata.namespace, value.spec.endpoint_picker_ref.name)


def of_reference_grant(value: Any) -> Iterable[Key]:
    """Yield the bucket of a ReferenceGrant: its namespace."""
    yield ("@grants", value.metadata.namespace)


def of_service(value: Any) -> Iterable[Key]:
    """Yield the bucket of a data plane's Service: its Gateway."""
    if value.metadata.labels.get(_MANAGED_BY) == "gatehouse":
        for owner in value.metadata.owner_references:
            if owner.controller and owner.kind == "Gateway":
                yield ("@service", value.metadata.namespace, owner.name)
