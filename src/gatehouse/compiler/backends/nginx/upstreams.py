"""Upstreams: one per cluster, each in its own file, separate from everything that names it.

If NGINX can resolve names and its agent answers them, or if it is NGINX Plus with an API, this file
does not change with endpoints. They are in another file, which only the agent reads. Sockets of
connectors have no names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from gatehouse.compiler.backends.nginx import names, quoting, tls_connectors
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple, write
from gatehouse.compiler.backends.nginx.traffic_settings import time
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import Balancing, UpstreamSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.file_set import File

KEEPALIVE = 32
"""Idle connections per worker; without any, a request costs 3.5 times as much (measured)."""

MAX_WEIGHT = 65_535
"""Maximum weight in a DNS response."""

BYTES_PER_PEER = 2048
"""Maximum size of an endpoint in a zone (1 kB measured)."""

MIN_ZONE_MIB = 16
"""MiB. Memory is used on demand; a new configuration adds its own to the old one's."""

MIN_OWN_ZONE_MIB = 1
"""MiB of the zone of one upstream."""

Shares = Sequence[tuple[ir.Cluster, int]]
"""Clusters with endpoints, and their weights."""


def upstream(capabilities: Capabilities, name: str, shares: Shares, *, by: str = "") -> str:
    """Write an upstream whose clusters get their shares regardless of their endpoint counts.

    ``by``: the variable that selects the endpoint.
    """
    settings = shares[0][0].settings
    inner = [
        *_memory(capabilities, name, shares, names.ZONE, settings.memory),
        *(_hashed(by) if by else balancing(settings, capabilities)),
        *_servers(capabilities, name, shares),
        *keepalive_directives(settings, capabilities),
    ]
    return write([block("upstream", (quoting.word(name),), inner)])


def files(capabilities: Capabilities, name: str, shares: Shares, by: str = "") -> tuple[File, ...]:
    """Return the files of an upstream; arguments as of :func:`upstream`."""
    text = upstream(capabilities, name, shares, by=by)
    endpoints = endpoints_files(capabilities, name, shares)
    return (File.make(names.upstream_file(name), text), *endpoints)


def stream_upstream(capabilities: Capabilities, name: str, shares: Shares) -> str:
    """Write an upstream of L4 listeners (round robin)."""
    memory = _memory(capabilities, name, shares, names.STREAM_ZONE)
    inner = [*memory, *_servers(capabilities, name, shares)]
    return write([block("upstream", (quoting.word(name),), inner)])


def zone(name: str, endpoints: int) -> Directive:
    """Return the upstream that only defines the size of the shared zone."""
    idle = simple("server", quoting.word("127.0.0.1:9"), "down")
    size = _size(MIN_ZONE_MIB, endpoints)
    return block("upstream", (quoting.word(name),), [simple("zone", name, size), idle])


def _size(minimum: int, endpoints: int) -> str:
    """Return the size of a zone for so many endpoints, in few steps: a new size is a reload."""
    size = minimum
    while size << 20 < endpoints * BYTES_PER_PEER:
        size *= 4
    return f"{size}m"


def uses_dns(capabilities: Capabilities, shares: Shares) -> bool:
    """Return whether NGINX resolves the endpoints of an upstream by DNS from the agent."""
    return capabilities.resolving_upstreams and not _uses_connector(shares)


def uses_api(capabilities: Capabilities, shares: Shares) -> bool:
    """Return whether the endpoints of an upstream are set by the NGINX Plus API."""
    return bool(capabilities.state_files) and not _uses_connector(shares)


def _uses_connector(shares: Shares) -> bool:
    return any(tls_connectors.connected(cluster) for cluster, _ in shares)


def endpoints_files(capabilities: Capabilities, name: str, shares: Shares) -> list[File]:
    """Return the file of an upstream's endpoints, if they are separate from its configuration."""
    if uses_api(capabilities, shares):
        return [_endpoints_file(names.servers_file(name), shares)]
    if uses_dns(capabilities, shares):
        return [_endpoints_file(names.endpoints_file(name), shares)]
    return []


def _endpoints_file(path: str, shares: Shares) -> File:
    members = [
        {"address": endpoint.address, "port": endpoint.port, "weight": weight}
        for _, endpoint, weight in _weights(shares)
    ]
    return File.make(path, msgspec.json.encode(members))


def unsupported(settings: UpstreamSettings, capabilities: Capabilities) -> list[UnsupportedSetting]:
    """Return the settings that this NGINX does not support."""
    needs = ""
    if settings.effective_balancing.choice == "least-time" and not capabilities.random_least_time:
        needs = "NGINX Plus"
    elif settings.effective_balancing.method == "least-time" and not capabilities.least_time:
        needs = "NGINX 1.31.0 or newer"
    if not needs:
        return []
    return [UnsupportedSetting(settings.source("balancing"), f"requires {needs}")]


def balancing(settings: UpstreamSettings, capabilities: Capabilities) -> list[Directive]:
    """Return the directive of the load balancing method; none for round robin."""
    if unsupported(settings, capabilities):
        return []
    timed = {"": "", "header": "header", "whole": "last_byte"}[
        settings.effective_balancing.response
    ]
    match settings.effective_balancing:
        case Balancing("least-connections"):
            return [simple("least_conn")]
        case Balancing("client-hash"):
            return [simple("ip_hash")]
        case Balancing("hash", consistent):
            key = settings.key.name if settings.key is not None else "request_uri"
            return [simple("hash", quoting.word(f"${key}"), *(["consistent"] * consistent))]
        case Balancing("random", choice=choice):
            two = {
                "": [],
                "any": ["two"],
                "least-connections": ["two", "least_conn"],
                "least-time": ["two", f"least_time={timed}"],
            }
            return [simple("random", *two[choice])]
        case Balancing("least-time", in_flight=in_flight):
            return [simple("least_time", timed, *(["inflight"] * in_flight))]
    return []


def keepalive_directives(settings: UpstreamSettings, capabilities: Capabilities) -> list[Directive]:
    """Return the directives for idle connections."""
    connections = KEEPALIVE if settings.connections is None else settings.connections
    if connections == 0:
        return [simple("keepalive", "0")] if capabilities.keepalive_off else []
    directives = [simple("keepalive", str(connections))]
    if settings.requests is not None:
        directives.append(simple("keepalive_requests", str(settings.requests)))
    if settings.lifetime is not None:
        directives.append(simple("keepalive_time", time(settings.lifetime)))
    if settings.idle is not None:
        directives.append(simple("keepalive_timeout", time(settings.idle)))
    return directives


def address(cluster: ir.Cluster, endpoint: ir.Endpoint) -> str:
    """Return the address to which NGINX connects for an endpoint of a cluster."""
    if tls_connectors.connected(cluster):
        return f"unix:{tls_connectors.socket(cluster, endpoint)}"
    host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    return f"{host}:{endpoint.port}"


def _hashed(variable: str) -> list[Directive]:
    return [simple("hash", quoting.word(f"${variable}"), "consistent")]


def _memory(
    capabilities: Capabilities, name: str, shares: Shares, shared: str, own: int | None = None
) -> list[Directive]:
    if own and len(shares) == 1:
        return [simple("zone", quoting.word(name), str(own))]
    if uses_dns(capabilities, shares):
        return [simple("zone", quoting.word(shared))]
    if uses_api(capabilities, shares):
        # Twice: endpoints may be added before the next reload.
        count = 2 * sum(len(cluster.endpoints) for cluster, _ in shares)
        return [simple("zone", quoting.word(name), _size(MIN_OWN_ZONE_MIB, count))]
    # One state for all workers; otherwise each would start its own round.
    return [simple("zone", quoting.word(name), "64k")] if len(shares) > 1 else []


def _servers(capabilities: Capabilities, name: str, shares: Shares) -> list[Directive]:
    if uses_dns(capabilities, shares):
        label = names.endpoints(name)
        server = _server(f"{label}.gatehouse", "service=endpoints", "resolve")
        # Initial endpoints, used until the rest is resolved.
        return [server, simple("include", quoting.word(f"seeds/{label}/*.conf"))]
    if uses_api(capabilities, shares):
        return [simple("state", quoting.word(f"{capabilities.state_files}/{name}.conf"))]
    return [
        _server(address(cluster, endpoint), *([f"weight={weight}"] if len(shares) > 1 else []))
        for cluster, endpoint, weight in _weights(shares)
    ]


def _server(where: str, *more: str) -> Directive:
    """Return the directive of an endpoint.

    Readiness decides about its health: NGINX would remove an endpoint for ten seconds after one
    failure, and answer 502 if it is the only one.
    """
    return simple("server", quoting.word(where), "max_fails=0", *more)


def _weights(shares: Shares) -> list[tuple[ir.Cluster, ir.Endpoint, int]]:
    common = math.lcm(*(len(cluster.endpoints) for cluster, _ in shares))
    weights = [weight * common // len(cluster.endpoints) for cluster, weight in shares]
    divisor = math.gcd(*weights)
    scale = max(1.0, max(weights) / divisor / MAX_WEIGHT)
    return [
        (cluster, endpoint, max(1, round(weight / divisor / scale)))
        for (cluster, _), weight in zip(shares, weights, strict=True)
        for endpoint in cluster.endpoints
    ]
