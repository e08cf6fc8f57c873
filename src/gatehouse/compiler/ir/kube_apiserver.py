"""Kube-apiservers behind a gateway: who asks for what, how much of it, and which server answers.

The rules are those of KubeGateway's UpstreamCluster, in one normal form: what a front end reads in
lists of wildcards and inverted values is here a :class:`Names` for each field.
"""

from __future__ import annotations

import msgspec


class Names(msgspec.Struct, frozen=True):
    """A set of names: those listed, or all others. The default holds none."""

    exact: tuple[str, ...] = ()
    """Sorted and distinct; compared case by case."""
    prefixes: tuple[str, ...] = ()
    """Sorted and distinct; a name that begins with one of them is meant too."""
    subresources: tuple[str, ...] = ()
    """Of resources only: a name that ends in ``/`` and one of them is meant too."""
    others: bool = False
    """Whether the set holds all names but the ones meant. With nothing listed: every name."""


ANY = Names(others=True)
NONE = Names()


class Rule(msgspec.Struct, frozen=True):
    """Requests of some users. All fields that a request has must hold its value.

    A request for a resource is held against ``groups``, ``resources`` and ``names``, any other one
    against ``paths``.
    """

    verbs: Names = NONE
    users: Names = ANY
    """User names; a service account is ``system:serviceaccount:<namespace>:<name>``."""
    user_groups: Names = ANY
    """Holds a user of whom one group is listed; with ``others``, a user of whom none is listed."""
    groups: Names = NONE
    """API groups; the core group is the empty string."""
    resources: Names = NONE
    """``<resource>`` or ``<resource>/<subresource>``; ``pods`` does not hold ``pods/log``."""
    names: Names = ANY
    """Names of objects; a request without a name is for the empty string."""
    paths: Names = NONE
    """Paths of requests that are not for a resource."""


class Policy(msgspec.Struct, frozen=True):
    """Where requests go that one of the rules holds."""

    rules: tuple[Rule, ...]
    servers: tuple[str, ...] = ()
    """Names of the :class:`Server` that may answer; empty for all of them. One that the cluster
    does not have (it is disabled) cannot; where none is left, the answer is 503."""
    schema: str = ""
    """Name of a :class:`FlowSchema`; empty for no limit."""
    logged: bool = False
    """Whether these requests are in the access log."""


DEFAULT_HTTP2_STREAMS = 100
"""What a kube-apiserver takes on one HTTP/2 connection unless it is told otherwise
(``--http2-max-streams-per-connection``; before the mending of CVE-2023-44487 it was 250)."""


class InFlight(msgspec.Struct, frozen=True, tag=True):
    """At most so many requests at a time; long-running ones are not counted. 0 refuses all."""

    max: int


class TokenBucket(msgspec.Struct, frozen=True, tag=True):
    """So many requests each second, and a bucket of so many tokens, which is full at first."""

    rate: int
    burst: int


class FlowSchema(msgspec.Struct, frozen=True):
    """A limit that the policies which name it draw from together."""

    name: str
    limit: InFlight | TokenBucket
    """Of one data plane."""
    shared: TokenBucket | None = None
    """Of all data planes together, counted by the shared counter: asked after ``limit``."""


class Server(msgspec.Struct, frozen=True):
    """A kube-apiserver that is not disabled."""

    name: str
    """The URL as its owner wrote it."""
    host: str
    """Host name or IP address, without brackets."""
    port: int
    """1 to 65535."""
    path: str = ""
    """What stands before every path there; empty, or begins with ``/`` and does not end in it."""


class UpstreamTls(msgspec.Struct, frozen=True):
    """How servers are spoken to over TLS."""

    server_name: str
    """Shown in the handshake, and to be found in the server's certificate."""
    trust: str = ""
    """Name of a trust bundle of the gateway; empty: the server is not verified."""
    certificate: str = ""
    """Name of the gateway's own certificate towards the servers; empty for none."""


class AuthCacheTTLs(msgspec.Struct, frozen=True):
    """How it is found out who a client is."""

    anonymous: bool = True
    """Whether clients that show nothing are ``system:anonymous``; else they are answered 401."""
    good_for: float = 600.0
    """Seconds for which a token that the servers accepted is not asked about again."""
    bad_for: float = 10.0
    """Seconds for which a token that the servers refused is not asked about again."""
    allowed_for: float = 300.0
    """Seconds for which a permission to impersonate is kept."""
    denied_for: float = 30.0
    """Seconds for which a refusal to impersonate is kept."""


class ApiCluster(msgspec.Struct, frozen=True):
    """One UpstreamCluster: the kube-apiservers of one cluster, under one set of names."""

    name: str
    hosts: tuple[str, ...]
    """Lower case, sorted, distinct, at least one; no two clusters share one. The cluster's own
    name is among them, unless an older cluster has it."""
    servers: tuple[Server, ...]
    """Sorted by name, distinct; those that are not disabled. Without any: 503."""
    policies: tuple[Policy, ...]
    """In the order in which they are tried. A request that none holds is answered 403."""
    schemas: tuple[FlowSchema, ...] = ()
    """Sorted by name; those that policies name."""
    certificates: tuple[str, ...] = ()
    """Names of the gateway's certificates shown to clients, the first by default. Empty: the
    listener's own."""
    client_trust: str = ""
    """Name of the trust bundle for clients' certificates; empty: certificates prove nothing."""
    tls: UpstreamTls | None = None
    """None: servers are spoken to in plain text."""
    token: str = ""
    """Name of the gateway's secret with the bearer token shown to the servers; empty for none."""
    identity: AuthCacheTTLs = AuthCacheTTLs()
    denied: bool = False
    """Whether every request is refused for now, with 429."""
    streams: int = DEFAULT_HTTP2_STREAMS
    """How many requests share an HTTP/2 connection to a server at most. Servers that take fewer
    refuse those of a new connection that come before they could say so."""


class ApiListener(msgspec.Struct, frozen=True):
    """A port in front of kube-apiservers. TLS ends here."""

    port: int
    clusters: tuple[ApiCluster, ...]
    """Sorted by name."""
    certificates: tuple[str, ...] = ()
    """Names of the gateway's certificates for hosts that no cluster has (answered 503), and for
    clusters without certificates of their own."""
    counter: str = ""
    """``host:port`` of the shared counter (Envoy's rate limit protocol, ``rls.proto`` v3); empty:
    nothing is shared. Its descriptor has the entries ``cluster``, ``schema``, ``rate`` and
    ``burst``, so that it needs no configuration."""
