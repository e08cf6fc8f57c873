"""IR of HTTP: matches, filters, actions, routes and virtual hosts."""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.compiler.ir.authentication import Authentication, ClientNetworks, ExternalAuth
from gatehouse.compiler.ir.proxy_settings import NginxSnippet
from gatehouse.compiler.ir.server_tls import ServerTls
from gatehouse.compiler.ir.settings import NameResolution, Settings, UpstreamSettings
from gatehouse.dataplane.origin import NO_ORIGIN, Origin


class PathExact(msgspec.Struct, frozen=True, tag=True):
    """The whole path, byte for byte after normalisation."""

    value: str


class PathPrefix(msgspec.Struct, frozen=True, tag=True):
    """A prefix by path element: ``/a`` covers ``/a`` and ``/a/b``, not ``/ab``.

    ``value`` has no trailing slash, except for the root, ``/``.
    """

    value: str


class PathRegex(msgspec.Struct, frozen=True, tag=True):
    """An RE2 expression that must match the whole path."""

    value: str


PathMatch = PathExact | PathPrefix | PathRegex


class ValueMatch(msgspec.Struct, frozen=True):
    """A match on a header (name in lower case here) or a query parameter (name as written)."""

    name: str
    value: str
    regex: bool = False
    """True: ``value`` is an RE2 expression that must match the whole value."""


class Match(msgspec.Struct, frozen=True):
    """A match of a route. All of its fields must match."""

    path: PathMatch = PathPrefix("/")
    method: str = ""
    """Upper case; empty: any method."""
    headers: tuple[ValueMatch, ...] = ()
    query: tuple[ValueMatch, ...] = ()


class HeaderValue(msgspec.Struct, frozen=True):
    """A header to set or add."""

    name: str
    value: str


class HeaderEdit(msgspec.Struct, frozen=True):
    """Changes to a message's headers: remove, then set (replace), then add (append)."""

    set: tuple[HeaderValue, ...] = ()
    add: tuple[HeaderValue, ...] = ()
    remove: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.set or self.add or self.remove)

    def then(self, second: HeaderEdit) -> HeaderEdit:
        """Return the edit that applies this one, then ``second``."""
        overridden = {item.name.lower() for item in second.set} | {n.lower() for n in second.remove}
        return HeaderEdit(
            set=(*(i for i in self.set if i.name.lower() not in overridden), *second.set),
            add=(*(i for i in self.add if i.name.lower() not in overridden), *second.add),
            remove=(*self.remove, *second.remove),
        )


class FullPath(msgspec.Struct, frozen=True, tag=True):
    """Replaces the whole path."""

    value: str


class PrefixPath(msgspec.Struct, frozen=True, tag=True):
    """Replaces the matched prefix; only on routes that match a :class:`PathPrefix`."""

    value: str


PathRewrite = FullPath | PrefixPath


class Rewrite(msgspec.Struct, frozen=True):
    """Changes to the request line and Host sent to the backend. None leaves a field unchanged."""

    hostname: str | None = None
    path: PathRewrite | None = None


class EndpointPicker(msgspec.Struct, frozen=True):
    """A server that chooses the endpoint of each request (Endpoint Picker Protocol)."""

    cluster: str
    """Name of a :class:`Cluster`."""
    fail_open: bool = False
    """True: the proxy chooses if the server does not respond. False: such requests get 503."""


class Persistence(msgspec.Struct, frozen=True):
    """Session persistence: requests of one session go to one endpoint."""

    kind: Literal["cookie", "header"]
    name: str
    lifetime: int = 0
    """Lifetime of the cookie in seconds; 0: until the client exits."""
    path: str = "/"
    """Path of the cookie: visible ASCII characters without semicolon."""
    absolute_timeout: float = 0.0
    """Seconds after which the proxy itself must end a session; 0: never."""
    origin: Origin = NO_ORIGIN
    """Field of the policy that sets it. The route is served without it if the proxy does not
    support it. Empty: the route itself sets it."""


class Backend(msgspec.Struct, frozen=True):
    """A backend of a :class:`Forward`."""

    cluster: str
    """Name of a :class:`Cluster`."""
    weight: int = 1
    """At least 1."""
    request_headers: HeaderEdit = HeaderEdit()
    response_headers: HeaderEdit = HeaderEdit()
    picker: EndpointPicker | None = None
    """Chooses among the endpoints; None: the proxy does."""
    persistence: Persistence | None = None
    """Sessions, which select an endpoint of the backend, never the backend."""


class Mirror(msgspec.Struct, frozen=True):
    """A cluster that gets a copy of the request. Its response is discarded."""

    cluster: str
    """Name of a :class:`Cluster`."""
    numerator: int = 100
    denominator: int = 100
    """``numerator / denominator`` is the share of requests that is copied."""


IDEMPOTENT_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE")
"""Methods whose requests may be repeated, whatever became of the first (RFC 9110, 9.2.2)."""


class Retry(msgspec.Struct, frozen=True):
    """Retries of a request after a connection failure, a timeout or one of the status codes.

    Without an idempotent method, a request is sent again only after one of the status codes, or if
    no backend has received it: a backend may have processed it before the connection or the time
    ended.
    """

    attempts: int
    """Number of retries after the first attempt; 0: no request is sent again, whatever policies
    set."""
    codes: tuple[int, ...] = ()
    backoff: float = 0.0
    """Pause in seconds before an attempt; 0: none."""
    origin: Origin = NO_ORIGIN
    """Field of the policy that sets it. Empty: the route itself sets it."""


class Forward(msgspec.Struct, frozen=True, tag=True):
    """Send the request to one of the backends, by weight.

    A backend whose cluster has no endpoints answers 503, gRPC calls with the status UNAVAILABLE.
    """

    backends: tuple[Backend, ...] = ()
    """At least one. Filters set the other fields of an action before it has backends."""
    rewrite: Rewrite = Rewrite()
    request_timeout: float = 0.0
    """Timeout of the whole exchange in seconds; 0: not set."""
    backend_timeout: float = 0.0
    """Timeout of one attempt at a backend in seconds; 0: not set."""
    unlimited: bool = False
    """True: a timeout was set to unlimited explicitly."""
    mirrors: tuple[Mirror, ...] = ()
    retry: Retry | None = None
    grpc: bool = False
    """True: requests are gRPC calls."""
    failing: int = 0
    """Weight of the requests that are answered as by :class:`Respond` with status 500, beside the
    weights of the backends."""

    @property
    def clusters(self) -> frozenset[str]:
        """Names of all clusters of backends and mirrors."""
        backends = {backend.cluster for backend in self.backends}
        return frozenset(backends | {mirror.cluster for mirror in self.mirrors})


class Redirect(msgspec.Struct, frozen=True, tag=True):
    """Answer with a redirect; None keeps the value of the request.

    With ``port`` None, Location has no port. The front end has applied the port rules of the
    Gateway API, so that a port given here always differs from the default port of the scheme.
    """

    status: Literal[301, 302, 303, 307, 308] = 302
    scheme: Literal["http", "https"] | None = None
    hostname: str | None = None
    port: int | None = None
    path: PathRewrite | None = None


class Respond(msgspec.Struct, frozen=True, tag=True):
    """Answer with a fixed status, without a backend."""

    status: int
    grpc: bool = False
    """True: requests are gRPC calls, which are answered with the status UNAVAILABLE."""


Action = Forward | Redirect | Respond


class Cors(msgspec.Struct, frozen=True):
    """CORS policy: origins, methods and headers that browsers may use (Fetch standard)."""

    origins: tuple[str, ...]
    """``*``, ``scheme://host[:port]``, or ``scheme://*.suffix[:port]`` for subdomains of any
    depth."""
    methods: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    expose: tuple[str, ...] = ()
    """In ``methods``, ``headers`` and ``expose``, ``*`` stands for all."""
    credentials: bool = False
    max_age: int = 5
    """Seconds that a browser may cache the result of a preflight request."""


class Route(msgspec.Struct, frozen=True):
    """One match and its action. A virtual host tries its routes in order."""

    name: str = ""
    """For diagnostics: ``namespace/name`` of the object, rule and match, such as ``a/b/0/1``."""
    match: Match = Match()
    action: Action = Forward()
    request_headers: HeaderEdit = HeaderEdit()
    response_headers: HeaderEdit = HeaderEdit()
    cors: Cors | None = None
    settings: Settings = Settings()
    """All effective settings, including those of the virtual host."""
    authentication: Authentication | None = None
    external_auth: ExternalAuth | None = None
    """Checked before ``authentication``."""
    client_addresses: ClientNetworks | None = None
    """None: all clients are served."""
    snippets: tuple[NginxSnippet, ...] = ()
    """Emitted unchanged in the route's context, or in the context of the server of the route."""
    origin: Origin = NO_ORIGIN
    """The match of the route object."""

    @property
    def clusters(self) -> frozenset[str]:
        """Names of all clusters of the action and of the authorization server."""
        used = self.action.clusters if isinstance(self.action, Forward) else frozenset[str]()
        return used if self.external_auth is None else used | {self.external_auth.cluster}

    @property
    def policy_retry(self) -> Retry | None:
        """Retries that a policy sets; None if the route itself sets them."""
        retry = self.action.retry if isinstance(self.action, Forward) else None
        return retry if retry is not None and retry.origin != NO_ORIGIN else None

    def with_retry(self, retry: Retry | None) -> Route:
        """Return the route with other retries."""
        if not isinstance(self.action, Forward) or self.action.retry == retry:
            return self
        action = msgspec.structs.replace(self.action, retry=retry)
        return msgspec.structs.replace(self, action=action)

    @property
    def serves_calls(self) -> bool:
        """True if requests are gRPC calls."""
        return isinstance(self.action, Forward | Respond) and self.action.grpc


class VirtualHost(msgspec.Struct, frozen=True):
    """The routes of one hostname on one port, most specific match first.

    A request that matches no route is answered with 404.
    """

    hostname: str
    """Lower case. ``*.example.com`` covers subdomains of any depth; empty: all other hostnames."""
    routes: tuple[Route, ...]
    certificates: tuple[str, ...] = ()
    """Names of the certificates for this hostname; empty on plain-text listeners."""
    listener: str = ""
    """Hostname of the Gateway listener that this hostname belongs to."""
    settings: Settings = Settings()
    snippets: tuple[NginxSnippet, ...] = ()
    tls: ServerTls = ServerTls()
    """TLS with clients, if there are certificates."""
    external_auth: ExternalAuth | None = None
    """Checks each request before a route is chosen, by the headers of the server's response."""

    @property
    def knows_calls(self) -> bool:
        """True if a gRPC call that matches no route is answered with a status of gRPC, even where
        that has a cost: a route serves calls, or there is no route."""
        return not self.routes or any(route.serves_calls for route in self.routes)


class Endpoint(msgspec.Struct, frozen=True, order=True):
    """IP address (v4, or v6 without brackets) and port of a backend.

    A cluster with ``resolution`` has a DNS name as its address.
    """

    address: str
    port: int


class SubjectName(msgspec.Struct, frozen=True, order=True):
    """A subject alternative name of a certificate."""

    kind: Literal["dns", "uri"]
    value: str


class BackendTls(msgspec.Struct, frozen=True):
    """TLS to a backend."""

    server_name: str
    """Sent as SNI."""
    trust: str
    """Name of the CA certificates that verify the backend. Empty: those of the system."""
    names: tuple[SubjectName, ...] = ()
    """The certificate must have one of these names. Empty: ``server_name``."""
    certificate: str = ""
    """Name of the client certificate; empty: none."""
    verified: bool = True
    """False: the certificate of the backend may be any."""


class Cluster(msgspec.Struct, frozen=True):
    """A named set of endpoints with one protocol, TLS configuration and settings."""

    name: str
    """Unchanged while only endpoints change; ``[a-z0-9_-]``, starts with a letter, at most 63
    characters."""
    endpoints: tuple[Endpoint, ...]
    """Sorted."""
    protocol: Literal["http", "h2c", "grpc", "tcp", "udp"] = "http"
    tls: BackendTls | None = None
    settings: UpstreamSettings = UpstreamSettings()
    resolution: NameResolution | None = None
    """Name servers for a cluster whose only endpoint is a DNS name; None: the endpoints are known.
    """
    origin: Origin = NO_ORIGIN
    """The Service or InferencePool."""
    picker: EndpointPicker | None = None
    """Chooses among the endpoints; None: the proxy does."""
    is_picker: bool = False
    """True for the endpoints of an endpoint picker. One that accepts no connection is not asked."""

    @property
    def credentials(self) -> tuple[str, ...]:
        """Names of the client certificate and the CA certificates; an empty name: none."""
        return (self.tls.certificate, self.tls.trust) if self.tls is not None else ()
