"""What machines serve that are ours in whole: listeners in front of upstreams, as a gateway.

The IR is that of gateways, so that the same back ends write it. A listener names an upstream, and
whichever Service's port has claimed that answers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from gatehouse.apis.external_load_balancers import Listener
from gatehouse.compiler.frontends.external_load_balancer.claims import Claim
from gatehouse.compiler.frontends.external_load_balancer.findings import Finding, Note, Reason
from gatehouse.compiler.frontends.external_load_balancer.inputs import name_of
from gatehouse.compiler.frontends.external_load_balancer.ownership import upstream_ownership
from gatehouse.compiler.frontends.external_load_balancer.servers import servers
from gatehouse.compiler.frontends.external_load_balancer.sources import spec_of
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.load_balancing import Server
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.incremental.query import Ask, Key

Spoken = Literal["http", "tcp", "udp"]

_PLAIN = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")

_BY_NAME = ("HTTP", "TLS")
"""Protocols whose clients say which name they want."""


class Listening(msgspec.Struct, frozen=True):
    """The listeners that can be, and what is to be said of all."""

    listeners: tuple[Listener, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[Note, ...] = ()


def listening(ask: Ask, balancer: Key) -> Listening:
    """Give the listeners of a load balancer; of two that exclude each other the first is heard."""
    spec = ask(spec_of, balancer)
    if isinstance(spec, Finding):
        return Listening()
    claims = {claim.name: claim for claim in ask(upstream_ownership, balancer).won}
    taken: list[Listener] = []
    findings: list[Finding] = []
    for number, each in enumerate(spec.listeners):
        where = f"spec.listeners[{number}]"
        problem = _problem(each, taken)
        if problem:
            findings.append(Finding(Reason.LISTENER_CONFLICT, f"{where}: {problem}"))
            continue
        taken.append(each)
        missing = _missing(each, claims)
        if missing:
            findings.append(Finding(Reason.NO_UPSTREAM, f"{where}: {missing}"))
    heard = {_upstream_of(each) for each in taken}
    notes = [_unheard(claim) for name, claim in claims.items() if name not in heard]
    return Listening(tuple(taken), tuple(findings), tuple(notes))


def _problem(asked: Listener, taken: Iterable[Listener]) -> str:
    if asked.hostname and asked.protocol not in _BY_NAME:
        return f"hostname: clients of {asked.protocol} name none"
    for other in taken:
        if other.port != asked.port or (asked.protocol == "UDP") != (other.protocol == "UDP"):
            continue
        if other.protocol != asked.protocol:
            return f"port {asked.port} speaks {other.protocol} already"
        if other.hostname.lower() == asked.hostname.lower():
            name = f" for {asked.hostname}" if asked.hostname else ""
            return f"port {asked.port} has a listener{name} already"
    return ""


def _missing(asked: Listener, claims: Mapping[UpstreamName, Claim]) -> str:
    name = _upstream_of(asked)
    claim = claims.get(name)
    if claim is None:
        return f"no port of a Service is upstream {name}"
    if (claim.protocol == "UDP") != (asked.protocol == "UDP"):
        where = f"Service {claim.service[1]}/{claim.service[2]} port {claim.port!r}"
        return f"{asked.protocol}: upstream {name} is {where}, which is {claim.protocol}"
    return ""


def _unheard(claim: Claim) -> Note:
    message = f"port {claim.port!r}: no listener of {name_of(claim.balancer)} names {claim.name}"
    return Note(claim.service, Finding(Reason.NO_LISTENER, message))


def _upstream_of(listener: Listener) -> UpstreamName:
    return UpstreamName("http" if listener.protocol == "HTTP" else "stream", listener.upstream)


def _spoken(listener: Listener) -> Spoken:
    return {"HTTP": "http", "UDP": "udp"}.get(listener.protocol, "tcp")  # type: ignore[return-value]


def gateway(ask: Ask, balancer: Key) -> ir.Gateway:
    """Give what machines of a load balancer serve."""
    spec = ask(spec_of, balancer)
    heard = ask(listening, balancer).listeners
    needed = sorted({(_upstream_of(each), _spoken(each)) for each in heard})
    clusters = [ask(cluster, (balancer, name, spoken)) for name, spoken in needed]
    return ir.Gateway(
        name=name_of(balancer),
        bind_address="" if isinstance(spec, Finding) else spec.bind_address,
        listeners=tuple(_http_ports(balancer, heard)),
        streams=tuple(_stream_ports(heard)),
        clusters=tuple(sorted(clusters, key=lambda each: each.name)),
    )


def _http_ports(balancer: Key, heard: Iterable[Listener]) -> Iterable[ir.Listener]:
    ports: dict[int, list[http.VirtualHost]] = {}
    for each in heard:
        if each.protocol == "HTTP":
            ports.setdefault(each.port, []).append(_virtual_host(balancer, each))
    for port, hosts in sorted(ports.items()):
        yield ir.Listener(port, "HTTP", tuple(sorted(hosts, key=lambda host: host.hostname)))


def _virtual_host(balancer: Key, listener: Listener) -> http.VirtualHost:
    hostname = listener.hostname.lower()
    name = f"{balancer[1]}/{balancer[2]}/{listener.port}/{hostname}"
    action = http.Forward((http.Backend(_cluster_name(_upstream_of(listener), "http")),))
    return http.VirtualHost(hostname, (http.Route(name, http.Match(), action),), listener=hostname)


def _stream_ports(heard: Iterable[Listener]) -> Iterable[ir.L4Listener]:
    ports: dict[tuple[int, Literal["TCP", "UDP", "TLS"]], list[ir.L4Host]] = {}
    for each in heard:
        if each.protocol != "HTTP":
            backend = ir.L4Backend(_cluster_name(_upstream_of(each), _spoken(each)))
            host = ir.L4Host(each.hostname.lower(), (backend,))
            ports.setdefault((each.port, each.protocol), []).append(host)
    for (port, protocol), hosts in sorted(ports.items()):
        yield ir.L4Listener(port, protocol, tuple(sorted(hosts, key=lambda h: h.hostname)))


def cluster(ask: Ask, which: tuple[Key, UpstreamName, Spoken]) -> http.Cluster:
    """Give the servers of an upstream as a cluster; it has none while nothing answers."""
    balancer, name, spoken = which
    claims = {claim.name: claim for claim in ask(upstream_ownership, balancer).won}
    claim = claims.get(name)
    found: tuple[Server, ...] = ()
    if claim is not None and (claim.protocol == "UDP") == (spoken == "udp"):
        found = ask(servers, (balancer, claim.service, claim.port)).servers
    # Who leaves gets nothing new, unless nobody else is there.
    serving = [each for each in found if not each.draining] or found
    endpoints = sorted(_endpoint(each.address) for each in serving)
    return http.Cluster(_cluster_name(name, spoken), tuple(endpoints), spoken)


def _endpoint(address: str) -> http.Endpoint:
    host, _, port = address.rpartition(":")
    return http.Endpoint(host.strip("[]"), int(port))


def cluster_names(name: UpstreamName) -> frozenset[str]:
    """Give the names of the clusters that an upstream may be."""
    spoken: tuple[Spoken, ...] = ("http",) if name.context == "http" else ("tcp", "udp")
    return frozenset(_cluster_name(name, each) for each in spoken)


def _cluster_name(name: UpstreamName, spoken: Spoken) -> str:
    """Give ``[a-z0-9_-]`` for any name, distinct for distinct ones; people can read most."""
    if _PLAIN.fullmatch(name.name):
        return f"{spoken}-{name.name}"
    return f"{spoken}_{hashlib.sha256(name.name.encode()).hexdigest()[:32]}"
