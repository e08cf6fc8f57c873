"""Kinds of Gateway API and of the objects that it refers to.

A new kind is one record here: its view, index buckets and status.
"""

from __future__ import annotations

from gatehouse.apis import (
    backend_traffic,
    backends,
    core,
    gateway,
    gateway_parameters,
    inference,
    mesh,
    nginx_gateway,
    policies,
    resources,
    routes,
    security_policies,
    telemetry,
    traffic_policies,
)
from gatehouse.compiler.frontends.front_end import FrontEnd
from gatehouse.compiler.frontends.gateway_api import buckets
from gatehouse.compiler.frontends.gateway_api.extensions.extension_filters import EXTENSION_FILTERS
from gatehouse.compiler.frontends.gateway_api.inputs import (
    INFERENCE_POOLS_KEY,
    INPUT_INDEXES,
    X_BACKENDS_KEY,
)
from gatehouse.compiler.frontends.gateway_api.routes.pod_selections import service_for
from gatehouse.compiler.frontends.gateway_api.status.backend_status import (
    backend_certificates,
    backend_status,
    desired_service,
)
from gatehouse.compiler.frontends.gateway_api.status.certificate_validity import (
    certificates_of_filter,
    certificates_of_owner,
    policy_certificates,
)
from gatehouse.compiler.frontends.gateway_api.status.class_status import class_status
from gatehouse.compiler.frontends.gateway_api.status.extension_status import (
    extension_status,
    filter_status,
)
from gatehouse.compiler.frontends.gateway_api.status.gateway_status import (
    gateway_status,
    set_status,
)
from gatehouse.compiler.frontends.gateway_api.status.merge import merge_gateway_api_status
from gatehouse.compiler.frontends.gateway_api.status.mesh_status import mesh_status
from gatehouse.compiler.frontends.gateway_api.status.policy_status import policy_status
from gatehouse.compiler.frontends.gateway_api.status.pool_status import (
    desired_pool_service,
    pool_status,
)
from gatehouse.compiler.frontends.gateway_api.status.route_status import (
    gateways_of_route,
    route_status,
)
from gatehouse.compiler.frontends.kinds import (
    STATUS_SUBJECTS,
    DesiredStatus,
    Kind,
    Kinds,
    OwnedKind,
)
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table
from kube_base.types.resource import Resource


def _route(resource: Resource, view: type[routes.RouteObject], *, required: bool = False) -> Kind:
    return Kind(
        resource,
        view,
        indexes=(buckets.of_route,),
        required=required,
        status=route_status,
        gateways_of=gateways_of_route,
    )


_X_BACKENDS = Kind(
    resources.X_BACKENDS,
    backends.XBackend,
    indexes=(buckets.of_x_backend,),
    status=backend_status,
    certificates=backend_certificates,
    owned=(OwnedKind(resources.SERVICES, X_BACKENDS_KEY, desired_service, service_for),),
)

_INFERENCE_POOLS = Kind(
    resources.INFERENCE_POOLS,
    inference.InferencePool,
    indexes=(buckets.of_inference_pool,),
    status=pool_status,
    owned=(OwnedKind(resources.SERVICES, INFERENCE_POOLS_KEY, desired_pool_service, service_for),),
)


def _policy(resource: Resource, view: type[nginx_gateway.AttachedPolicy]) -> Kind:
    return Kind(resource, view, indexes=(buckets.of_policy,), status=extension_status)


_CORE = (
    Kind(resources.NAMESPACES, core.Namespace, required=True),
    Kind(resources.SERVICES, core.Service, indexes=(buckets.of_service,), required=True),
    Kind(
        resources.ENDPOINT_SLICES,
        core.EndpointSlice,
        indexes=(buckets.of_endpoint_slice,),
        required=True,
    ),
    Kind(resources.SECRETS, core.Secret, required=True),
    Kind(resources.CONFIG_MAPS, core.ConfigMap, required=True),
    Kind(resources.CLUSTER_TRUST_BUNDLES, core.ClusterTrustBundle),
)
_GATEWAY_API = (
    Kind(
        resources.GATEWAY_CLASSES,
        gateway.GatewayClass,
        indexes=(buckets.controller_bucket,),
        required=True,
        verbs=("create",),
        status=class_status,
    ),
    Kind(
        resources.GATEWAYS,
        gateway.Gateway,
        indexes=(buckets.gateway_buckets,),
        required=True,
        status=gateway_status,
        certificates=certificates_of_owner,
    ),
    Kind(
        resources.LISTENER_SETS,
        gateway.ListenerSet,
        indexes=(buckets.of_listener_set,),
        status=set_status,
        certificates=certificates_of_owner,
    ),
    _route(resources.HTTP_ROUTES, routes.HTTPRoute, required=True),
    _route(resources.GRPC_ROUTES, routes.GRPCRoute),
    _route(resources.TLS_ROUTES, routes.TLSRoute),
    _route(resources.TCP_ROUTES, routes.TCPRoute),
    _route(resources.UDP_ROUTES, routes.UDPRoute),
    Kind(
        resources.REFERENCE_GRANTS,
        policies.ReferenceGrant,
        indexes=(buckets.of_reference_grant,),
    ),
    Kind(
        resources.BACKEND_TLS_POLICIES,
        policies.BackendTLSPolicy,
        indexes=(buckets.of_backend_tls_policy,),
        status=policy_status,
        certificates=policy_certificates,
    ),
    _X_BACKENDS,
    _INFERENCE_POOLS,
)
_EXTENSIONS = (
    _policy(resources.CLIENT_SETTINGS_POLICIES, nginx_gateway.ClientSettingsPolicy),
    _policy(resources.PROXY_SETTINGS_POLICIES, nginx_gateway.ProxySettingsPolicy),
    _policy(resources.RATE_LIMIT_POLICIES, nginx_gateway.RateLimitPolicy),
    _policy(resources.UPSTREAM_SETTINGS_POLICIES, nginx_gateway.UpstreamSettingsPolicy),
    _policy(resources.TRAFFIC_POLICIES, traffic_policies.TrafficPolicy),
    Kind(
        resources.SECURITY_POLICIES,
        security_policies.SecurityPolicy,
        indexes=(buckets.of_policy, buckets.of_security_policy),
        status=extension_status,
        certificates=certificates_of_filter,
    ),
    _policy(resources.OBSERVABILITY_POLICIES, nginx_gateway.ObservabilityPolicy),
    _policy(resources.TELEMETRY_POLICIES, telemetry.XTelemetryPolicy),
    _policy(resources.BACKEND_TRAFFIC_POLICIES, backend_traffic.XBackendTrafficPolicy),
    _policy(resources.WAF_POLICIES, nginx_gateway.WAFPolicy),
    _policy(resources.PAYLOAD_PROCESSORS, nginx_gateway.PayloadProcessor),
    _policy(resources.SNIPPETS_POLICIES, nginx_gateway.SnippetsPolicy),
    Kind(resources.MESHES, mesh.XMesh, status=mesh_status),
    Kind(resources.NGINX_PROXIES, nginx_gateway.NginxProxy),
    Kind(resources.GATEWAY_PARAMETERS, gateway_parameters.GatewayParameters),
    *(
        Kind(
            kind.resource,
            kind.view,
            indexes=(buckets.of_filter,),
            status=filter_status,
            certificates=certificates_of_filter,
        )
        for kind in EXTENSION_FILTERS.values()
    ),
)

GATEWAY_API_FRONT_END = FrontEnd(
    Kinds(*_CORE, *_GATEWAY_API, *_EXTENSIONS), merge_gateway_api_status
)

GATEWAY_API_INDEXES = {**GATEWAY_API_FRONT_END.kinds.indexes, **INPUT_INDEXES}
decode_gateway_api_object = GATEWAY_API_FRONT_END.kinds.decode

FILTER_KINDS = frozenset(EXTENSION_FILTERS)
"""Kinds of filters without which a route must not be served."""

ROUTE_KINDS = tuple(
    served_kind.resource.kind
    for served_kind in GATEWAY_API_FRONT_END.kinds
    if served_kind.gateways_of is gateways_of_route
)


def gateway_api_subjects(ask: Ask) -> Table[Key, Key]:
    """Return every object whose status the controller may write."""
    subjects: Table[Key, Key] = ask.read(STATUS_SUBJECTS)
    return subjects


def gateway_api_status(ask: Ask, key: Key) -> DesiredStatus | None:
    """Return the desired status of an object; None if this controller does not manage it."""
    kind = GATEWAY_API_FRONT_END.kinds.by_name.get(key[0])
    return kind.status(ask, key) if kind is not None and kind.status is not None else None
