"""Listeners: one per port; a name in the handshake chooses the filter chain.

A listener's own fields never change while its port is served in the same way; chains come, go and
change by themselves, and with one its connections end. So a chain depends on its name, the number
of its certificates and how clients are met, not on what is served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.config.listener.v3 import listener_pb2, udp_listener_config_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2

from gatehouse.backends.envoy import clients, connections, names, quoting, secrets, streams
from gatehouse.backends.envoy.chains import Chain, Chains
from gatehouse.backends.envoy.protobufs import address, packed, written
from gatehouse.ir import gateway as ir
from gatehouse.ir import http
from gatehouse.ir.settings import Edge
from gatehouse.xds.resources import LISTENER, Resource

_INSPECTOR = "envoy.filters.listener.tls_inspector"


class Port(msgspec.Struct, frozen=True):
    """A port, and all that its listener depends on."""

    number: int
    bind_address: str
    edge: Edge
    plain: bool = False
    """Whether HTTP is served in the clear."""
    chains: tuple[Chain, ...] = ()
    client_validation: ir.ClientValidation | None = None
    streams: tuple[ir.StreamListener, ...] = ()
    """Of TCP or TLS, or the one of UDP."""

    @property
    def family(self) -> str:
        """``udp``, or ``tcp`` for all else."""
        udp = any(each.protocol == "UDP" for each in self.streams)
        return "udp" if udp else "tcp"


def ports(gateway: ir.Gateway, chains: Mapping[int, Chains]) -> Iterator[Port]:
    """Give the ports of a gateway; TLS listeners may share theirs with HTTPS."""
    tls = {each.port: each for each in gateway.streams if each.protocol == "TLS"}
    for each in gateway.listeners:
        shared = tls.pop(each.port, None)
        yield Port(
            each.port,
            gateway.bind_address,
            gateway.edge,
            plain=each.protocol == "HTTP",
            chains=chains[each.port].all() if each.protocol == "HTTPS" else (),
            client_validation=each.client_validation,
            streams=(shared,) if shared is not None else (),
        )
    for stream in gateway.streams:
        if stream.protocol != "TLS" or stream.port in tls:
            yield Port(stream.port, gateway.bind_address, gateway.edge, streams=(stream,))


def listener(port: Port, known: Mapping[str, http.Cluster]) -> Resource:
    """Give the listener of a port."""
    made = listener_pb2.Listener(
        name=names.listener(port.number, port.family), address=_address(port)
    )
    if port.family == "udp":
        made.udp_listener_config.CopyFrom(udp_listener_config_pb2.UdpListenerConfig())
        made.listener_filters.append(
            streams.datagrams(port.number, port.streams[0].hosts[0], known)
        )
        return _resource(made)
    made.listener_filters.extend(clients.listener_filters(port.edge))
    secure = bool(port.chains) or any(each.protocol == "TLS" for each in port.streams)
    if secure:
        made.listener_filters.append(
            components.ListenerFilter(
                name=_INSPECTOR, typed_config=packed(tls_inspector_pb2.TlsInspector())
            )
        )
    made.filter_chains.extend(_chains(port, known))
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


def _http(port: Port, listener: str) -> Any:
    manager = connections.manager(port.number, listener, port.edge)
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
    listener = chain.listener if port.edge.names_compared else ""
    return components.FilterChain(
        name=name,
        filter_chain_match=_asked(chain.names),
        filters=[_http(port, listener)],
        transport_socket=secrets.server(shown, *alpn, clients=trust, required=required),
    )


def _stream(
    port: int, stream: ir.StreamListener, host: ir.StreamHost, known: Mapping[str, http.Cluster]
) -> Any:
    prefix = f"{stream.protocol.lower()}_{port}"
    name = names.chain(port, f"stream/{host.hostname}")
    made = components.FilterChain(name=name, filters=[streams.forward(prefix, host, known)])
    if stream.protocol == "TLS":
        made.filter_chain_match.CopyFrom(_asked((host.hostname,)))
    # Who is sent nowhere is cut before the handshake.
    if host.certificates and any(each.cluster for each in host.backends):
        shown = [names.server_certificate(name, n) for n in range(len(host.certificates))]
        made.transport_socket.CopyFrom(secrets.server(shown))
    return made


def _asked(hostnames: tuple[str, ...]) -> Any:
    """Ask for names in a handshake; an empty one stands for all."""
    wanted = [] if "" in hostnames else sorted(map(quoting.hostname, hostnames))
    return components.FilterChainMatch(server_names=wanted, transport_protocol="tls")
