"""IR of external machines: listeners in front of upstreams, like a Gateway.

The IR is that of Gateways, so that the same back ends can be used. A listener names an upstream;
its servers are those of the Service port that owns the upstream.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from gatehouse.apis.external_load_balancers import MachineListener
from gatehouse.compiler.frontends.external_load_balancer.claims import PortClaim
from gatehouse.compiler.frontends.external_load_balancer.findings import (
    LoadBalancerFinding,
    LoadBalancerReason,
    Note,
)
from gatehouse.compiler.frontends.external_load_balancer.inputs import source_name
from gatehouse.compiler.frontends.external_load_balancer.ownership import upstream_ownership
from gatehouse.compiler.frontends.external_load_balancer.servers import upstream_servers
from gatehouse.compiler.frontends.external_load_balancer.sources import spec_of
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.load_balancing import UpstreamServer
from gatehouse.dataplane.origin import port_of
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.incremental.query import Ask, Key

ClusterProtocol = Literal["http", "tcp", "udp"]

_PLAIN = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")

_BY_NAME = ("HTTP", "TLS")
"""Protocols whose clients send a hostname."""


class Listening(msgspec.Struct, frozen=True):
    """The valid listeners of a load balancer, and findings about all of them."""

    listeners: tuple[MachineListener, ...] = ()
    findings: tuple[LoadBalancerFinding, ...] = ()
    notes: tuple[Note, ...] = ()


def listening(ask: Ask, balancer: Key) -> Listening:
    """Return the listeners of a load balancer. Of two conflicting ones the first is served."""
    spec = ask(spec_of, balancer)
    if isinstance(spec, LoadBalancerFinding):
        return Listening()
    claims = {claim.name: claim for claim in ask(upstream_ownership, balancer).won}
    accepted: list[MachineListener] = []
    findings: list[LoadBalancerFinding] = []
    for number, listener in enumerate(spec.listeners):
        where = f"spec.listeners[{number}]"
        problem = _problem(listener, accepted)
        if problem:
            findings.append(
                LoadBalancerFinding(LoadBalancerReason.LISTENER_CONFLICT, f"{where}: {problem}")
            )
            continue
        accepted.append(listener)
        problem = _upstream_problem(listener, claims)
        if problem:
            findings.append(
                LoadBalancerFinding(LoadBalancerReason.NO_UPSTREAM, f"{where}: {problem}")
            )
    served = {_upstream_of(listener) for listener in accepted}
    notes = [_unused(claim) for name, claim in claims.items() if name not in served]
    return Listening(tuple(accepted), tuple(findings), tuple(notes))


def _problem(listener: MachineListener, accepted: Iterable[MachineListener]) -> str:
    if listener.hostname and listener.protocol not in _BY_NAME:
        return f"hostname: must be empty for protocol {listener.protocol}"
    for other in accepted:
        if other.port != listener.port or (listener.protocol == "UDP") != (other.protocol == "UDP"):
            continue
        if other.protocol != listener.protocol:
            return f"port: {listener.port} already used with protocol {other.protocol}"
        if other.hostname.lower() == listener.hostname.lower():
            name = f" for {listener.hostname}" if listener.hostname else ""
            return f"port: {listener.port} already has a listener{name}"
    return ""


def _upstream_problem(listener: MachineListener, claims: Mapping[UpstreamName, PortClaim]) -> str:
    name = _upstream_of(listener)
    claim = claims.get(name)
    if claim is None:
        return f"upstream: {name} not claimed by any Service port"
    if (claim.protocol == "UDP") != (listener.protocol == "UDP"):
        where = f"Service {claim.service[1]}/{claim.service[2]} port {claim.port!r}"
        return f"protocol: must be {claim.protocol} for upstream {name} of {where}"
    return ""


def _unused(claim: PortClaim) -> Note:
    unused = f"upstream {claim.name} not used by any listener of {source_name(claim.balancer)}"
    message = f"port {claim.port!r}: {unused}"
    return Note(claim.service, LoadBalancerFinding(LoadBalancerReason.NO_LISTENER, message))


def _upstream_of(listener: MachineListener) -> UpstreamName:
    return UpstreamName("http" if listener.protocol == "HTTP" else "stream", listener.upstream)


def _cluster_protocol(listener: MachineListener) -> ClusterProtocol:
    return {"HTTP": "http", "UDP": "udp"}.get(listener.protocol, "tcp")  # type: ignore[return-value]


def gateway(ask: Ask, balancer: Key) -> ir.GatewayConfiguration:
    """Return the IR of a load balancer's machines."""
    spec = ask(spec_of, balancer)
    served = ask(listening, balancer).listeners
    needed = sorted({(_upstream_of(listener), _cluster_protocol(listener)) for listener in served})
    clusters = [ask(_cluster, balancer, name, protocol) for name, protocol in needed]
    return ir.GatewayConfiguration(
        name=source_name(balancer),
        bind_address="" if isinstance(spec, LoadBalancerFinding) else spec.bind_address,
        listeners=tuple(_http_ports(balancer, served)),
        l4_listeners=tuple(_stream_ports(balancer, served)),
        clusters=tuple(sorted(clusters, key=lambda cluster: cluster.name)),
    )


def _http_ports(balancer: Key, served: Iterable[MachineListener]) -> Iterable[ir.Listener]:
    ports: dict[int, list[http.VirtualHost]] = {}
    for listener in served:
        if listener.protocol == "HTTP":
            ports.setdefault(listener.port, []).append(_virtual_host(balancer, listener))
    for port, hosts in sorted(ports.items()):
        yield ir.Listener(port, "HTTP", tuple(sorted(hosts, key=lambda host: host.hostname)))


def _virtual_host(balancer: Key, listener: MachineListener) -> http.VirtualHost:
    hostname = listener.hostname.lower()
    name = f"{balancer[1]}/{balancer[2]}/{listener.port}/{hostname}"
    action = http.Forward((http.Backend(_cluster_name(_upstream_of(listener), "http")),))
    origin = port_of(balancer, listener.port)
    route = http.Route(name, http.Match(), action, origin=origin)
    return http.VirtualHost(hostname, (route,), listener=hostname)


def _stream_ports(balancer: Key, served: Iterable[MachineListener]) -> Iterable[ir.L4Listener]:
    ports: dict[tuple[int, Literal["TCP", "UDP", "TLS"]], list[ir.L4Host]] = {}
    for listener in served:
        if listener.protocol != "HTTP":
            backend = ir.L4Backend(
                _cluster_name(_upstream_of(listener), _cluster_protocol(listener))
            )
            origin = port_of(balancer, listener.port)
            host = ir.L4Host(
                listener.hostname.lower(), (backend,), origin=origin, rule=listener.port
            )
            ports.setdefault((listener.port, listener.protocol), []).append(host)
    for (port, protocol), hosts in sorted(ports.items()):
        yield ir.L4Listener(port, protocol, tuple(sorted(hosts, key=lambda h: h.hostname)))


def _cluster(
    ask: Ask, balancer: Key, name: UpstreamName, protocol: ClusterProtocol
) -> http.Cluster:
    """Return the servers of an upstream as a cluster, which is empty if it has no servers."""
    claims = {claim.name: claim for claim in ask(upstream_ownership, balancer).won}
    claim = claims.get(name)
    servers: tuple[UpstreamServer, ...] = ()
    if claim is not None and (claim.protocol == "UDP") == (protocol == "udp"):
        servers = ask(upstream_servers, balancer, claim.service, claim.port).servers
    # Draining servers get no new clients, unless all servers are draining.
    serving = [server for server in servers if not server.draining] or servers
    endpoints = sorted(_endpoint(server.address) for server in serving)
    return http.Cluster(_cluster_name(name, protocol), tuple(endpoints), protocol)


def _endpoint(address: str) -> http.Endpoint:
    host, _, port = address.rpartition(":")
    return http.Endpoint(host.strip("[]"), int(port))


def upstream_cluster_names(name: UpstreamName) -> frozenset[str]:
    """Return the names of the clusters that an upstream can have."""
    protocol: tuple[ClusterProtocol, ...] = ("http",) if name.context == "http" else ("tcp", "udp")
    return frozenset(_cluster_name(name, kind) for kind in protocol)


def _cluster_name(name: UpstreamName, protocol: ClusterProtocol) -> str:
    """Return a unique name of the form ``[a-z0-9_-]+``, readable for simple upstream names."""
    if _PLAIN.fullmatch(name.name):
        return f"{protocol}-{name.name}"
    return f"{protocol}_{hashlib.sha256(name.name.encode()).hexdigest()[:32]}"
