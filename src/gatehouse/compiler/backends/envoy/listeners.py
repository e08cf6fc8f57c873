"""Listeners: one per port; a name in the handshake chooses the filter chain.

A listener's own fields never change while its port is served in the same way; chains come, go and
change by themselves, and with one its connections end. So a chain depends on its name, the number
of its certificates and how clients are met, not on what is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.config.listener.v3 import listener_pb2, udp_listener_config_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2

from gatehouse.compiler.backends.envoy import (
    client_ip,
    connection_manager,
    dynamic_clusters,
    l4,
    names,
    proxy_protocol,
    quoting,
    secrets,
)
from gatehouse.compiler.backends.envoy.filter_chains import Chain, Chains
from gatehouse.compiler.backends.envoy.protobufs import address, packed, written
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.xds.resources import LISTENER, Resource

_INSPECTOR = "envoy.filters.listener.tls_inspector"


class Port(msgspec.Struct, frozen=True):
    """A port, and all that its listener depends on."""

    number: int
    bind_address: str
    edge: DataPlaneSettings
    plain: bool = False
    """Whether HTTP is served in the clear."""
    chains: tuple[Chain, ...] = ()
    client_validation: ir.ClientValidation | None = None
    streams: tuple[ir.L4Listener, ...] = ()
    """Of TCP or TLS, or the one of UDP; of TLS with the names only that have a chain."""
    passthrough: bool = False
    """Whether TLS passes through."""
    tunnel: proxy_protocol.ProxyProtocolInputs | None = None

    @property
    def family(self) -> str:
        """``udp``, or ``tcp`` for all else."""
        udp = any(each.protocol == "UDP" for each in self.streams)
        return "udp" if udp else "tcp"


def ports(
    gateway: ir.Gateway,
    chains: Mapping[int, Chains],
    passing: Callable[[ir.L4Listener, tuple[Chain, ...]], tuple[ir.L4Host, ...]],
    entrance: Callable[[ir.ProxyProtocolListener], proxy_protocol.ProxyProtocolInputs],
) -> Iterator[Port]:
    """Give the ports of a gateway; TLS listeners may share theirs with HTTPS.

    ``passing`` gives the names of a TLS port that have a chain, beside those that it is given;
    ``entrance`` what there is to be known of a tunnel's port.
    """
    tls = {each.port: each for each in gateway.streams if each.protocol == "TLS"}

    def of(number: int, **more: Any) -> Port:
        made = Port(number, gateway.bind_address, gateway.edge, **more)
        found = tls.pop(number, None)
        if found is None:
            return made
        return msgspec.structs.replace(
            made,
            streams=(ir.L4Listener(number, "TLS", passing(found, made.chains)),),
            passthrough=any(not host.certificates for host in found.hosts),
        )

    for each in gateway.listeners:
        yield of(
            each.port,
            plain=each.protocol == "HTTP",
            chains=chains[each.port].all() if each.protocol == "HTTPS" else (),
            client_validation=each.client_validation,
        )
    for stream in gateway.streams:
        if stream.protocol != "TLS":
            yield Port(stream.port, gateway.bind_address, gateway.edge, streams=(stream,))
        elif stream.port in tls:
            yield of(stream.port)
    for tunnel in gateway.tunnels:
        yield of(tunnel.port, tunnel=entrance(tunnel))


def listener(port: Port, known: Mapping[str, http.Cluster]) -> Resource:
    """Give the listener of a port."""
    made = listener_pb2.Listener(
        name=names.listener(port.number, port.family), address=_address(port)
    )
    if port.tunnel is not None:
        proxy_protocol.fill(made, port.number, port.tunnel)
        return _resource(made)
    if port.family == "udp":
        made.udp_listener_config.CopyFrom(udp_listener_config_pb2.UdpListenerConfig())
        made.listener_filters.append(
            l4.datagrams(port.number, next(iter(port.streams[0].hosts)), known)
        )
        return _resource(made)
    made.listener_filters.extend(client_ip.listener_filters(port.edge))
    tls = any(each.protocol == "TLS" for each in port.streams)
    if tls:
        dynamic_clusters.limit_buffers(made)
    if tls or port.chains:
        made.listener_filters.append(
            components.ListenerFilter(
                name=_INSPECTOR, typed_config=packed(tls_inspector_pb2.TlsInspector())
            )
        )
    made.filter_chains.extend(_chains(port, known))
    client_ip.admit(made, port.edge)
    return _resource(made)


def _resource(made: Any) -> Resource:
    return Resource.make(LISTENER, made.name, written(made))


def _address(port: Port) -> Any:
    udp = port.family == "udp"
    if port.bind_address:
        return address(port.bind_address, port.number, udp=udp)
    if not port.edge.ipv6:
        return address("0.0.0.0", port.number, udp=udp)  # noqa: S104
    return address("::", port.number, udp=udp, ipv4_too=port.edge.ipv4)


def _chains(port: Port, known: Mapping[str, http.Cluster]) -> Iterable[Any]:
    if port.plain:
        yield components.FilterChain(name=names.chain(port.number, ""), filters=[_http(port, "")])
    for chain in port.chains:
        # Who has nothing to show is not spoken to.
        if chain.certificates:
            yield _https(port, chain)
    for stream in port.streams:
        for host in stream.hosts:
            yield _stream(port.number, stream, host, known)
    # With a chain for all names, every one has a chain of its own.
    if port.passthrough and not any(_for_all(port)):
        yield components.FilterChain(
            name=names.chain(port.number, "by name"),
            filter_chain_match=_asked(("",)),
            filters=dynamic_clusters.filters(
                f"tls_{port.number}", names.by_name(port.number), dynamic_clusters.SNI
            ),
        )


def _for_all(port: Port) -> Iterable[bool]:
    for chain in port.chains:
        yield "" in chain.names and bool(chain.certificates)
    for stream in port.streams:
        for host in stream.hosts:
            yield not host.hostname


def _http(port: Port, listener: str) -> Any:
    manager = connection_manager.manager(port.number, listener, port.edge)
    return components.Filter(
        name="envoy.filters.network.http_connection_manager", typed_config=packed(manager)
    )


def _https(port: Port, chain: Chain) -> Any:
    name = names.chain(port.number, chain.listener, chain.number)
    shown = [names.server_certificate(name, place) for place in range(len(chain.certificates))]
    alpn = ("h2", "http/1.1") if port.edge.http2 else ("http/1.1",)
    wanted = port.client_validation
    trust = names.client_trust(port.number) if wanted is not None else ""
    required = wanted is not None and wanted.required
    listener = chain.listener if port.edge.sni_host_validation else ""
    return components.FilterChain(
        name=name,
        filter_chain_match=_asked(chain.names),
        filters=[_http(port, listener)],
        transport_socket=secrets.server(shown, *alpn, clients=trust, required=required),
    )


def _stream(
    port: int, stream: ir.L4Listener, host: ir.L4Host, known: Mapping[str, http.Cluster]
) -> Any:
    prefix = f"{stream.protocol.lower()}_{port}"
    name = names.chain(port, f"stream/{host.hostname}")
    lasting = stream.protocol != "TLS" or bool(host.certificates)
    onward = l4.forward(prefix, host, known, lasting=lasting)
    made = components.FilterChain(name=name, filters=[onward])
    if stream.protocol == "TLS":
        made.filter_chain_match.CopyFrom(_asked((host.hostname,)))
    if host.sources:
        # Who comes from elsewhere finds no chain: no backend is asked for.
        made.filter_chain_match.source_prefix_ranges.extend(map(client_ip.network, host.sources))
    # Who is sent nowhere is cut before the handshake.
    if host.certificates and any(each.cluster for each in host.backends):
        shown = [names.server_certificate(name, n) for n in range(len(host.certificates))]
        made.transport_socket.CopyFrom(secrets.server(shown))
    return made


def _asked(hostnames: tuple[str, ...]) -> Any:
    """Ask for names in a handshake; an empty one stands for all."""
    wanted = [] if "" in hostnames else sorted(map(quoting.hostname, hostnames))
    return components.FilterChainMatch(server_names=wanted, transport_protocol="tls")
