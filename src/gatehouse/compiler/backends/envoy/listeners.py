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
from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import address_pb2
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.config.listener.v3 import listener_pb2, udp_listener_config_pb2

from gatehouse.compiler.backends.configuration import ClusterReferences, Clusters
from gatehouse.compiler.backends.envoy import (
    client_ip,
    connection_log,
    connection_manager,
    dynamic_clusters,
    extensions,
    http_connect,
    l4,
    log_entries,
    names,
    passthrough,
    proxy_protocol,
    quoting,
    secrets,
)
from gatehouse.compiler.backends.envoy.filter_chains import HttpsFilterChain, chains
from gatehouse.compiler.backends.envoy.log_entries import ListenerLog
from gatehouse.compiler.backends.envoy.protobufs import build_socket_address, written
from gatehouse.compiler.backends.fragments import Fragment, entry_fragment, failed_fragment
from gatehouse.compiler.backends.source import GatewaySource, capabilities, gateway_configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.access_log import LocalReason, objects_text
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.origin import Origin, port_origin
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, XdsResource
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

_PortKey = tuple[str, int]
"""Family (``tcp`` or ``udp``) and number of a port."""


class ListenerPort(msgspec.Struct, frozen=True):
    """A port, and all inputs of its listener."""

    origin: Origin
    number: int
    bind_address: str
    edge: DataPlaneSettings
    counts: bool = False
    """True if the agent counts requests."""
    counts_connections: bool = False
    """True if the agent counts L4 connections."""
    shares_limits: bool = False
    """True if there is a rate limit service."""
    plain: bool = False
    """True if the port serves HTTP without TLS."""
    chains: tuple[HttpsFilterChain, ...] = ()
    client_validation: ir.ClientValidation | None = None
    streams: tuple[ir.L4Listener, ...] = ()
    """TCP or TLS listeners, or one UDP listener. TLS listeners have only the hosts with a chain."""
    backend: str = ""
    """Backends of a UDP port, for the access log."""
    passthrough: bool = False
    """True if TLS passes through."""
    tunnel: proxy_protocol.ProxyProtocolInputs | None = None
    connect: http_connect.HttpConnectInputs | None = None

    @property
    def log(self) -> ListenerLog | None:
        """Name in the access log, and style of its lines; None: nothing is logged."""
        if self.edge.access_log is None:
            return None
        return ListenerLog(self.owner, self.edge.access_log.style)

    @property
    def connection_log(self) -> ListenerLog | None:
        """Logs of L4 connections; None: there are none."""
        if not self.counts_connections:
            return self.log
        log = self.log or ListenerLog(self.owner, entries=False)
        return msgspec.structs.replace(log, counts=True)

    @property
    def owner(self) -> str:
        """Name in the access log and in traces: Gateway and port."""
        return f"{self.origin.namespace}/{self.origin.name}:{self.number}"

    @property
    def family(self) -> str:
        """``udp`` or ``tcp``."""
        udp = any(stream.protocol == "UDP" for stream in self.streams)
        return "udp" if udp else "tcp"


def gateway_ports(ask: Ask, gateway: GatewaySource) -> Table[_PortKey, ListenerPort]:
    """Return the ports of a gateway. A TLS listener and an HTTPS listener may share a port."""
    return Table(((port.family, port.number), port) for port in _ports(ask, gateway))


def _ports(ask: Ask, gateway: GatewaySource) -> Iterator[ListenerPort]:
    configuration = gateway_configuration(ask, gateway)
    tls = {
        l4_listener.port: l4_listener
        for l4_listener in configuration.l4_listeners
        if l4_listener.protocol == "TLS"
    }
    able = capabilities(ask, gateway)

    def of(number: int, **more: Any) -> ListenerPort:
        port = ListenerPort(
            port_origin(gateway.name, number),
            number,
            configuration.bind_address,
            configuration.settings,
            counts=able.request_counts,
            counts_connections=able.connection_counts,
            shares_limits=bool(configuration.counter),
            **more,
        )
        listener = tls.pop(number, None)
        if listener is None:
            return port
        hosts = ask(passthrough.chained_hosts, gateway, number)
        return msgspec.structs.replace(
            port,
            streams=(ir.L4Listener(number, "TLS", hosts),),
            passthrough=ask(passthrough.passes, gateway, number),
        )

    for http_listener in configuration.listeners:
        yield of(
            http_listener.port,
            plain=http_listener.protocol == "HTTP",
            chains=ask(chains, gateway, http_listener.port)
            if http_listener.protocol == "HTTPS"
            else (),
            client_validation=http_listener.client_validation,
        )
    for stream in configuration.l4_listeners:
        if stream.protocol == "UDP":
            yield of(stream.port, streams=(stream,), backend=_backends(ask, gateway, stream))
        elif stream.protocol == "TCP":
            yield of(stream.port, streams=(stream,))
        elif stream.port in tls:
            yield of(stream.port)
    for tunnel in configuration.proxy_protocol_listeners:
        yield of(tunnel.port, tunnel=ask(proxy_protocol.inputs, gateway, tunnel.port))
    for connect in configuration.http_connect_listeners:
        yield of(connect.port, connect=http_connect.HttpConnectInputs(connect.proxies))


def _backends(ask: Ask, gateway: GatewaySource, stream: ir.L4Listener) -> str:
    """Return the backends of a listener as log entries name them."""
    by_name = ClusterReferences(ask, gateway)
    names_of_clusters = [backend.cluster for host in stream.hosts for backend in host.backends]
    return objects_text(by_name[name].origin for name in names_of_clusters if name in by_name)


def listener_resources(ask: Ask, gateway: GatewaySource) -> Table[_PortKey, Fragment[XdsResource]]:
    """Return the listeners of all ports."""
    return ask.map_keys(_resources, _ports_of_listeners, gateway, failed_fragment)


def _ports_of_listeners(ask: Ask, gateway: GatewaySource) -> Table[_PortKey, ListenerPort]:
    """Return the ports with numbers in place of the names of certificates for HTTPS.

    A renewed certificate has another name. So its listener is not built again.
    """
    return ask.derive(ask(gateway_ports, gateway), lambda _key, port: _numbered(port))


def _numbered(port: ListenerPort) -> ListenerPort:
    numbered = [
        msgspec.structs.replace(chain, certificates=tuple(map(str, range(len(chain.certificates)))))
        for chain in port.chains
    ]
    return msgspec.structs.replace(port, chains=tuple(numbered))


def _resources(ask: Ask, gateway: GatewaySource, _1: _PortKey) -> Fragment[XdsResource] | None:

    def resources(port: ListenerPort) -> Iterator[XdsResource]:
        yield _listener(port)
        if port.tunnel is not None:
            yield from proxy_protocol.inner_resources(
                port.number, port.tunnel, port.connection_log, port.origin
            )
        if port.family == "udp":
            host = next(iter(port.streams[0].hosts))
            yield from l4.mixed(port.number, host, Clusters(ask, gateway))

    return entry_fragment(ask, _ports_of_listeners, gateway, _1, resources)


def _listener(port: ListenerPort) -> XdsResource:
    """Build the listener of a port."""
    proto = listener_pb2.Listener(
        name=names.listener_name(port.number, port.family), address=_address(port)
    )
    if port.tunnel is not None:
        proxy_protocol.fill(proto, port.number, port.tunnel, port.connection_log)
        return _resource(port, proto)
    if port.family == "udp":
        proto.udp_listener_config.CopyFrom(udp_listener_config_pb2.UdpListenerConfig())
        host = next(iter(port.streams[0].hosts))
        logs = []
        if port.connection_log:
            route = connection_log.escaped_rule(host.origin, host.rule)
            logs.extend(connection_log.session_logs(port.connection_log, route, port.backend))
        proto.listener_filters.append(l4.datagrams(port.number, host, logs))
        return _resource(port, proto)
    proto.listener_filters.extend(client_ip.listener_filters(port.edge))
    if port.connect is not None:
        http_connect.fill_connect(proto, port.number, port.connect, port.connection_log)
    tls = any(stream.protocol == "TLS" for stream in port.streams)
    if tls:
        dynamic_clusters.limit_buffers(proto)
    elif port.streams:
        dynamic_clusters.keep_clients_alive(proto)
    if port.streams and port.connection_log:
        proto.access_log.extend(connection_log.logs_of_unmatched(port.connection_log, {}))
    if port.log and port.client_validation is not None and port.client_validation.required:
        proto.access_log.extend(connection_log.logs_of_rejected_certificates(port.log))
    if tls or port.chains:
        proto.listener_filters.append(extensions.tls_inspector())
    proto.filter_chains.extend(_chains(port))
    if not proto.filter_chains:
        proto.filter_chains.append(_closing_chain(port))
    client_ip.admit(proto, port.edge)
    return _resource(port, proto)


def _resource(port: ListenerPort, proto: listener_pb2.Listener) -> XdsResource:
    return XdsResource.make(LISTENER_TYPE_URL, proto.name, written(proto), origins=(port.origin,))


def _address(port: ListenerPort) -> address_pb2.Address:
    udp = port.family == "udp"
    if port.bind_address:
        return build_socket_address(port.bind_address, port.number, udp=udp)
    if not port.edge.ipv6:
        return build_socket_address("0.0.0.0", port.number, udp=udp)  # noqa: S104
    return build_socket_address("::", port.number, udp=udp, ipv4_too=port.edge.ipv4)


def _chains(port: ListenerPort) -> Iterable[components.FilterChain]:
    yield from _http_chains(port)
    for stream in port.streams:
        for host in stream.hosts:
            yield _stream(port, stream, host)
    # A chain for all names would shadow this one: then every hostname has its own chain.
    if port.passthrough and not any(_for_all(port)):
        yield components.FilterChain(
            name=names.filter_chain_name(port.number, "by name"),
            filter_chain_match=_sni_match(("",)),
            filters=dynamic_clusters.forwarding_filters(
                f"tls_{port.number}",
                names.by_name(port.number),
                dynamic_clusters.SNI,
                _logs(port, log_entries.ROUTE_OF_CLUSTER),
            ),
        )


def _closing_chain(port: ListenerPort) -> components.FilterChain:
    """Return a chain that closes each connection, for a port on which nothing can be served.

    Envoy rejects a listener without chains.
    """
    logs = _logs(port, "") if port.streams else ()
    prefix = f"closed_{port.number}"
    return components.FilterChain(
        name=names.filter_chain_name(port.number, "closed"),
        filters=[l4.forward_filter(prefix, ir.L4Host(""), unlimited=False, logs=logs)],
    )


def _for_all(port: ListenerPort) -> Iterable[bool]:
    for chain in port.chains:
        yield "" in chain.names and bool(chain.certificates)
    for stream in port.streams:
        for host in stream.hosts:
            yield not host.hostname


def _http_chains(port: ListenerPort) -> Iterable[components.FilterChain]:
    if not port.plain and not port.chains:
        return
    common = connection_manager.manager(
        port.number,
        port.edge,
        port.log,
        owner=port.owner,
        counts=port.counts,
        shares_limits=port.shares_limits,
    )

    def http(listener: str) -> components.Filter:
        manager = connection_manager.for_listener(common, port.number, listener, port.edge)
        return extensions.http_connections(manager)

    if port.plain:
        name = names.filter_chain_name(port.number, "")
        yield components.FilterChain(name=name, filters=[http("")])
    for chain in port.chains:
        # Names without a certificate have no chain: handshakes fail.
        if chain.certificates:
            listener = chain.listener if port.edge.sni_host_validation else ""
            yield _https(port, chain, http(listener))


def _https(
    port: ListenerPort, chain: HttpsFilterChain, http: components.Filter
) -> components.FilterChain:
    name = names.filter_chain_name(port.number, chain.listener, chain.number)
    certificates = [
        names.server_certificate(name, index) for index in range(len(chain.certificates))
    ]
    alpn = ("h2", "http/1.1") if port.edge.http2 else ("http/1.1",)
    validation = port.client_validation
    trust = names.client_trust_name(port.number) if validation is not None else ""
    required = validation is not None and validation.required
    return components.FilterChain(
        name=name,
        filter_chain_match=_sni_match(chain.names),
        filters=[http],
        transport_socket=secrets.downstream_tls(
            certificates, *alpn, clients=trust, required=required, tls=chain.tls
        ),
    )


def _logs(
    port: ListenerPort, route: str, no_cluster: LocalReason = LocalReason.NO_ROUTE
) -> list[accesslog_pb2.AccessLog]:
    if port.connection_log is None:
        return []
    return connection_log.connection_logs(port.connection_log, {"route": route}, no_cluster)


def _stream(port: ListenerPort, stream: ir.L4Listener, host: ir.L4Host) -> components.FilterChain:
    prefix = f"{stream.protocol.lower()}_{port.number}"
    name = names.filter_chain_name(port.number, f"stream/{host.hostname}")
    unlimited = stream.protocol != "TLS" or bool(host.certificates)
    # A cluster that does not exist stands for invalid backends, or for none.
    rule = connection_log.escaped_rule(host.origin, host.rule)
    logs = _logs(port, rule, host.reason_without_backends)
    tcp_proxy = l4.forward_filter(prefix, host, unlimited=unlimited, logs=logs)
    proto = components.FilterChain(name=name, filters=[tcp_proxy])
    if stream.protocol == "TLS":
        proto.filter_chain_match.CopyFrom(_sni_match((host.hostname,)))
    if host.sources:
        # Connections from other sources match no chain and reach no backend.
        proto.filter_chain_match.source_prefix_ranges.extend(map(client_ip.network, host.sources))
    # Without a backend the connection is closed before the handshake.
    if host.certificates and host.backends:
        certificates = [names.server_certificate(name, n) for n in range(len(host.certificates))]
        proto.transport_socket.CopyFrom(secrets.downstream_tls(certificates, tls=host.tls))
    return proto


def _sni_match(hostnames: tuple[str, ...]) -> components.FilterChainMatch:
    """Match hostnames in SNI; an empty one matches all."""
    server_names = [] if "" in hostnames else sorted(map(quoting.check_hostname, hostnames))
    return components.FilterChainMatch(server_names=server_names, transport_protocol="tls")
