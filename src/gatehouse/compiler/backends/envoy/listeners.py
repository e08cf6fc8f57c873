"""Listeners: one per port. The SNI selects the filter chain.

A listener's own fields do not change while its port is served in the same way. Chains are added,
removed and changed individually, and the connections of a changed chain are closed. So a chain
depends on its hostnames, the number of its certificates and the settings towards clients, not on
routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from envoy.config.core.v3 import address_pb2
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.config.listener.v3 import listener_pb2, udp_listener_config_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2

from gatehouse.compiler.backends.configuration import Clusters
from gatehouse.compiler.backends.envoy import (
    client_ip,
    connection_manager,
    dynamic_clusters,
    l4,
    names,
    passthrough,
    proxy_protocol,
    quoting,
    secrets,
)
from gatehouse.compiler.backends.envoy.filter_chains import Chain, chains
from gatehouse.compiler.backends.envoy.protobufs import address, packed, written
from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.fragments import Fragment, failed
from gatehouse.compiler.backends.source import Source, configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.origin import Origin, of_port
from gatehouse.dataplane.xds.resources import LISTENER, Resource
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

PortKey = tuple[str, int]
"""Family (``tcp`` or ``udp``) and number of a port."""

_INSPECTOR = "envoy.filters.listener.tls_inspector"


class Port(msgspec.Struct, frozen=True):
    """A port, and all inputs of its listener."""

    origin: Origin
    number: int
    bind_address: str
    edge: DataPlaneSettings
    plain: bool = False
    """True if the port serves HTTP without TLS."""
    chains: tuple[Chain, ...] = ()
    client_validation: ir.ClientValidation | None = None
    streams: tuple[ir.L4Listener, ...] = ()
    """TCP or TLS listeners, or one UDP listener. TLS listeners have only the hosts with a chain."""
    passthrough: bool = False
    """True if TLS passes through."""
    tunnel: proxy_protocol.ProxyProtocolInputs | None = None

    @property
    def family(self) -> str:
        """``udp`` or ``tcp``."""
        udp = any(each.protocol == "UDP" for each in self.streams)
        return "udp" if udp else "tcp"


def ports(ask: Ask, gateway: Source) -> Table[PortKey, Port]:
    """Return the ports of a gateway. A TLS listener and an HTTPS listener may share a port."""
    return Table(((port.family, port.number), port) for port in _ports(ask, gateway))


def _ports(ask: Ask, gateway: Source) -> Iterator[Port]:
    found = configuration(ask, gateway)
    tls = {each.port: each for each in found.l4_listeners if each.protocol == "TLS"}

    def of(number: int, **more: Any) -> Port:
        port = Port(
            of_port(gateway.name, number), number, found.bind_address, found.settings, **more
        )
        listener = tls.pop(number, None)
        if listener is None:
            return port
        hosts = ask(passthrough.chained_hosts, (gateway, number))
        return msgspec.structs.replace(
            port,
            streams=(ir.L4Listener(number, "TLS", hosts),),
            passthrough=ask(passthrough.passes, (gateway, number)),
        )

    for each in found.listeners:
        yield of(
            each.port,
            plain=each.protocol == "HTTP",
            chains=ask(chains, (gateway, each.port)) if each.protocol == "HTTPS" else (),
            client_validation=each.client_validation,
        )
    for stream in found.l4_listeners:
        if stream.protocol != "TLS":
            yield of(stream.port, streams=(stream,))
        elif stream.port in tls:
            yield of(stream.port)
    for tunnel in found.proxy_protocol_listeners:
        yield of(tunnel.port, tunnel=ask(proxy_protocol.inputs, (gateway, tunnel.port)))


def resources(ask: Ask, gateway: Source) -> Table[PortKey, Fragment[Resource]]:
    """Return the listeners of all ports."""
    return ask.map_keys(_resources, ports, gateway, failed)


def _resources(ask: Ask, which: tuple[Source, PortKey]) -> Fragment[Resource] | None:
    gateway, key = which
    port = ask.entry(ports, gateway, key)
    if port is None:
        return None
    try:
        result = [listener(port)]
        if port.family == "udp":
            host = next(iter(port.streams[0].hosts))
            result += l4.mixed(port.number, host, Clusters(ask, gateway))
    except Exception as error:
        return Fragment((), (unserved(port.origin, error),))
    return Fragment(tuple(result))


def listener(port: Port) -> Resource:
    """Build the listener of a port."""
    proto = listener_pb2.Listener(
        name=names.listener(port.number, port.family), address=_address(port)
    )
    if port.tunnel is not None:
        proxy_protocol.fill(proto, port.number, port.tunnel)
        return _resource(port, proto)
    if port.family == "udp":
        proto.udp_listener_config.CopyFrom(udp_listener_config_pb2.UdpListenerConfig())
        host = next(iter(port.streams[0].hosts))
        proto.listener_filters.append(l4.datagrams(port.number, host))
        return _resource(port, proto)
    proto.listener_filters.extend(client_ip.listener_filters(port.edge))
    tls = any(each.protocol == "TLS" for each in port.streams)
    if tls:
        dynamic_clusters.limit_buffers(proto)
    if tls or port.chains:
        proto.listener_filters.append(
            components.ListenerFilter(
                name=_INSPECTOR, typed_config=packed(tls_inspector_pb2.TlsInspector())
            )
        )
    proto.filter_chains.extend(_chains(port))
    client_ip.admit(proto, port.edge)
    return _resource(port, proto)


def _resource(port: Port, proto: listener_pb2.Listener) -> Resource:
    return Resource.make(LISTENER, proto.name, written(proto), origins=(port.origin,))


def _address(port: Port) -> address_pb2.Address:
    udp = port.family == "udp"
    if port.bind_address:
        return address(port.bind_address, port.number, udp=udp)
    if not port.edge.ipv6:
        return address("0.0.0.0", port.number, udp=udp)  # noqa: S104
    return address("::", port.number, udp=udp, ipv4_too=port.edge.ipv4)


def _chains(port: Port) -> Iterable[components.FilterChain]:
    if port.plain:
        yield components.FilterChain(name=names.chain(port.number, ""), filters=[_http(port, "")])
    for chain in port.chains:
        # Without a certificate there is no chain: handshakes fail.
        if chain.certificates:
            yield _https(port, chain)
    for stream in port.streams:
        for host in stream.hosts:
            yield _stream(port.number, stream, host)
    # A chain for all names would shadow this one: then every hostname has its own chain.
    if port.passthrough and not any(_for_all(port)):
        yield components.FilterChain(
            name=names.chain(port.number, "by name"),
            filter_chain_match=_sni_match(("",)),
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


def _http(port: Port, listener: str) -> components.Filter:
    manager = connection_manager.manager(port.number, listener, port.edge)
    return components.Filter(
        name="envoy.filters.network.http_connection_manager", typed_config=packed(manager)
    )


def _https(port: Port, chain: Chain) -> components.FilterChain:
    name = names.chain(port.number, chain.listener, chain.number)
    certificates = [
        names.server_certificate(name, index) for index in range(len(chain.certificates))
    ]
    alpn = ("h2", "http/1.1") if port.edge.http2 else ("http/1.1",)
    validation = port.client_validation
    trust = names.client_trust(port.number) if validation is not None else ""
    required = validation is not None and validation.required
    listener = chain.listener if port.edge.sni_host_validation else ""
    return components.FilterChain(
        name=name,
        filter_chain_match=_sni_match(chain.names),
        filters=[_http(port, listener)],
        transport_socket=secrets.server(certificates, *alpn, clients=trust, required=required),
    )


def _stream(port: int, stream: ir.L4Listener, host: ir.L4Host) -> components.FilterChain:
    prefix = f"{stream.protocol.lower()}_{port}"
    name = names.chain(port, f"stream/{host.hostname}")
    unlimited = stream.protocol != "TLS" or bool(host.certificates)
    tcp_proxy = l4.forward(prefix, host, unlimited=unlimited)
    proto = components.FilterChain(name=name, filters=[tcp_proxy])
    if stream.protocol == "TLS":
        proto.filter_chain_match.CopyFrom(_sni_match((host.hostname,)))
    if host.sources:
        # Connections from other sources match no chain and reach no backend.
        proto.filter_chain_match.source_prefix_ranges.extend(map(client_ip.network, host.sources))
    # Without a backend the connection is closed before the handshake.
    if host.certificates and host.backends:
        certificates = [names.server_certificate(name, n) for n in range(len(host.certificates))]
        proto.transport_socket.CopyFrom(secrets.server(certificates))
    return proto


def _sni_match(hostnames: tuple[str, ...]) -> components.FilterChainMatch:
    """Match hostnames in SNI; an empty one matches all."""
    server_names = [] if "" in hostnames else sorted(map(quoting.hostname, hostnames))
    return components.FilterChainMatch(server_names=server_names, transport_protocol="tls")
