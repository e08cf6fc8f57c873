"""HTTP: matches, filters, actions, routes, virtual hosts."""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.compiler.ir.authentication import Authentication
from gatehouse.compiler.ir.settings import Settings, Snippet, UpstreamSettings


class PathExact(msgspec.Struct, frozen=True, tag=True):
    """The whole path, byte for byte after normalisation."""

    value: str


class PathPrefix(msgspec.Struct, frozen=True, tag=True):
    """A prefix by path element: ``/a`` covers ``/a`` and ``/a/b``, not ``/ab``.

    ``value`` has no trailing slash, but for the root, ``/``.
    """

    value: str


class PathRegex(msgspec.Struct, frozen=True, tag=True):
    """An RE2 expression that must match the whole path."""

    value: str


PathMatch = PathExact | PathPrefix | PathRegex


class ValueMatch(msgspec.Struct, frozen=True):
    """A header (name case-insensitive, lower case here) or query parameter (name as is)."""

    name: str
    value: str
    regex: bool = False
    """Whether ``value`` is an RE2 expression that must match the whole value."""


class Match(msgspec.Struct, frozen=True):
    """All of its parts must hold."""

    path: PathMatch = PathPrefix("/")
    method: str = ""
    """Upper case; empty for any."""
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


class FullPath(msgspec.Struct, frozen=True, tag=True):
    """Replace the whole path."""

    value: str


class PrefixPath(msgspec.Struct, frozen=True, tag=True):
    """Replace the matched prefix; only on routes that match a :class:`PathPrefix`."""

    value: str


PathRewrite = FullPath | PrefixPath


class Rewrite(msgspec.Struct, frozen=True):
    """Changes to the request line and Host sent to the backend; None leaves a part as it is."""

    hostname: str | None = None
    path: PathRewrite | None = None


class Backend(msgspec.Struct, frozen=True):
    """A share of the traffic of a :class:`Forward`."""

    cluster: str
    """Name of a :class:`Cluster`; empty for a share that cannot be forwarded and answers 500."""
    weight: int = 1
    request_headers: HeaderEdit = HeaderEdit()
    response_headers: HeaderEdit = HeaderEdit()


class Mirror(msgspec.Struct, frozen=True):
    """A cluster that gets a copy of the request, whose answer nobody sees."""

    cluster: str
    """Empty: the copy cannot be sent anywhere."""
    numerator: int = 100
    denominator: int = 100
    """The share of requests that is copied."""


class Retry(msgspec.Struct, frozen=True):
    """When a request is tried again: its connection failed, it took too long, or these codes."""

    attempts: int
    """How often after the first time."""
    codes: tuple[int, ...] = ()
    backoff: float = 0.0
    """Seconds before an attempt; 0: at once."""


class Persistence(msgspec.Struct, frozen=True):
    """Requests of one session go to one endpoint."""

    kind: Literal["cookie", "header"]
    name: str
    lifetime: int = 0
    """Seconds that a client keeps the cookie; 0: as long as it runs."""


class Forward(msgspec.Struct, frozen=True, tag=True):
    """Send the request to one of the backends, by weight.

    No backend, or none with weight, answers 500. A backend whose cluster has no endpoints
    answers 503. Where requests are gRPC calls the status UNAVAILABLE stands for both.
    """

    backends: tuple[Backend, ...] = ()
    rewrite: Rewrite = Rewrite()
    request_timeout: float = 0.0
    """Seconds for the whole exchange; 0 for no limit of its own."""
    backend_timeout: float = 0.0
    """Seconds for one attempt at a backend; 0 for no limit of its own."""
    unlimited: bool = False
    """Whether a limit was set to none at all."""
    mirrors: tuple[Mirror, ...] = ()
    retry: Retry | None = None
    persistence: Persistence | None = None
    grpc: bool = False
    """Whether requests are gRPC calls."""


class Redirect(msgspec.Struct, frozen=True, tag=True):
    """Answer with a redirection; None keeps the request's own part.

    ``port`` None: no port is written in Location (the front end has resolved the rules of
    the Gateway API about ports, so a written port always differs from the scheme's own).
    """

    status: Literal[301, 302, 303, 307, 308] = 302
    scheme: Literal["http", "https"] | None = None
    hostname: str | None = None
    port: int | None = None
    path: PathRewrite | None = None


class Respond(msgspec.Struct, frozen=True, tag=True):
    """Answer with a fixed status and no backend."""

    status: int


Action = Forward | Redirect | Respond


class Cors(msgspec.Struct, frozen=True):
    """Which pages of other origins may read answers, and send what (Fetch standard)."""

    origins: tuple[str, ...]
    """``*``, ``scheme://host[:port]``, or ``scheme://*.suffix[:port]`` for any depth below."""
    methods: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    expose: tuple[str, ...] = ()
    """In all three ``*`` stands for everything."""
    credentials: bool = False
    max_age: int = 5
    """Seconds that a browser may remember."""


LEFT_OUT = "left-out:"
"""Stands before a route's name where a back end says what it leaves out of a route that it serves.

No namespace has a colon, so no route's own name begins so.
"""


class Route(msgspec.Struct, frozen=True):
    """One match and what to do; a virtual host tries its routes in order."""

    name: str
    """For people: ``namespace/name`` of the object, rule and match, such as ``a/b/0/1``."""
    match: Match
    action: Action
    request_headers: HeaderEdit = HeaderEdit()
    response_headers: HeaderEdit = HeaderEdit()
    cors: Cors | None = None
    settings: Settings = Settings()
    """All that holds for it, those of its virtual host included."""
    authentication: Authentication | None = None
    snippets: tuple[Snippet, ...] = ()
    """Back ends emit them untouched in the route's scope, or that of what it is served by."""


class VirtualHost(msgspec.Struct, frozen=True):
    """The routes served under one hostname of one port, most specific match first.

    A request that no route matches is answered 404.
    """

    hostname: str
    """Lower case; ``*.example.com`` covers any depth below; empty for every other name."""
    routes: tuple[Route, ...]
    certificates: tuple[str, ...] = ()
    """Names of the certificates offered for this name; empty on plain-text listeners."""
    listener: str = ""
    """The hostname of the listener that this name belongs to."""
    settings: Settings = Settings()
    snippets: tuple[Snippet, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, order=True):
    """Where a backend answers: an IP address (v4, or v6 without brackets) and a port."""

    address: str
    port: int


class SubjectName(msgspec.Struct, frozen=True, order=True):
    """A name in a certificate."""

    kind: Literal["dns", "uri"]
    value: str


class BackendTls(msgspec.Struct, frozen=True):
    """How a backend is spoken to over TLS."""

    server_name: str
    """Sent in the handshake."""
    trust: str
    """Name of the trust bundle that its certificate must chain to; empty for the system's."""
    names: tuple[SubjectName, ...] = ()
    """One of these must be in the certificate; none given: ``server_name``."""
    certificate: str = ""
    """Name of the certificate to show it; empty for none."""


class Cluster(msgspec.Struct, frozen=True):
    """A named set of endpoints that are spoken to alike."""

    name: str
    """Stable while only endpoints change; ``[a-z0-9_-]``, starts with a letter, at most 63."""
    endpoints: tuple[Endpoint, ...]
    """Sorted."""
    protocol: Literal["http", "h2c", "grpc", "tcp", "udp"] = "http"
    tls: BackendTls | None = None
    settings: UpstreamSettings = UpstreamSettings()
