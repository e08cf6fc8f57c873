"""IR of a gateway: listeners, certificates and clusters. The configuration of one data plane."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any, Literal, Self

import msgspec

from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.http import Cluster, VirtualHost
from gatehouse.compiler.ir.kube_apiserver import ApiListener
from gatehouse.compiler.ir.proxy_settings import NginxSnippet, NginxUsageReports
from gatehouse.compiler.ir.server_tls import ServerTls
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.origin import NO_ORIGIN, Origin


class SecretBytes:
    """Key material. Compares by value; `repr` is redacted; pickling raises TypeError."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Return the bytes. Call this only where they are written to a secret file."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretBytes) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "SecretBytes([redacted])"

    def __reduce__(self) -> Any:
        raise TypeError("key material is not serialised")


def content_name(kind: str, content: bytes) -> str:
    """Return the name of a credential, derived from its content. Renewed content has another."""
    return f"{kind}-{hashlib.sha256(content).hexdigest()[:24]}"


class Certificate(msgspec.Struct, frozen=True):
    """A server certificate with its key."""

    name: str
    """``[a-z0-9-]``, of :func:`content_name`."""
    chain: bytes
    """PEM, leaf first."""
    key: SecretBytes
    origin: Origin = NO_ORIGIN
    """Secret or field. One of them, if several hold the same content."""
    dns_names: tuple[str, ...] = ()
    """DNS names of the leaf's subjectAltName, in lower case."""
    key_type: Literal["rsa", "ecdsa", "other"] = "other"
    validity: tuple[int, int] | None = None
    """First second of the validity of the leaf and first second after it, in Unix time. None if
    unknown."""

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The origin as a tuple; empty if it is unknown."""
        return _known(self.origin)


def _known(origin: Origin) -> tuple[Origin, ...]:
    return (origin,) if origin != NO_ORIGIN else ()


class TrustBundle(msgspec.Struct, frozen=True):
    """CA certificates, used to verify a peer."""

    name: str
    """``[a-z0-9-]``, of :func:`content_name`."""
    pem: bytes
    origins: tuple[Origin, ...] = ()
    """ConfigMaps, Secret or field that hold the certificates."""


class SecretFile(msgspec.Struct, frozen=True):
    """Passwords or keys for the authentication of a route."""

    name: str
    """``[a-z0-9-]``, of :func:`content_name`."""
    content: SecretBytes
    origin: Origin = NO_ORIGIN
    """Secret, field, or object that names the URL of the content."""

    @classmethod
    def make(cls, kind: str, content: bytes, origin: Origin) -> Self:
        """Build a file with the name of its content."""
        return cls(content_name(kind, content), SecretBytes(content), origin)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The origin as a tuple; empty if it is unknown."""
        return _known(self.origin)


class ApiKeyFile(SecretFile, frozen=True):
    """Keys of clients. The content has a line ``client:key`` for each, both of characters that no
    proxy treats as special."""

    @property
    def clients(self) -> tuple[tuple[str, str], ...]:
        """Each client with one of its keys."""
        lines = (line.split(":", 1) for line in self.content.reveal().decode().splitlines())
        return tuple((client, key) for client, key in lines)


Credential = Certificate | TrustBundle | SecretFile


class ClientValidation(msgspec.Struct, frozen=True):
    """Validation of client certificates."""

    trust: str
    """Name of the CA certificates (:class:`TrustBundle`)."""
    required: bool = True
    """If False, clients without a valid certificate are served too."""


class Listener(msgspec.Struct, frozen=True):
    """One port. All Gateway listeners of the port are merged into its virtual hosts."""

    port: int
    protocol: Literal["HTTP", "HTTPS"]
    virtual_hosts: Collection[VirtualHost]
    """Sorted by hostname; hostnames are distinct. Requests for an unknown hostname are answered
    with 404 over plain text, and rejected in the TLS handshake over HTTPS."""
    client_validation: ClientValidation | None = None
    """Validation of client certificates; None if clients need none."""
    tls: tuple[ServerTls, ...] = ()
    """Distinct TLS settings of the Gateway listeners of an HTTPS port."""


class L4Backend(msgspec.Struct, frozen=True):
    """A backend of an L4 route."""

    cluster: str
    """Name of a :class:`~gatehouse.compiler.ir.http.Cluster`."""
    weight: int = 1
    """At least 1."""


class L4Host(msgspec.Struct, frozen=True):
    """The L4 routes of one hostname. Without backends, connections are rejected."""

    hostname: str
    """Same form as in a virtual host; empty on TCP and UDP."""
    backends: tuple[L4Backend, ...] = ()
    certificates: tuple[str, ...] = ()
    """Names of the certificates for TLS termination. Empty: TLS passes through."""
    sources: tuple[str, ...] = ()
    """CIDR ranges of permitted clients, sorted. Empty: all clients."""
    rejected: int = 0
    """Weight of the connections that are rejected, beside the weights of the backends."""
    origin: Origin = NO_ORIGIN
    """The object that is served under this hostname, for the access log."""
    tls: ServerTls = ServerTls()
    """TLS with clients, if there are certificates."""
    rule: int = 0
    """Number of its rule. For an ExternalLoadBalancer, which has no rules, the port."""

    @property
    def clusters(self) -> frozenset[str]:
        """Names of the clusters of the backends."""
        return frozenset(backend.cluster for backend in self.backends)

    @property
    def reason_without_backends(self) -> LocalReason:
        """Reason in the access log if there is no backend to connect to."""
        return LocalReason.NO_ROUTE if self.origin == NO_ORIGIN else LocalReason.INVALID_ROUTE


class L4Listener(msgspec.Struct, frozen=True):
    """One port whose connections are forwarded without HTTP processing."""

    port: int
    protocol: Literal["TCP", "UDP", "TLS"]
    hosts: Collection[L4Host]
    """Sorted by hostname; exactly one without hostname on TCP and UDP. Connections with an unknown
    hostname are closed."""


class Destination(msgspec.Struct, frozen=True):
    """A destination address from a PROXY protocol header: the address that the client connected
    to."""

    address: str
    """IPv4 or IPv6 address in canonical form."""
    port: int
    cluster: str
    sources: tuple[str, ...] = ()
    """CIDR ranges of permitted clients. Empty: all clients. The client address comes from the PROXY
    header if the port has trusted proxies; otherwise it is the peer address."""
    origin: Origin = NO_ORIGIN
    """The object that is served at this destination, for the access log."""


class ProxyProtocolListener(msgspec.Struct, frozen=True):
    """A port that selects a cluster by the destination in the PROXY header (version 1 or 2)."""

    port: int
    destinations: Collection[Destination]
    """Sorted by address and port; addresses are distinct. Connections to any other destination are
    closed."""
    proxies: tuple[str, ...] = ()
    """CIDR ranges of trusted proxies, sorted. Empty: all peers are trusted."""


class ConnectDestination(msgspec.Struct, frozen=True):
    """A destination that clients name in an HTTP CONNECT request."""

    name: str
    """Exact value of the header ``X-Gardener-Destination``, or of the request target without that
    header: ``host:port``. Without control characters."""
    cluster: str
    sources: tuple[str, ...] = ()
    """CIDR ranges of permitted clients. Empty: all clients. The client address is that of the peer,
    or of the load balancer's PROXY header."""
    origin: Origin = NO_ORIGIN
    """The object that is served at this destination, for the access log."""


class HttpConnectListener(msgspec.Struct, frozen=True):
    """A port that selects a cluster by the destination in an HTTP/1.1 CONNECT request."""

    port: int
    destinations: Collection[ConnectDestination]
    """Sorted by name; names are distinct. Requests for any other destination are rejected."""
    proxies: tuple[str, ...] = ()
    """CIDR ranges of permitted node proxies, sorted. Empty: all peers are permitted."""


class GatewayConfiguration(msgspec.Struct, frozen=True):
    """Configuration of one data plane."""

    name: str
    """``namespace/name``."""
    bind_address: str = ""
    """The only address to listen on. Empty: every IPv4 and IPv6 address."""
    listeners: tuple[Listener, ...] = ()
    """Sorted by port; ports are distinct."""
    l4_listeners: tuple[L4Listener, ...] = ()
    """L4 listeners, sorted by port and protocol. A TLS listener may share its port with an HTTPS
    listener; their hostnames are then distinct."""
    proxy_protocol_listeners: tuple[ProxyProtocolListener, ...] = ()
    """Sorted by port."""
    http_connect_listeners: tuple[HttpConnectListener, ...] = ()
    """Sorted by port."""
    api_listeners: tuple[ApiListener, ...] = ()
    """Sorted by port."""
    clusters: Collection[Cluster] = ()
    """Sorted by name. Exactly the clusters that backends name."""
    certificates: tuple[Certificate, ...] = ()
    """Sorted by name. Exactly the certificates that other fields name."""
    trust_bundles: tuple[TrustBundle, ...] = ()
    """CA certificates, sorted by name. Exactly those that other fields name."""
    secrets: tuple[SecretFile, ...] = ()
    """Sorted by name. Exactly those that the authentication of routes names."""
    settings: DataPlaneSettings = DataPlaneSettings()
    snippets: tuple[NginxSnippet, ...] = ()
    """Snippets of the contexts ``main`` and ``http``."""
    usage: NginxUsageReports | None = None
    """Usage reporting of NGINX Plus; None: not configured."""
    counter: str = ""
    """``host:port`` of the rate limit service for the shared limits of routes; empty: none."""

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """All certificates, trust bundles and secrets. Their names are distinct."""
        return (*self.certificates, *self.trust_bundles, *self.secrets)
