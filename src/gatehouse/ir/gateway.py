"""A gateway: listeners, certificates, clusters; what one data plane is to serve."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gatehouse.ir.http import Cluster, VirtualHost


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


class Listener(msgspec.Struct, frozen=True):
    """One port. All Gateway listeners that share it are folded into its virtual hosts."""

    port: int
    protocol: Literal["HTTP", "HTTPS"]
    virtual_hosts: tuple[VirtualHost, ...]
    """Sorted by hostname; hostnames are distinct. A name that none covers is answered 404 over
    plain text, and refused in the TLS handshake over HTTPS."""


class Gateway(msgspec.Struct, frozen=True):
    """Everything one data plane serves."""

    name: str
    """``namespace/name``."""
    bind_address: str = ""
    """The one address to listen on; empty for every address, IPv4 and IPv6."""
    listeners: tuple[Listener, ...] = ()
    """Sorted by port; ports are distinct."""
    clusters: tuple[Cluster, ...] = ()
    """Sorted by name; every cluster that a backend names, and no other."""
    certificates: tuple[Certificate, ...] = ()
    """Sorted by name; every certificate that a virtual host names, and no other."""
