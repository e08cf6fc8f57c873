"""A gateway: listeners, certificates, clusters; what one data plane is to serve."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import msgspec

from gatehouse.compiler.ir.http import Cluster, VirtualHost
from gatehouse.compiler.ir.kube_apiserver import ApiListener
from gatehouse.compiler.ir.settings import DataPlaneSettings, Snippet, UsageReports


class SecretBytes:
    """Key material. Compares by value, shows nothing."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Give the bytes; call this only where they are written to a file meant for them."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretBytes) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "SecretBytes([redacted])"

    def __reduce__(self) -> Any:
        raise TypeError("key material is not serialised")


class Certificate(msgspec.Struct, frozen=True):
    """A server certificate with its key."""

    name: str
    """``[a-z0-9-]``; depends on the content, so a renewed certificate has another name."""
    chain: bytes
    """PEM, leaf first."""
    key: SecretBytes


class TrustBundle(msgspec.Struct, frozen=True):
    """Certificates of authorities, for checking others' certificates."""

    name: str
    """``[a-z0-9-]``; depends on the content."""
    pem: bytes


class SecretFile(msgspec.Struct, frozen=True):
    """Passwords or keys that a route's authentication needs."""

    name: str
    """``[a-z0-9-]``; depends on the content."""
    content: SecretBytes


class ClientValidation(msgspec.Struct, frozen=True):
    """How clients' certificates are checked."""

    trust: str
    """Name of the trust bundle."""
    required: bool = True
    """False: clients without a good certificate are served as well."""


class Listener(msgspec.Struct, frozen=True):
    """One port. All Gateway listeners that share it are folded into its virtual hosts."""

    port: int
    protocol: Literal["HTTP", "HTTPS"]
    virtual_hosts: Collection[VirtualHost]
    client_validation: ClientValidation | None = None
    """Sorted by hostname; hostnames are distinct. A name that none covers is answered 404 over
    plain text, and refused in the TLS handshake over HTTPS."""


class L4Backend(msgspec.Struct, frozen=True):
    """A share of connections."""

    cluster: str
    """Empty for a share that is refused."""
    weight: int = 1


class L4Host(msgspec.Struct, frozen=True):
    """Where connections of one name go. Without any backend they are refused."""

    hostname: str
    """As of a virtual host; empty on TCP and UDP."""
    backends: tuple[L4Backend, ...] = ()
    certificates: tuple[str, ...] = ()
    """Given: TLS ends here, with these certificates; else it passes through."""
    sources: tuple[str, ...] = ()
    """CIDR ranges of clients that may connect, sorted; empty for everybody."""


class L4Listener(msgspec.Struct, frozen=True):
    """One port whose connections are forwarded as they are."""

    port: int
    protocol: Literal["TCP", "UDP", "TLS"]
    hosts: Collection[L4Host]
    """Sorted by hostname; one without hostname on TCP and UDP. A name that none covers is cut."""


class Destination(msgspec.Struct, frozen=True):
    """An address that clients wanted to reach when a proxy of theirs took the connection."""

    address: str
    """IPv4 or IPv6, in its canonical text."""
    port: int
    cluster: str
    sources: tuple[str, ...] = ()
    """CIDR ranges of clients; empty for everybody. A client is who the PROXY header tells, if the
    port knows which proxies to believe; else who connects."""


class ProxyProtocolListener(msgspec.Struct, frozen=True):
    """A port for proxies that say by the PROXY protocol (1 or 2) which address was wanted."""

    port: int
    destinations: Collection[Destination]
    """Sorted by address and port; addresses are distinct. Any other destination is cut."""
    proxies: tuple[str, ...] = ()
    """CIDR ranges of the proxies that are believed, sorted; empty for all."""


class Gateway(msgspec.Struct, frozen=True):
    """Everything one data plane serves."""

    name: str
    """``namespace/name``."""
    bind_address: str = ""
    """The one address to listen on; empty for every address, IPv4 and IPv6."""
    listeners: tuple[Listener, ...] = ()
    """Sorted by port; ports are distinct."""
    streams: tuple[L4Listener, ...] = ()
    """Sorted by port and protocol. A TLS one may share its port with an HTTPS listener, whose
    names then are not its own."""
    tunnels: tuple[ProxyProtocolListener, ...] = ()
    """Sorted by port."""
    apis: tuple[ApiListener, ...] = ()
    """Sorted by port."""
    clusters: Collection[Cluster] = ()
    """Sorted by name; every cluster that a backend names, and no other."""
    certificates: tuple[Certificate, ...] = ()
    """Sorted by name; every certificate that something names, and no other."""
    trust: tuple[TrustBundle, ...] = ()
    """Sorted by name; every bundle that something names, and no other."""
    secrets: tuple[SecretFile, ...] = ()
    """Sorted by name; those that routes' authentication names."""
    edge: DataPlaneSettings = DataPlaneSettings()
    snippets: tuple[Snippet, ...] = ()
    """Of the contexts ``main`` and ``http``."""
    usage: UsageReports | None = None
    """Of NGINX Plus; None: nothing is said of it."""
