"""Index buckets of each kind, as functions of a decoded object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gatehouse.apis import gateway, nginx_gateway, policies, routes
from gatehouse.compiler.frontends.gateway_api.inputs import (
    FILTERS,
    GATEWAYS,
    ROUTES,
    policies_by_target,
    routes_by_service,
)
from gatehouse.incremental.query import Key

MANAGED_BY = "app.kubernetes.io/managed-by"
SERVICE_NAME = "kubernetes.io/service-name"


def of_class(value: Any) -> Iterable[Key]:
    """Yield the bucket of a GatewayClass: its controller name."""
    if isinstance(value, gateway.GatewayClass):
        yield ("@classes", value.spec.controller_name)


def of_gateway(_: Any) -> Iterable[Key]:
    """Yield the bucket of all Gateways."""
    yield GATEWAYS


def of_route(value: Any) -> Iterable[Key]:
    """Yield the buckets of a route: its parents and the Services that it refers to."""
    yield ROUTES
    if isinstance(value, routes.Route):
        for parent in value.spec.parent_refs:
            namespace = parent.namespace or value.metadata.namespace
            yield ("@routes", parent.kind or "Gateway", namespace, parent.name)
        for backend in _backends(value):
            yield routes_by_service(backend.namespace or value.metadata.namespace, backend.name)


def _backends(route: routes.Route) -> Iterable[routes.BackendRef | routes.BackendObject]:
    for rule in route.spec.rules:
        yield from rule.backend_refs
        if not isinstance(rule, routes.StreamRule):
            mirrors = (each.request_mirror for each in rule.filters)
            yield from (each.backend_ref for each in mirrors if each is not None)


def of_listener_set(value: Any) -> Iterable[Key]:
    """Yield the bucket of a ListenerSet: its parent."""
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
    """Yield the buckets of a policy of ``gateway.nginx.org``: its targets."""
    if isinstance(value, nginx_gateway.Policy):
        namespace, kind = value.metadata.namespace, type(value).__name__
        for target in value.targets:
            yield policies_by_target(kind, (target.kind, namespace, target.name))


def of_filter(_: Any) -> Iterable[Key]:
    """Yield the bucket of all filters of ``gateway.nginx.org``."""
    yield FILTERS


def of_endpoint_slice(value: Any) -> Iterable[Key]:
    """Yield the bucket of an EndpointSlice: its Service."""
    service = value.metadata.labels.get(SERVICE_NAME)
    if service:
        yield ("@slices", value.metadata.namespace, service)


def of_reference_grant(value: Any) -> Iterable[Key]:
    """Yield the bucket of a ReferenceGrant: its namespace."""
    yield ("@grants", value.metadata.namespace)


def of_service(value: Any) -> Iterable[Key]:
    """Yield the bucket of a data plane's Service: its Gateway."""
    if value.metadata.labels.get(MANAGED_BY) == "gatehouse":
        for owner in value.metadata.owner_references:
            if owner.controller and owner.kind == "Gateway":
                yield ("@service", value.metadata.namespace, owner.name)
