"""The five route kinds of Gateway API v1, with the defaults of their CRDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gatehouse.apis.meta import KubernetesObject, View


class ParentRef(View, frozen=True, omit_defaults=True):
    """A parent reference, kept as written so that the status can repeat it."""

    name: str
    group: str | None = None
    kind: str | None = None
    namespace: str | None = None
    section_name: str | None = None
    port: int | None = None


class PathMatchSpec(View, frozen=True):
    """``path`` of a match."""

    type: str = "PathPrefix"
    value: str = "/"


class NamedMatch(View, frozen=True):
    """A header or query parameter of a match."""

    name: str
    value: str
    type: str = "Exact"


class RouteMatch(View, frozen=True):
    """Match of a rule. A request matches if it has everything that the match lists."""

    path: PathMatchSpec = PathMatchSpec()
    method: str = ""
    headers: tuple[NamedMatch, ...] = ()
    query_params: tuple[NamedMatch, ...] = ()


class HeaderValueSpec(View, frozen=True):
    """A header and its value."""

    name: str
    value: str


class HeaderModifier(View, frozen=True):
    """Changes to headers."""

    set: tuple[HeaderValueSpec, ...] = ()
    add: tuple[HeaderValueSpec, ...] = ()
    remove: tuple[str, ...] = ()


class PathModifier(View, frozen=True):
    """A replacement of the path."""

    type: str
    replace_full_path: str | None = None
    replace_prefix_match: str | None = None


class RequestRedirect(View, frozen=True):
    """A redirect."""

    scheme: str = ""
    hostname: str = ""
    path: PathModifier | None = None
    port: int | None = None
    status_code: int = 302


class UrlRewrite(View, frozen=True):
    """A URL rewrite."""

    hostname: str = ""
    path: PathModifier | None = None


class Fraction(View, frozen=True):
    """A fraction."""

    numerator: int
    denominator: int = 100


class BackendObject(View, frozen=True):
    """A Service and its port."""

    name: str
    group: str = ""
    kind: str = "Service"
    namespace: str = ""
    port: int | None = None


class RequestMirror(View, frozen=True):
    """A backend that receives a copy of all or some requests."""

    backend_ref: BackendObject
    percent: int | None = None
    fraction: Fraction | None = None


class CorsSpec(View, frozen=True):
    """CORS settings."""

    allow_origins: tuple[str, ...] = ()
    allow_credentials: bool = False
    allow_methods: tuple[str, ...] = ()
    allow_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    max_age: int = 5


class HttpAuthSpec(View, frozen=True):
    """Settings of an authorization server that speaks HTTP."""

    path: str = ""
    allowed_headers: tuple[str, ...] = ()
    allowed_response_headers: tuple[str, ...] = ()


class GrpcAuthSpec(View, frozen=True):
    """Settings of an authorization server that speaks ``envoy.service.auth.v3``."""

    allowed_headers: tuple[str, ...] = ()


class ForwardBody(View, frozen=True):
    """The body that an authorization server gets."""

    max_size: int = 0


class ExternalAuthSpec(View, frozen=True):
    """An authorization server that permits or denies each request."""

    protocol: str
    backend_ref: BackendObject
    http: HttpAuthSpec = HttpAuthSpec()
    grpc: GrpcAuthSpec = GrpcAuthSpec()
    forward_body: ForwardBody = ForwardBody()


class ExtensionRef(View, frozen=True):
    """A filter of another API group."""

    group: str
    kind: str
    name: str


class Filter(View, frozen=True):
    """A filter. The field that belongs to ``type`` is set."""

    type: str
    request_header_modifier: HeaderModifier | None = None
    response_header_modifier: HeaderModifier | None = None
    request_redirect: RequestRedirect | None = None
    url_rewrite: UrlRewrite | None = None
    request_mirror: RequestMirror | None = None
    cors: CorsSpec | None = None
    external_auth: ExternalAuthSpec | None = None
    extension_ref: ExtensionRef | None = None


class BackendRef(View, frozen=True):
    """A backend and its weight."""

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


class RetrySpec(View, frozen=True):
    """Retry settings."""

    codes: tuple[int, ...] = ()
    attempts: int | None = None
    backoff: str = ""


class CookieConfig(View, frozen=True):
    """Settings of a session cookie."""

    name: str = ""
    path: str = "/"
    lifetime_type: str = "Session"


class HeaderConfig(View, frozen=True):
    """Settings of a session header."""

    name: str = ""


class SessionPersistence(View, frozen=True):
    """Session persistence.

    Gateway API after v1.6 has ``cookie`` and ``header`` in place of ``session_name`` and
    ``cookie_config``.
    """

    session_name: str = ""
    type: str = "Cookie"
    absolute_timeout: str = ""
    cookie_config: CookieConfig = CookieConfig()
    cookie: CookieConfig | None = None
    header: HeaderConfig = HeaderConfig()

    @property
    def own_cookie(self) -> CookieConfig:
        """Settings of the cookie, in whichever field they are."""
        return self.cookie if self.cookie is not None else self.cookie_config

    @property
    def name(self) -> str:
        """Name of the cookie or header, in whichever field it is; empty: not set."""
        own = self.header.name if self.type == "Header" else self.own_cookie.name
        return own or self.session_name


class RouteRule(View, frozen=True):
    """One rule."""

    matches: tuple[RouteMatch, ...] = ()
    filters: tuple[Filter, ...] = ()
    backend_refs: tuple[BackendRef, ...] = ()
    timeouts: Timeouts | None = None
    retry: RetrySpec | None = None
    session_persistence: SessionPersistence | None = None


class HttpRouteSpec(View, frozen=True):
    """``spec`` of an HTTPRoute."""

    parent_refs: tuple[ParentRef, ...] = ()
    use_default_gateways: str = ""
    hostnames: tuple[str, ...] = ()
    rules: tuple[RouteRule, ...] = (RouteRule(),)


class HTTPRoute(KubernetesObject, frozen=True):
    """An HTTPRoute."""

    spec: HttpRouteSpec = HttpRouteSpec()


class GrpcMethodMatch(View, frozen=True):
    """A gRPC method match. An empty service or method matches all."""

    type: str = "Exact"
    service: str = ""
    method: str = ""


class GrpcMatch(View, frozen=True):
    """One match of a GRPCRoute's rule."""

    method: GrpcMethodMatch = GrpcMethodMatch()
    headers: tuple[NamedMatch, ...] = ()


class GrpcRule(View, frozen=True):
    """One rule of a GRPCRoute."""

    matches: tuple[GrpcMatch, ...] = ()
    filters: tuple[Filter, ...] = ()
    backend_refs: tuple[BackendRef, ...] = ()
    session_persistence: SessionPersistence | None = None


class GrpcRouteSpec(View, frozen=True):
    """``spec`` of a GRPCRoute."""

    parent_refs: tuple[ParentRef, ...] = ()
    use_default_gateways: str = ""
    hostnames: tuple[str, ...] = ()
    rules: tuple[GrpcRule, ...] = (GrpcRule(),)


class GRPCRoute(KubernetesObject, frozen=True):
    """A GRPCRoute."""

    spec: GrpcRouteSpec = GrpcRouteSpec()


class StreamRule(View, frozen=True):
    """The rule of a TLSRoute, TCPRoute or UDPRoute."""

    backend_refs: tuple[BackendRef, ...] = ()


class StreamRouteSpec(View, frozen=True):
    """``spec`` of a TLSRoute, TCPRoute or UDPRoute. Only a TLSRoute has hostnames."""

    parent_refs: tuple[ParentRef, ...] = ()
    use_default_gateways: str = ""
    hostnames: tuple[str, ...] = ()
    rules: tuple[StreamRule, ...] = ()


class TLSRoute(KubernetesObject, frozen=True):
    """A TLSRoute."""

    spec: StreamRouteSpec = StreamRouteSpec()


class TCPRoute(KubernetesObject, frozen=True):
    """A TCPRoute."""

    spec: StreamRouteSpec = StreamRouteSpec()


class UDPRoute(KubernetesObject, frozen=True):
    """A UDPRoute."""

    spec: StreamRouteSpec = StreamRouteSpec()


RouteObject = HTTPRoute | GRPCRoute | TLSRoute | TCPRoute | UDPRoute


def backend_references(route: RouteObject) -> Iterator[BackendRef | BackendObject]:
    """Yield the references of a route to backends, mirrors and authorization servers."""
    for rule in route.spec.rules:
        yield from rule.backend_refs
        if isinstance(rule, StreamRule):
            continue
        if rule.filters:
            yield from filter_references(rule.filters)
        for reference in rule.backend_refs:
            if reference.filters:
                yield from filter_references(reference.filters)


def filter_references(filters: Iterable[Filter]) -> Iterator[BackendObject]:
    """Yield the references of filters to backends: mirrors and authorization servers."""
    for item in filters:
        if item.request_mirror is not None:
            yield item.request_mirror.backend_ref
        if item.external_auth is not None:
            yield item.external_auth.backend_ref
