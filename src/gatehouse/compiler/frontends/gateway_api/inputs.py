"""Inputs of the front end: kinds, index buckets, settings, and values that the controller sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from gatehouse.apis import (
    core,
    gateway,
    gateway_parameters,
    meta,
    nginx_authentication,
    nginx_gateway,
    policies,
    resources,
    routes,
)
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.settings import UsageReports
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Index, Key

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
    "GatewayParameters": gateway_parameters.GatewayParameters,
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
"""Kinds of filters in the group ``gateway.nginx.org``."""

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
    resources.GATEWAY_PARAMETERS,
    resources.SNIPPETS_FILTERS,
    resources.AUTHENTICATION_FILTERS,
)
"""Resources to watch."""

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
"""Resources without which nothing is compiled: partial inputs would remove configuration that data
planes serve."""

OPTIONAL_KINDS = tuple(each for each in KINDS if each not in REQUIRED_KINDS)
"""Resources whose CRDs may be missing, for example those of another Gateway API channel."""

MANAGED_BY = "app.kubernetes.io/managed-by"
SERVICE_NAME = "kubernetes.io/service-name"

GATEWAYS: Key = ("@gateways",)
ROUTES: Key = ("@routes",)
FILTERS: Key = ("@filters",)
STATUS_SUBJECTS: Key = ("@subjects",)
"""Bucket of all objects whose status the controller may write."""

NGINX = gateway.NGINX_CONTROLLER
ENVOY = gateway.ENVOY_CONTROLLER
CONTROLLERS = gateway.CONTROLLERS
"""Controller names that this controller manages. A GatewayClass selects its data plane by them."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of the controller."""

    bind: Literal["load-balancer", "any"] = "load-balancer"
    """Listen on the address of the Gateway's Service only, or on all addresses."""
    snippets: bool = False
    """Allow SnippetsFilters and SnippetsPolicies, which are raw configuration."""
    counter: str = ""
    """``host:port`` of the rate limit service for limits shared by data planes; empty for none."""
    usage: UsageReports | None = None
    """Usage reports of data planes with NGINX Plus; None for none."""
    workload_overrides: bool = False
    """Allow the parameters of a Gateway to set every field of ``spec.kubernetes``."""


SETTINGS_KEY: Key = ("Settings", "", "")

BUNDLE_VERSION = (1, 6)
"""Supported major and minor version of Gateway API's CRDs."""


class CRDVersions(msgspec.Struct, frozen=True):
    """Versions of Gateway API's CRDs in the cluster; at :data:`CRD_VERSIONS_KEY`."""

    versions: tuple[tuple[str, str], ...] = ()
    """Name of each CRD with its annotation ``gateway.networking.k8s.io/bundle-version``."""


CRD_VERSIONS_KEY: Key = ("Bundle", "", "")


class ProgrammedInput(msgspec.Struct, frozen=True):
    """State of a Gateway's data plane; at the key ``("Programming", namespace, name)``."""

    programmed: bool
    reason: Literal["Pending", "Invalid", "NoResources"] = "Pending"
    message: str = ""
    left_out: str = ""
    """Names the objects that are left out because the proxy rejected them."""


BACK_END_FINDINGS_KEY: Key = ("BackEndFindings",)
"""Input: a function that returns what a Gateway's back end does not support of an object. It gets
``ask``, the Gateway and the object. None: there are no back ends."""


def rejections_key(gateway: Key, subject: Key) -> Key:
    """Return the key of what a Gateway's proxies reject of an object.

    The value is a tuple of :class:`gatehouse.compiler.ir.unsupported.Unsupported`.
    """
    return ("Rejections", gateway[1], gateway[2], *subject)


def unsupported(ask: Ask, gateway: Key, subject: Key) -> tuple[Unsupported, ...]:
    """Return what a Gateway's data plane does not support or rejects of an object."""
    of_back_end = ask.read(BACK_END_FINDINGS_KEY)
    rejections: tuple[Unsupported, ...] | None = ask.read(rejections_key(gateway, subject))
    generated: tuple[Unsupported, ...] = of_back_end(ask, gateway, subject) if of_back_end else ()
    return (*generated, *(rejections or ()))


class Replacement(msgspec.Struct, frozen=True):
    """Routes that a Gateway's proxy rejected; at the key :func:`replacement_key`."""

    routes: tuple[tuple[Route, Route | None], ...]
    """Each with the route that is served in its place; None: none is."""


def replacement_key(gateway: Key, origin: Origin) -> Key:
    """Return the key of the :class:`Replacement` of a route's match at a Gateway."""
    return ("Replacement", gateway[1], gateway[2], *key_of(origin), origin.part)


class RejectedObject(msgspec.Struct, frozen=True):
    """A policy, filter or parameters object that a proxy rejected.

    At the key :func:`rejected_object_key`. It is treated as invalid until its spec changes.
    """

    spec: Any
    reason: str


def rejected_object_key(key: Key) -> Key:
    """Return the key of the :class:`RejectedObject` of an object."""
    return ("RejectedObject", *key)


def rejected_by_proxy(ask: Ask, key: Key) -> str:
    """Return why a proxy rejected an object with its present spec; empty if none did."""
    rejected = ask.read(rejected_object_key(key))
    if not isinstance(rejected, RejectedObject) or rejected.spec != ask.read(key).spec:
        return ""
    return rejected.reason


def rejected_ports_key(gateway: Key) -> Key:
    """Return the key of the ports (frozenset) that no instance of a Gateway can listen on."""
    return ("RejectedPorts", gateway[1], gateway[2])


def rejected_certificate_key(gateway: Key, certificate: str) -> Key:
    """Return the key of why a Gateway's proxy rejected the certificate with a name.

    The name is derived from the content, so that a renewed certificate is tried at once.
    """
    return ("RejectedCertificate", gateway[1], gateway[2], certificate)


def key_of(origin: Origin) -> Key:
    """Return the key of the object of an origin."""
    return (origin.kind, origin.namespace, origin.name)


class Fetched(msgspec.Struct, frozen=True):
    """Result of a fetch; at the key of its :class:`Fetch`."""

    content: bytes = b""
    problem: str = ""


class Fetch(msgspec.Struct, frozen=True, order=True):
    """Periodic HTTPS fetch that the controller performs."""

    url: str
    trust: str = ""
    """PEM of trusted CA certificates; empty for the system's."""
    every: float = 300.0
    """Interval in seconds."""

    @property
    def key(self) -> Key:
        """Key of the :class:`Fetched`."""
        return ("Fetched", self.url, self.trust)


def decode(kind: str, raw: Mapping[str, Any]) -> meta.Resource:
    """Decode an object of one of :data:`KINDS`. Never raises."""
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
    """Return the bucket of the routes that refer to a Service."""
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
    """Return the bucket of the policies of a kind that target an object."""
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
"""Index buckets of each kind, for :class:`gatehouse.incremental.query.Snapshot`."""

STATUS_KINDS: tuple[resources.Resource, ...] = tuple(
    each for each in KINDS if _subject_buckets in INDEXES.get(each.kind, ())
)
"""Resources whose statuses the controller writes."""
