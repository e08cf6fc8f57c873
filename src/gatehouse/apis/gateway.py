"""GatewayClass, Gateway and ListenerSet of Gateway API v1, with the defaults of their CRDs."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from gatehouse.apis.meta import AnnotatedMeta, KubernetesObject, View
from gatehouse.apis.routes import ExternalAuthSpec
from gatehouse.apis.selectors import LabelSelector

GATEWAY_API_GROUP = "gateway.networking.k8s.io"

NGINX_CONTROLLER = "gatehouse.dev/nginx"
"""Value of a GatewayClass: ``spec.controllerName`` of classes that NGINX serves."""

ENVOY_CONTROLLER = "gatehouse.dev/envoy"
"""Value of a GatewayClass: ``spec.controllerName`` of classes that Envoy serves."""

CONTROLLERS = (NGINX_CONTROLLER, ENVOY_CONTROLLER)
"""Values of ``spec.controllerName`` of the GatewayClasses that Gatehouse serves."""


class ClassParametersRef(View, frozen=True):
    """Reference to the parameters of a GatewayClass."""

    group: str
    kind: str
    name: str
    namespace: str = ""


class GatewayClassSpec(View, frozen=True):
    """``spec`` of a GatewayClass."""

    controller_name: str = ""
    parameters_ref: ClassParametersRef | None = None


class GatewayClass(KubernetesObject, frozen=True):
    """A class of Gateways."""

    spec: GatewayClassSpec = GatewayClassSpec()


class ObjectReference(View, frozen=True):
    """A reference to an object; to a Secret by default."""

    name: str
    group: str = ""
    kind: str = "Secret"
    namespace: str = ""


class ListenerTls(View, frozen=True):
    """``tls`` of a listener."""

    mode: str = "Terminate"
    certificate_refs: tuple[ObjectReference, ...] = ()
    options: dict[str, str] = msgspec.field(default_factory=dict)


class RouteNamespaces(View, frozen=True):
    """Namespaces from which routes may attach."""

    from_: str = msgspec.field(default="Same", name="from")
    selector: LabelSelector | None = None


class RouteGroupKind(View, frozen=True):
    """A kind of route."""

    kind: str
    group: str = GATEWAY_API_GROUP


class AllowedRoutes(View, frozen=True):
    """Routes that may attach to a listener."""

    namespaces: RouteNamespaces = RouteNamespaces()
    kinds: tuple[RouteGroupKind, ...] = ()


class ListenerFilter(View, frozen=True):
    """A filter of all requests to a listener."""

    type: str
    external_auth: ExternalAuthSpec | None = None


class ListenerFilters(View, frozen=True):
    """Filters that run before a route is selected (Gateway API 1.7, GEP-5224)."""

    requests: tuple[ListenerFilter, ...] = ()


class ListenerSpec(View, frozen=True):
    """A listener of a Gateway."""

    name: str
    port: int
    protocol: str
    hostname: str = ""
    tls: ListenerTls | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()
    filters: ListenerFilters = ListenerFilters()


class AllowedListeners(View, frozen=True):
    """Namespaces from which ListenerSets may attach."""

    namespaces: RouteNamespaces = RouteNamespaces(from_="None")


CLUSTER_ROUTABILITY = "Cluster"
"""Routability of the cluster IP of a Service."""

SENTINEL_ROUTABILITY = "testing.x-k8s.io/sentinel"
"""Routability that requires nothing and is only reported, for conformance tests."""

EXPOSED_ROUTABILITY = ("", SENTINEL_ROUTABILITY)
"""Routability of addresses outside the cluster, if the Service of the Gateway has any."""


class GatewayAddress(View, frozen=True):
    """A requested address of a Gateway. Without a value, the controller chooses one."""

    type: str = "IPAddress"
    value: str = ""
    routability: str = ""
    """Networks that must reach the address (Gateway API 1.7, GEP-5093); empty for the default."""


class ClientValidationSpec(View, frozen=True):
    """Client certificate validation."""

    ca_certificate_refs: tuple[ObjectReference, ...] = ()
    mode: str = "AllowValidOnly"


class FrontendTls(View, frozen=True):
    """TLS settings for clients."""

    validation: ClientValidationSpec | None = None


class PortTls(View, frozen=True):
    """TLS settings for clients on one port."""

    port: int
    tls: FrontendTls = FrontendTls()


class Frontend(View, frozen=True):
    """TLS settings for clients, by default and for single HTTPS ports."""

    default: FrontendTls = FrontendTls()
    per_port: tuple[PortTls, ...] = ()


class GatewayBackendTls(View, frozen=True):
    """TLS settings for backends."""

    client_certificate_ref: ObjectReference | None = None


class GatewayTls(View, frozen=True):
    """``tls`` of a Gateway."""

    frontend: Frontend = Frontend()
    backend: GatewayBackendTls = GatewayBackendTls()


class ParametersRef(View, frozen=True):
    """Reference to the parameters of a Gateway's infrastructure."""

    group: str
    kind: str
    name: str


class Infrastructure(View, frozen=True):
    """``infrastructure`` of a Gateway."""

    parameters_ref: ParametersRef | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


ANY_DOMAIN = "*"

METADATA_OPTION = "--allow-gateway-metadata-domain"
"""Option of the controller that allows labels and annotations."""

EXTERNAL_NAME_OPTION = "--allow-external-name"
"""Option of the controller that allows names of ExternalName Services."""


def is_allowed_key(key: str, domains: Collection[str]) -> bool:
    """Return whether a Gateway may set a label or annotation of its data plane.

    Keys without a domain are private to users. Keys with a domain are instructions to a component
    of the cluster, such as a load balancer or a webhook that injects containers. ``domains``: the
    domains, with their subdomains, that the operator allows; :data:`ANY_DOMAIN` for all.
    """
    domain, slash, _ = key.rpartition("/")
    if not slash:
        return True
    return not _is_own(domain) and any(
        allowed == ANY_DOMAIN or domain == allowed or domain.endswith(f".{allowed}")
        for allowed in domains
    )


def _is_own(domain: str) -> bool:
    return domain == _OWN_DOMAIN or domain.endswith(f".{_OWN_DOMAIN}")


_OWN_DOMAIN = "gatehouse.dev"


DEFAULT_SCOPE = "All"
"""Value of ``defaultScope`` of default Gateways, and of ``useDefaultGateways`` of their routes."""


class GatewaySpec(View, frozen=True):
    """``spec`` of a Gateway."""

    gateway_class_name: str = ""
    listeners: tuple[ListenerSpec, ...] = ()
    addresses: tuple[GatewayAddress, ...] = ()
    allowed_listeners: AllowedListeners = AllowedListeners()
    infrastructure: Infrastructure = Infrastructure()
    tls: GatewayTls = GatewayTls()
    default_scope: str = ""
    """:data:`DEFAULT_SCOPE` for a default Gateway (GEP-3793)."""


class Gateway(KubernetesObject, frozen=True):
    """A Gateway."""

    metadata: AnnotatedMeta
    spec: GatewaySpec = GatewaySpec()


class ParentGateway(View, frozen=True):
    """The parent Gateway of a ListenerSet."""

    name: str
    group: str = GATEWAY_API_GROUP
    kind: str = "Gateway"
    namespace: str = ""


class ListenerSetSpec(View, frozen=True):
    """``spec`` of a ListenerSet."""

    parent_ref: ParentGateway = ParentGateway("")
    listeners: tuple[ListenerSpec, ...] = ()


class ListenerSet(KubernetesObject, frozen=True):
    """A ListenerSet."""

    spec: ListenerSetSpec = ListenerSetSpec()
