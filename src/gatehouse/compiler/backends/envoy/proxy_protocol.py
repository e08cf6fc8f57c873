"""Ports for proxies that say by the PROXY protocol which address their clients wanted.

Whoever is not believed, says nothing, or names an address that nobody registered, is cut. A health
check without a destination (LOCAL, UNKNOWN) has that of the port itself, which is nobody's.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.extensions.filters.listener.proxy_protocol.v3 import proxy_protocol_pb2

from gatehouse.compiler.backends.envoy import client_ip, dynamic_clusters, names, quoting
from gatehouse.compiler.backends.envoy.fragments import ChangeTracker
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.ir import gateway as ir

PROXY_HEADER_TIMEOUT_SECONDS = 5.0
"""Seconds until the header must have come."""


class Listed(msgspec.Struct, frozen=True, order=True):
    """An address that not everybody may reach."""

    address: str
    sources: tuple[str, ...]


class ProxyProtocolInputs(msgspec.Struct, frozen=True):
    """What the listener of such a port depends on."""

    proxies: tuple[str, ...]
    listed: tuple[Listed, ...]


class Destinations:
    """The destinations of a port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._followed: ChangeTracker[ir.Destination] = ChangeTracker()
        self._listed: set[Listed] = set()

    def follow(
        self, destinations: Collection[ir.Destination]
    ) -> dynamic_clusters.DynamicClusterDiff:
        """Look at the destinations that there are now; say which of them changed."""
        fresh, gone = self._followed.follow(destinations)
        self._listed -= {Listed(each.address, each.sources) for each in gone}
        self._listed |= {Listed(each.address, each.sources) for each in fresh if each.sources}
        return dynamic_clusters.DynamicClusterDiff(
            list(self._directed(fresh)), list(self._directed(gone))
        )

    def _directed(self, found: list[ir.Destination]) -> Iterator[dynamic_clusters.DynamicCluster]:
        for each in found:
            # Whatever is no address is nobody's destination.
            with contextlib.suppress(InvalidValueError):
                yield destination(self._port, each)

    def entrance(self, proxies: tuple[str, ...]) -> ProxyProtocolInputs:
        """Give what of the port its listener depends on."""
        return ProxyProtocolInputs(proxies, tuple(sorted(self._listed)))


def destination(port: int, found: ir.Destination) -> dynamic_clusters.DynamicCluster:
    """Give the cluster of a destination. Raises InvalidValueError."""
    prefix = names.by_destination(port, found.sources)
    address = _address(found.address)
    shown = f"[{address}]" if address.version == 6 else str(address)
    return dynamic_clusters.DynamicCluster(f"{prefix}{shown}:{found.port}", found.cluster)


def fill(made: Any, port: int, entrance: ProxyProtocolInputs) -> None:
    """Write a port's listener. Raises InvalidValueError."""
    dynamic_clusters.limit_buffers(made)
    made.listener_filters.append(
        components.ListenerFilter(
            name="envoy.filters.listener.proxy_protocol",
            typed_config=packed(proxy_protocol_pb2.ProxyProtocol()),
        )
    )
    made.listener_filters_timeout.CopyFrom(quoting.seconds(PROXY_HEADER_TIMEOUT_SECONDS))
    made.filter_chains.extend(_chains(port, entrance))


def _chains(port: int, entrance: ProxyProtocolInputs) -> Iterator[Any]:
    believed = [client_ip.network(each) for each in entrance.proxies]
    for each in entrance.listed:
        made = components.FilterChain(
            name=names.chain(port, f"destination/{each.address}"),
            filters=_filters(port, each.sources),
        )
        address = _address(each.address)
        made.filter_chain_match.prefix_ranges.append(client_ip.network(str(address)))
        sources = [client_ip.network(source) for source in each.sources]
        if believed:
            made.filter_chain_match.source_prefix_ranges.extend(sources)
            made.filter_chain_match.direct_source_prefix_ranges.extend(believed)
        else:
            # A source that anybody may claim proves nothing.
            made.filter_chain_match.direct_source_prefix_ranges.extend(sources)
        yield made
    everything = components.FilterChain(
        name=names.chain(port, "by destination"), filters=_filters(port, ())
    )
    everything.filter_chain_match.direct_source_prefix_ranges.extend(believed)
    yield everything


def _filters(port: int, sources: tuple[str, ...]) -> list[Any]:
    prefix = names.by_destination(port, sources)
    return dynamic_clusters.filters(f"proxy_{port}", prefix, dynamic_clusters.DESTINATION)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise InvalidValueError("a destination is no address") from error
