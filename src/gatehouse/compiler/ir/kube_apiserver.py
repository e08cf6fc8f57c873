"""IR of kube-apiservers behind a gateway: dispatch policies, flow control and servers.

The rules are those of KubeGateway's UpstreamCluster in one normal form. The front end reads lists
of wildcards and inverted values; each field here is a :class:`Names`.
"""

from __future__ import annotations

import msgspec

from gatehouse.compiler.ir.server_tls import ServerTls
from gatehouse.dataplane.origin import NO_ORIGIN, Origin


class Names(msgspec.Struct, frozen=True):
    """A set of names: those listed, or all others. Empty by default."""

    exact: tuple[str, ...] = ()
    """Sorted and distinct; compared case-sensitively."""
    prefixes: tuple[str, ...] = ()
    """Sorted and distinct. A name that starts with one of them is listed."""
    subresources: tuple[str, ...] = ()
    """Only for resources. A name that ends in ``/`` and one of them is listed."""
    others: bool = False
    """True: the set contains all names except those listed. With no name listed: every name."""


ANY = Names(others=True)
NONE = Names()


class DispatchRule(msgspec.Struct, frozen=True):
    """Condition for requests to a kube-apiserver. Every field that applies to one must match.

    Requests for a resource are matched by ``groups``, ``resources`` and ``names``; all other
    requests by ``paths``.
    """

    verbs: Names = NONE
    users: Names = ANY
    """User names; a service account is ``system:serviceaccount:<namespace>:<name>``."""
    user_groups: Names = ANY
    """Matches a user with at least one listed group. With ``others``: a user without any listed
    group."""
    groups: Names = NONE
    """API groups; the core group is the empty string."""
    resources: Names = NONE
    """``<resource>`` or ``<resource>/<subresource>``; ``pods`` does not match ``pods/log``."""
    names: Names = ANY
    """Names of objects. A request without a name has the empty string as its name."""
    paths: Names = NONE
    """Paths of non-resource requests."""


class DispatchPolicy(msgspec.Struct, frozen=True):
    """Dispatch policy: the servers and limits of requests that match one of the rules."""

    rules: tuple[DispatchRule, ...]
    servers: tuple[str, ...] = ()
    """Names of each :class:`KubeApiServer` that may answer; empty: all. Names that the cluster does
    not have (disabled servers) are ignored. If no server is left, the response is 503."""
    schema: str = ""
    """Name of a :class:`FlowSchema`; empty: no limit."""
    logged: bool = False
    """True: these requests are written to the access log."""


DEFAULT_HTTP2_STREAMS = 100
"""Default limit of a kube-apiserver for streams on one HTTP/2 connection
(``--http2-max-streams-per-connection``; before the fix of CVE-2023-44487 it was 250)."""


class InFlight(msgspec.Struct, frozen=True, tag=True):
    """Maximum number of concurrent requests. Long-running requests are not counted. 0 rejects all,
    also long-running ones."""

    max: int


class TokenBucket(msgspec.Struct, frozen=True, tag=True):
    """Token bucket: ``rate`` requests per second, ``burst`` tokens, full at start."""

    rate: int
    burst: int


class DividedLimit(msgspec.Struct, frozen=True):
    """A limit of requests in flight that is divided among data planes by their use."""

    total: int
    """Limit of all data planes together."""
    initial: int
    """Limit of a data plane whose use is not known yet."""
    shares: tuple[tuple[str, int], ...] = ()
    """Names and limits of data planes, sorted."""


class FlowSchema(msgspec.Struct, frozen=True):
    """A limit shared by all policies that name it."""

    name: str
    limit: InFlight | TokenBucket
    """Limit of one data plane."""
    shared: TokenBucket | None = None
    """Limit of all data planes together, counted by the rate limit service. Checked after
    ``limit``."""
    divided: DividedLimit | None = None
    """Limits of data planes that serve shares. ``limit`` applies to the others."""


class KubeApiServer(msgspec.Struct, frozen=True):
    """A kube-apiserver that is not disabled."""

    name: str
    """The URL as written in the object."""
    host: str
    """Hostname or IP address, without brackets."""
    port: int
    """1 to 65535."""
    path: str = ""
    """Prefix of every path on this server. Empty, or starts with ``/`` and does not end with it."""


class UpstreamTls(msgspec.Struct, frozen=True):
    """TLS to the servers."""

    server_name: str
    """Sent as SNI; the certificate of the server must have this name."""
    trust: str = ""
    """Name of the CA certificates; empty: the server is not verified."""
    certificate: str = ""
    """Name of the client certificate; empty: none."""


class AuthCacheTTLs(msgspec.Struct, frozen=True):
    """Anonymous access, and lifetimes of cached authentication and authorisation results."""

    anonymous: bool = True
    """True: clients without credentials are ``system:anonymous``. False: they are answered with
    401."""
    good_for: float = 600.0
    """Seconds for which an accepted token is cached."""
    bad_for: float = 10.0
    """Seconds for which a rejected token is cached."""
    allowed_for: float = 300.0
    """Seconds for which a permission to impersonate is cached."""
    denied_for: float = 30.0
    """Seconds for which a denied impersonation is cached."""


class ApiCluster(msgspec.Struct, frozen=True):
    """One UpstreamCluster: the kube-apiservers of one cluster, under one set of hostnames."""

    name: str
    """Name of the UpstreamCluster."""
    hosts: tuple[str, ...]
    """Lower case, sorted, distinct, at least one. Clusters share no hostname. The name of the
    cluster is included, unless an older cluster has it."""
    servers: tuple[KubeApiServer, ...]
    """Enabled servers, sorted by name, distinct. If empty, the response is 503."""
    policies: tuple[DispatchPolicy, ...]
    """In evaluation order. A request that matches none is answered with 403."""
    schemas: tuple[FlowSchema, ...] = ()
    """Sorted by name. Exactly those that policies name."""
    certificates: tuple[str, ...] = ()
    """Names of the server certificates, the first one by default. Empty: those of the listener."""
    client_trust: str = ""
    """Name of the CA certificates for client certificates. Empty: client certificates authenticate
    no user."""
    tls: UpstreamTls | None = None
    """None: connections to the servers are plain text."""
    token: str = ""
    """Name of the secret file with the bearer token for the servers; empty: none."""
    identity: AuthCacheTTLs = AuthCacheTTLs()
    denied: bool = False
    """True: every request is currently rejected with 429."""
    streams: int = DEFAULT_HTTP2_STREAMS
    """Maximum number of concurrent requests on an HTTP/2 connection to a server. A server with a
    lower limit rejects requests of a new connection that arrive before its SETTINGS frame."""
    origin: Origin = NO_ORIGIN
    """The object."""

    @property
    def credentials(self) -> tuple[str, ...]:
        """Names of all certificates, CA certificates and tokens; an empty name: none."""
        servers = (self.tls.certificate, self.tls.trust) if self.tls is not None else ()
        return (*self.certificates, self.client_trust, self.token, *servers)


class ApiListener(msgspec.Struct, frozen=True):
    """A port in front of kube-apiservers, with TLS termination."""

    port: int
    clusters: tuple[ApiCluster, ...]
    """Sorted by name."""
    certificates: tuple[str, ...] = ()
    """Names of the certificates for unknown hostnames (answered with 503), and for clusters without
    certificates."""
    tls: ServerTls = ServerTls()
    """TLS with clients."""
    counter: str = ""
    """``host:port`` of the rate limit service (Envoy's protocol, ``rls.proto`` v3); empty: no
    shared limits. Its descriptor has the entries ``cluster``, ``schema``, ``rate`` and ``burst``,
    so that the service needs no configuration."""
