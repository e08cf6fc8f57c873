"""Gateway API v1 and the extensions read with it, with the defaults of their CRDs."""

from __future__ import annotations

import msgspec

from gatehouse.apis.meta import Resource, View

GROUP = "gateway.networking.k8s.io"


class GatewayClassSpec(View, frozen=True):
    """``spec`` of a GatewayClass."""

    controller_name: str = ""


class GatewayClass(Resource, frozen=True):
    """A class of Gateways."""

    spec: GatewayClassSpec = GatewayClassSpec()


class ObjectReference(View, frozen=True):
    """A reference to a Secret by default."""

    name: str
    group: str = ""
    kind: str = "Secret"
    namespace: str = ""


class ListenerTls(View, frozen=True):
    """``tls`` of a listener."""

    mode: str = "Terminate"
    certificate_refs: tuple[ObjectReference, ...] = ()


class SelectorRequirement(View, frozen=True):
    """One of a label selector's ``matchExpressions``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(View, frozen=True):
    """A label selector; all of it must hold."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[SelectorRequirement, ...] = ()


class RouteNamespaces(View, frozen=True):
    """From which namespaces routes may attach."""

    from_: str = msgspec.field(default="Same", name="from")
    selector: LabelSelector | None = None


class RouteGroupKind(View, frozen=True):
    """A kind of route."""

    kind: str
    group: str = GROUP


class AllowedRoutes(View, frozen=True):
    """Which routes may attach to a listener."""

    namespaces: RouteNamespaces = RouteNamespaces()
    kinds: tuple[RouteGroupKind, ...] = ()


class Listener(View, frozen=True):
    """A listener of a Gateway."""

    name: str
    port: int
    protocol: str
    hostname: str = ""
    tls: ListenerTls | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()


class GatewayAddress(View, frozen=True):
    """An address that a Gateway asks for; without a value it leaves the choice to us."""

    type: str = "IPAddress"
    value: str = ""


class GatewaySpec(View, frozen=True):
    """``spec`` of a Gateway."""

    gateway_class_name: str = ""
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[GatewayAddress, ...] = ()
    tls: dict[str, object] = msgspec.field(default_factory=dict)


class Gateway(Resource, frozen=True):
    """A Gateway."""

    spec: GatewaySpec = GatewaySpec()


class ParentRef(View, frozen=True, omit_defaults=True):
    """What a route attaches to. Kept as written, so that the status can repeat it."""

    name: str
    group: str | None = None
    kind: str | None = None
    namespace: str | None = None
    section_name: str | None = None
    port: int | None = None


class PathMatch(View, frozen=True):
    """``path`` of a match."""

    type: str = "PathPrefix"
    value: str = "/"


class NamedMatch(View, frozen=True):
    """A header or query parameter of a match."""

    name: str
    value: str
    type: str = "Exact"


class RouteMatch(View, frozen=True):
    """One match of a rule."""

    path: PathMatch = PathMatch()
    method: str = ""
    headers: tuple[NamedMatch, ...] = ()
    query_params: tuple[NamedMatch, ...] = ()


class HeaderValue(View, frozen=True):
    """A header and its value."""

    name: str
    value: str


class HeaderModifier(View, frozen=True):
    """Changes to headers."""

    set: tuple[HeaderValue, ...] = ()
    add: tuple[HeaderValue, ...] = ()
    remove: tuple[str, ...] = ()


class PathModifier(View, frozen=True):
    """A new path."""

    type: str
    replace_full_path: str | None = None
    replace_prefix_match: str | None = None


class RequestRedirect(View, frozen=True):
    """A redirection."""

    scheme: str = ""
    hostname: str = ""
    path: PathModifier | None = None
    port: int | None = None
    status_code: int = 302


class UrlRewrite(View, frozen=True):
    """A rewritten request."""

    hostname: str = ""
    path: PathModifier | None = None


class ExtensionRef(View, frozen=True):
    """A filter of another API group."""

    group: str
    kind: str
    name: str


class Filter(View, frozen=True):
    """One filter; the field that belongs to ``type`` is set."""

    type: str
    request_header_modifier: HeaderModifier | None = None
    response_header_modifier: HeaderModifier | None = None
    request_redirect: RequestRedirect | None = None
    url_rewrite: UrlRewrite | None = None
    extension_ref: ExtensionRef | None = None


class BackendRef(View, frozen=True):
    """A backend and its share."""

    name: str
    group: str = ""
    kind: str = "Service"
    namespace: str = ""
    port: int | None = None
    weight: int = 1
    filters: tuple[Filter, ...] = ()


class Timeouts(View, frozen=True):
    """Timeouts of a rule, as GEP-2257 durations."""

    request: str = ""
    backend_request: str = ""


class RouteRule(View, frozen=True):
    """One rule."""

    matches: tuple[RouteMatch, ...] = ()
    filters: tuple[Filter, ...] = ()
    backend_refs: tuple[BackendRef, ...] = ()
    timeouts: Timeouts | None = None
    retry: dict[str, object] | None = None
    session_persistence: dict[str, object] | None = None


class HttpRouteSpec(View, frozen=True):
    """``spec`` of an HTTPRoute."""

    parent_refs: tuple[ParentRef, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[RouteRule, ...] = (RouteRule(),)


class HTTPRoute(Resource, frozen=True):
    """An HTTPRoute."""

    spec: HttpRouteSpec = HttpRouteSpec()


class GrantFrom(View, frozen=True):
    """Who may refer."""

    group: str
    kind: str
    namespace: str


class GrantTo(View, frozen=True):
    """To what; no name: to every object of the kind."""

    kind: str
    group: str = ""
    name: str = ""


class ReferenceGrantSpec(View, frozen=True):
    """``spec`` of a ReferenceGrant."""

    from_: tuple[GrantFrom, ...] = msgspec.field(default=(), name="from")
    to: tuple[GrantTo, ...] = ()


class ReferenceGrant(Resource, frozen=True):
    """A ReferenceGrant."""

    spec: ReferenceGrantSpec = ReferenceGrantSpec()


class Snippet(View, frozen=True):
    """Raw NGINX configuration for one context."""

    context: str
    value: str


class SnippetsFilterSpec(View, frozen=True):
    """``spec`` of a SnippetsFilter."""

    snippets: tuple[Snippet, ...] = ()


class SnippetsFilter(Resource, frozen=True):
    """A SnippetsFilter (``gateway.nginx.org``)."""

    spec: SnippetsFilterSpec = SnippetsFilterSpec()
