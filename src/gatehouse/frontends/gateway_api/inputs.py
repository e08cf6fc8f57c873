"""What the front end reads: kinds, index buckets, settings, and what the controller tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from gatehouse.apis import core, gateway, meta, resources
from gatehouse.query import Index, Key

VIEWS: Mapping[str, type[meta.Resource]] = {
    "Namespace": core.Namespace,
    "Service": core.Service,
    "EndpointSlice": core.EndpointSlice,
    "Secret": core.Secret,
    "GatewayClass": gateway.GatewayClass,
    "Gateway": gateway.Gateway,
    "HTTPRoute": gateway.HTTPRoute,
    "ReferenceGrant": gateway.ReferenceGrant,
    "SnippetsFilter": gateway.SnippetsFilter,
}

KINDS: tuple[resources.Resource, ...] = (
    resources.NAMESPACES,
    resources.SERVICES,
    resources.ENDPOINT_SLICES,
    resources.SECRETS,
    resources.GATEWAY_CLASSES,
    resources.GATEWAYS,
    resources.HTTP_ROUTES,
    resources.REFERENCE_GRANTS,
    resources.SNIPPETS_FILTERS,
)
"""The resources to watch."""

MANAGED_BY = "app.kubernetes.io/managed-by"
SERVICE_NAME = "kubernetes.io/service-name"

ROUTES: Key = ("@routes",)
CLASSES: Key = ("@classes",)


class Settings(msgspec.Struct, frozen=True):
    """Of this controller."""

    controller_name: str = "gatehouse.dev/nginx"
    bind: Literal["load-balancer", "any"] = "load-balancer"
    """Listen on the address of the Gateway's Service only, or on every address."""
    snippets: bool = False
    """Whether SnippetsFilters, which are raw configuration, are honoured."""


SETTINGS_KEY: Key = ("Settings", "", "")


class DataPlane(msgspec.Struct, frozen=True):
    """What is known of a Gateway's data plane; at the key ``("DataPlane", namespace, name)``."""

    programmed: bool
    reason: Literal["Pending", "Invalid"] = "Pending"
    message: str = ""


class Unsupported(msgspec.Struct, frozen=True):
    """What the back end cannot do; at the key ``("Unsupported", namespace, name)`` of a Gateway."""

    routes: tuple[tuple[str, str], ...] = ()
    """Names as in :class:`gatehouse.ir.http.Route`, each with why."""


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Read an object of one of :data:`KINDS`; never raises."""
    return meta.decode(VIEWS[kind], raw)


def _class_buckets(value: Any) -> Iterable[Key]:
    yield CLASSES
    if isinstance(value, gateway.GatewayClass):
        yield ("@classes", value.spec.controller_name)


def _gateway_buckets(value: Any) -> Iterable[Key]:
    if isinstance(value, gateway.Gateway):
        yield ("@gateways", value.spec.gateway_class_name)


def _route_buckets(value: Any) -> Iterable[Key]:
    yield ROUTES
    if isinstance(value, gateway.HTTPRoute):
        for parent in value.spec.parent_refs:
            namespace = parent.namespace or value.metadata.namespace
            yield ("@routes", namespace, parent.name)


def _slice_buckets(value: Any) -> Iterable[Key]:
    service = value.metadata.labels.get(SERVICE_NAME)
    if service:
        yield ("@slices", value.metadata.namespace, service)


def _grant_buckets(value: Any) -> Iterable[Key]:
    yield ("@grants", value.metadata.namespace)


def _service_buckets(value: Any) -> Iterable[Key]:
    if value.metadata.labels.get(MANAGED_BY) == "gatehouse":
        for owner in value.metadata.owner_references:
            if owner.controller and owner.kind == "Gateway":
                yield ("@service", value.metadata.namespace, owner.name)


INDEXES: Mapping[str, tuple[Index, ...]] = {
    "GatewayClass": (_class_buckets,),
    "Gateway": (_gateway_buckets,),
    "HTTPRoute": (_route_buckets,),
    "EndpointSlice": (_slice_buckets,),
    "ReferenceGrant": (_grant_buckets,),
    "Service": (_service_buckets,),
}
"""The index buckets of each kind, for :class:`gatehouse.query.Snapshot`."""
