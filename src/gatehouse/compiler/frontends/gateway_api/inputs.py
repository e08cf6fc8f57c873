"""What the front end reads: kinds, index buckets, settings, and what the controller tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from gatehouse.apis import (
    core,
    gateway,
    meta,
    nginx_authentication,
    nginx_gateway,
    policies,
    resources,
    routes,
)
from gatehouse.compiler.ir.settings import UsageReports
from gatehouse.incremental.query import Index, Key

VIEWS: Mapping[str, type[meta.Resource]] = {
    "Namespace": core.Namespace,
    "Service": core.Service,
    "EndpointSlice": core.EndpointSlice,
    "Secret": core.Secret,
    "ConfigMap": core.ConfigMap,
    "GatewayClass": gateway.GatewayClass,
    "Gateway": gateway.Gateway,
    "ListenerSet": gateway.ListenerSet,
    "HTTPRoute": routes.HTTPRoute,
    "GRPCRoute": routes.GRPCRoute,
    "TLSRoute": routes.TLSRoute,
    "TCPRoute": routes.TCPRoute,
    "UDPRoute": routes.UDPRoute,
    "ReferenceGrant": policies.ReferenceGrant,
    "BackendTLSPolicy": policies.BackendTLSPolicy,
    "ClientSettingsPolicy": nginx_gateway.ClientSettingsPolicy,
    "ProxySettingsPolicy": nginx_gateway.ProxySettingsPolicy,
    "RateLimitPolicy": nginx_gateway.RateLimitPolicy,
    "UpstreamSettingsPolicy": nginx_gateway.UpstreamSettingsPolicy,
    "ObservabilityPolicy": nginx_gateway.ObservabilityPolicy,
    "SnippetsPolicy": nginx_gateway.SnippetsPolicy,
    "NginxProxy": nginx_gateway.NginxProxy,
    "DataPlane": nginx_gateway.DataPlane,
    "SnippetsFilter": nginx_gateway.SnippetsFilter,
    "AuthenticationFilter": nginx_authentication.AuthenticationFilter,
}

POLICY_KINDS = (
    "ClientSettingsPolicy",
    "ProxySettingsPolicy",
    "RateLimitPolicy",
    "UpstreamSettingsPolicy",
    "ObservabilityPolicy",
    "SnippetsPolicy",
)
FILTER_KINDS = ("SnippetsFilter", "AuthenticationFilter")
"""Of the group ``gateway.nginx.org``."""

ROUTE_KINDS = ("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute")

KINDS: tuple[resources.Resource, ...] = (
    resources.NAMESPACES,
    resources.SERVICES,
    resources.ENDPOINT_SLICES,
    resources.SECRETS,
    resources.CONFIG_MAPS,
    resources.GATEWAY_CLASSES,
    resources.GATEWAYS,
    resources.LISTENER_SETS,
    resources.HTTP_ROUTES,
    resources.GRPC_ROUTES,
    resources.TLS_ROUTES,
    resources.TCP_ROUTES,
    resources.UDP_ROUTES,
    resources.REFERENCE_GRANTS,
    resources.BACKEND_TLS_POLICIES,
    resources.CLIENT_SETTINGS_POLICIES,
    resources.PROXY_SETTINGS_POLICIES,
    resources.RATE_LIMIT_POLICIES,
    resources.UPSTREAM_SETTINGS_POLICIES,
    resources.OBSERVABILITY_POLICIES,
    resources.SNIPPETS_POLICIES,
    resources.NGINX_PROXIES,
    resources.DATA_PLANES,
    resources.SNIPPETS_FILTERS,
    resources.AUTHENTICATION_FILTERS,
)
"""The resources to watch."""

REQUIRED_KINDS = (
    resources.NAMESPACES,
    resources.SERVICES,
    resources.ENDPOINT_SLICES,
    resources.SECRETS,
    resources.CONFIG_MAPS,
    resources.GATEWAY_CLASSES,
    resources.GATEWAYS,
    resources.HTTP_ROUTES,
)
"""Those without which nothing is said or served: to go on with half of them would take down what
data planes serve."""

OPTIONAL_KINDS = tuple(each for each in KINDS if each not in REQUIRED_KINDS)
"""Those that a cluster need not know, such as what its channel of Gateway API lacks."""

MANAGED_BY = "app.kubernetes.io/managed-by"
SERVICE_NAME = "kubernetes.io/service-name"

GATEWAYS: Key = ("@gateways",)
ROUTES: Key = ("@routes",)
FILTERS: Key = ("@filters",)
STATUS_SUBJECTS: Key = ("@subjects",)
"""Whatever may have a status of ours."""

NGINX = gateway.NGINX_CONTROLLER
ENVOY = gateway.ENVOY_CONTROLLER
CONTROLLERS = gateway.CONTROLLERS
"""The names of controllers that are ours: a GatewayClass chooses its data plane by one of them."""


class Settings(msgspec.Struct, frozen=True):
    """Of this controller."""

    bind: Literal["load-balancer", "any"] = "load-balancer"
    """Listen on the address of the Gateway's Service only, or on every address."""
    snippets: bool = False
    """Whether SnippetsFilters, which are raw configuration, are honoured."""
    counter: str = ""
    """``host:port`` of the counter of limits that span data planes; empty: there is none."""
    usage: UsageReports | None = None
    """Of data planes with NGINX Plus."""
    workload_overrides: bool = False
    """Whether a Gateway's own parameters may set every field of ``spec.kubernetes``."""


SETTINGS_KEY: Key = ("Settings", "", "")

BUNDLE_VERSION = (1, 6)
"""Major and minor of Gateway API's definitions that this was made for."""


class CRDVersions(msgspec.Struct, frozen=True):
    """The versions of Gateway API's definitions in the cluster; at :data:`BUNDLE_KEY`."""

    versions: tuple[tuple[str, str], ...] = ()
    """Name of a definition, and its annotation ``gateway.networking.k8s.io/bundle-version``."""


CRD_VERSIONS_KEY: Key = ("Bundle", "", "")


class ProgrammedInput(msgspec.Struct, frozen=True):
    """What is known of a Gateway's data plane; at the key ``("Programming", namespace, name)``."""

    programmed: bool
    reason: Literal["Pending", "Invalid", "NoResources"] = "Pending"
    message: str = ""


class Unsupported(msgspec.Struct, frozen=True):
    """What the back end cannot do; at the key ``("Unsupported", namespace, name)`` of a Gateway."""

    routes: tuple[tuple[str, str], ...] = ()
    """Names as in :class:`gatehouse.compiler.ir.http.Route`, of routes that are not served; such
    names
    behind :data:`gatehouse.compiler.ir.http.LEFT_OUT`, of routes that are served without
    something; or
    ``port/<number>``, ``policy/…``, ``cluster/…`` and ``edge`` for the whole, ``api/<name>`` or
    ``api/<name>/…`` of an UpstreamCluster, each with why."""


class Fetched(msgspec.Struct, frozen=True):
    """What was fetched; at the key of a :class:`Fetch`."""

    content: bytes = b""
    problem: str = ""


class Fetch(msgspec.Struct, frozen=True, order=True):
    """What the controller is to fetch over HTTPS, and again and again."""

    url: str
    trust: str = ""
    """PEM of the authorities to trust; empty for the system's."""
    every: float = 300.0
    """Seconds."""

    @property
    def key(self) -> Key:
        """Where the result is read."""
        return ("Fetched", self.url, self.trust)


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Read an object of one of :data:`KINDS`; never raises."""
    return meta.decode(VIEWS[kind], raw)


def _class_buckets(value: Any) -> Iterable[Key]:
    if isinstance(value, gateway.GatewayClass):
        yield ("@classes", value.spec.controller_name)


def _gateway_buckets(_: Any) -> Iterable[Key]:
    yield GATEWAYS


def _route_buckets(value: Any) -> Iterable[Key]:
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


def routes_by_service(namespace: str, service: str) -> Key:
    """Give the bucket of the routes that name a Service."""
    return ("@referring", namespace, service)


def _set_buckets(value: Any) -> Iterable[Key]:
    if isinstance(value, gateway.ListenerSet):
        parent = value.spec.parent_ref
        yield ("@sets", parent.namespace or value.metadata.namespace, parent.name)


def _policy_buckets(value: Any) -> Iterable[Key]:
    if isinstance(value, policies.BackendTLSPolicy):
        for target in value.spec.target_refs:
            if (target.group, target.kind) == ("", "Service"):
                yield ("@policies", value.metadata.namespace, target.name)


def _extension_buckets(value: Any) -> Iterable[Key]:
    if isinstance(value, nginx_gateway.Policy):
        namespace, kind = value.metadata.namespace, type(value).__name__
        for target in value.targets:
            yield policies_by_target(kind, (target.kind, namespace, target.name))


def policies_by_target(kind: str, target: Key) -> Key:
    """Give the bucket of the policies of a kind that are about an object."""
    return ("@extensions", kind, *target)


def _filter_buckets(_: Any) -> Iterable[Key]:
    yield FILTERS


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


def _subject_buckets(_: Any) -> Iterable[Key]:
    yield STATUS_SUBJECTS


INDEXES: Mapping[str, tuple[Index, ...]] = {
    "GatewayClass": (_class_buckets, _subject_buckets),
    "Gateway": (_gateway_buckets, _subject_buckets),
    "ListenerSet": (_set_buckets, _subject_buckets),
    **dict.fromkeys(ROUTE_KINDS, (_route_buckets, _subject_buckets)),
    "BackendTLSPolicy": (_policy_buckets, _subject_buckets),
    **dict.fromkeys(POLICY_KINDS, (_extension_buckets, _subject_buckets)),
    **dict.fromkeys(FILTER_KINDS, (_filter_buckets, _subject_buckets)),
    "EndpointSlice": (_slice_buckets,),
    "ReferenceGrant": (_grant_buckets,),
    "Service": (_service_buckets,),
}
"""The index buckets of each kind, for :class:`gatehouse.query.Snapshot`."""

STATUS_KINDS: tuple[resources.Resource, ...] = tuple(
    each for each in KINDS if _subject_buckets in INDEXES.get(each.kind, ())
)
"""Those of which we write statuses."""
