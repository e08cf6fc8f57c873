"""Upstreams: one per cluster, each in its own file, separate from everything that names it.

If NGINX can resolve names and its agent answers them, or if it is NGINX Plus with an API, this file
does not change with endpoints. They are in another file, which only the agent reads. Sockets of
connectors have no names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from gatehouse.compiler.backends.nginx import (
    external_names,
    names,
    picked_pools,
    quoting,
    tls_connectors,
)
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    optional_directives,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext
from gatehouse.compiler.backends.nginx.traffic_settings import format_time, whole_seconds
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import object_text
from gatehouse.compiler.ir.settings import Balancing, PassiveChecks, UpstreamSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.endpoints import pool_endpoints_path
from gatehouse.dataplane.file_set import File
from gatehouse.dataplane.upstream_label import UpstreamLabel
from kube_base.types.ip_addresses import bracketed

_KEEPALIVE = 32
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


def upstream(capabilities: NginxCapabilities, name: str, shares: Shares, *, by: str = "") -> str:
    """Write an upstream whose clusters get their shares regardless of their endpoint counts.

    ``by``: the variable that selects the endpoint.
    """
    settings = shares[0][0].settings
    inner = [
        *_memory(capabilities, name, shares, names.ZONE, settings.nginx.memory),
        *(_hashed(by) if by else balancing(settings, capabilities)),
        *_servers(capabilities, name, shares),
        *keepalive_directives(settings, capabilities),
    ]
    return format_directives([block("upstream", (quoting.word(name),), inner)])


def upstream_files(
    capabilities: NginxCapabilities, name: str, shares: Shares, by: str = ""
) -> tuple[File, ...]:
    """Return the files of an upstream; arguments as of :func:`upstream`.

    There are none if NGINX is too old for its external name: no route leads to it.
    """
    if not external_names.are_supported(capabilities, shares):
        return ()
    if shares[0][0].is_picker:
        # NGINX itself sends no requests to pickers.
        label = _label(capabilities, shares[0][0], pool_endpoints_path(name))
        return (File.make(names.upstream_file(name), label),) if label else ()
    text = upstream(capabilities, name, shares, by=by)
    endpoints = endpoints_files(capabilities, name, shares)
    label = ""
    if len(shares) == 1:
        paths = [file.path for file in endpoints]
        if shares[0][0].picker is not None:
            paths = [pool_endpoints_path(shares[0][0].name)]
        label = _label(capabilities, shares[0][0], *paths)
    return (File.make(names.upstream_file(name), label + text), *endpoints)


def files_without_endpoints(
    capabilities: NginxCapabilities, name: str, cluster: ir.Cluster
) -> tuple[File, ...]:
    """Return the file of a cluster without endpoints: its name for the agent, or nothing."""
    label = _label(capabilities, cluster)
    return (File.make(names.upstream_file(name), label),) if label else ()


def _label(capabilities: NginxCapabilities, cluster: ir.Cluster, endpoints: str = "") -> str:
    """Return the comment that names the backend; empty if the agent counts no endpoints."""
    backend = object_text(cluster.origin)
    if not capabilities.access_log or not backend:
        return ""
    return UpstreamLabel(backend, endpoints).comment()


def stream_upstream(capabilities: NginxCapabilities, name: str, shares: Shares) -> str:
    """Write an upstream of L4 listeners (round robin)."""
    memory = _memory(capabilities, name, shares, names.STREAM_ZONE)
    inner = [*memory, *_servers(capabilities, name, shares)]
    return format_directives([block("upstream", (quoting.word(name),), inner)])


def zone_upstream(name: str, endpoints: int) -> Directive:
    """Return the upstream that only defines the size of the shared zone."""
    idle = simple_directive("server", quoting.word("127.0.0.1:9"), "down")
    size = _size(MIN_ZONE_MIB, endpoints)
    return block("upstream", (quoting.word(name),), [simple_directive("zone", name, size), idle])


def _size(minimum: int, endpoints: int) -> str:
    """Return the size of a zone for so many endpoints, in few steps: a new size is a reload."""
    size = minimum
    while size << 20 < endpoints * BYTES_PER_PEER:
        size *= 4
    return f"{size}m"


def uses_dns(capabilities: NginxCapabilities, shares: Shares) -> bool:
    """Return whether NGINX resolves the endpoints of an upstream by DNS from the agent."""
    return capabilities.resolving_upstreams and not _is_static(shares)


def uses_api(capabilities: NginxCapabilities, shares: Shares) -> bool:
    """Return whether the endpoints of an upstream are set by the NGINX Plus API."""
    return bool(capabilities.state_files) and not _is_static(shares)


def _is_static(shares: Shares) -> bool:
    """Return whether NGINX has fixed addresses in place of endpoints: sockets, external names, or
    endpoints with parameters, which the agent does not know."""
    return any(
        cluster.resolution is not None
        or cluster.picker is not None
        or _is_counted(cluster.settings)
        or tls_connectors.needs_connector(cluster)
        for cluster, _ in shares
    )


def _is_counted(settings: UpstreamSettings) -> bool:
    """Return whether NGINX counts for each endpoint, in memory that all workers share."""
    return settings.endpoint_connections is not None or settings.passive_checks is not None


def endpoints_files(capabilities: NginxCapabilities, name: str, shares: Shares) -> list[File]:
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


def unsupported_clusters(
    context: NginxRouteContext, route: ir.Route
) -> Iterator[UnsupportedSetting]:
    """Yield the settings of the clusters of a route that this NGINX does not support."""
    for name in sorted(route.clusters):
        cluster = context.clusters.get(name)
        settings = cluster.settings if cluster is not None else UpstreamSettings()
        if needs := _needs_of_balancing(settings, context.capabilities):
            yield UnsupportedSetting(settings.source("balancing"), f"requires {needs}")
        if settings.retry_budget is not None:
            why = "NGINX does not count retries: only the rules limit them"
            yield UnsupportedSetting(settings.source("retry_budget"), why)
        if settings.active_checks is not None:
            why = "NGINX sends no requests of its own: only passive checks are served"
            yield UnsupportedSetting(settings.source("active_checks"), why)
        if settings.breaker is not None:
            why = "NGINX limits the connections to each endpoint only (maxConnectionsPerEndpoint)"
            yield UnsupportedSetting(settings.source("breaker"), why)


def _needs_of_balancing(settings: UpstreamSettings, capabilities: NginxCapabilities) -> str:
    """Return the NGINX that a load balancing method requires; empty if this one has it."""
    if settings.effective_balancing.choice == "least-time" and not capabilities.random_least_time:
        return "NGINX Plus"
    if settings.effective_balancing.method == "least-time" and not capabilities.least_time:
        return "NGINX 1.31.0 or newer"
    return ""


def balancing(settings: UpstreamSettings, capabilities: NginxCapabilities) -> list[Directive]:
    """Return the directive of the load balancing method; none for round robin."""
    if _needs_of_balancing(settings, capabilities):
        return []
    timed = {"": "", "header": "header", "whole": "last_byte"}[
        settings.effective_balancing.response
    ]
    match settings.effective_balancing:
        case Balancing("least-connections"):
            return [simple_directive("least_conn")]
        case Balancing("client-hash"):
            return [simple_directive("ip_hash")]
        case Balancing("hash", consistent):
            key = settings.key.name if settings.key is not None else "request_uri"
            return [
                simple_directive("hash", quoting.word(f"${key}"), *(["consistent"] * consistent))
            ]
        case Balancing("random", choice=choice):
            two = {
                "": [],
                "any": ["two"],
                "least-connections": ["two", "least_conn"],
                "least-time": ["two", f"least_time={timed}"],
            }
            return [simple_directive("random", *two[choice])]
        case Balancing("least-time", in_flight=in_flight):
            return [simple_directive("least_time", timed, *(["inflight"] * in_flight))]
    return []


def keepalive_directives(
    settings: UpstreamSettings, capabilities: NginxCapabilities
) -> list[Directive]:
    """Return the directives for idle connections."""
    connections = _KEEPALIVE if settings.connections is None else settings.connections
    if connections == 0:
        return [simple_directive("keepalive", "0")] if capabilities.keepalive_off else []
    times = {"keepalive_time": settings.lifetime, "keepalive_timeout": settings.idle}
    return [
        simple_directive("keepalive", str(connections)),
        *optional_directives({"keepalive_requests": settings.requests}),
        *optional_directives(times, format_time),
    ]


def _address(cluster: ir.Cluster, endpoint: ir.Endpoint) -> str:
    """Return the address to which NGINX connects for an endpoint of a cluster."""
    if tls_connectors.needs_connector(cluster):
        return f"unix:{tls_connectors.connector_socket(cluster, endpoint)}"
    return f"{bracketed(endpoint.address)}:{endpoint.port}"


def _hashed(variable: str) -> list[Directive]:
    return [simple_directive("hash", quoting.word(f"${variable}"), "consistent")]


def _memory(
    capabilities: NginxCapabilities, name: str, shares: Shares, shared: str, own: int | None = None
) -> list[Directive]:
    if own and len(shares) == 1:
        zone = simple_directive("zone", quoting.word(name), str(own))
        return [zone, *external_names.resolver_directives(shares)]
    if uses_dns(capabilities, shares):
        return [simple_directive("zone", quoting.word(shared))]
    if uses_api(capabilities, shares):
        # Twice: endpoints may be added before the next reload.
        count = 2 * sum(len(cluster.endpoints) for cluster, _ in shares)
        return [simple_directive("zone", quoting.word(name), _size(MIN_OWN_ZONE_MIB, count))]
    resolver = external_names.resolver_directives(shares)
    if _is_counted(shares[0][0].settings):
        count = sum(len(cluster.endpoints) for cluster, _ in shares)
        size = _size(MIN_OWN_ZONE_MIB, count)
        return [simple_directive("zone", quoting.word(name), size), *resolver]
    # One state for all workers; otherwise each would start its own round. NGINX resolves names only
    # for upstreams with a zone.
    zoned = len(shares) > 1 or resolver
    return [*([simple_directive("zone", quoting.word(name), "64k")] if zoned else []), *resolver]


def _servers(capabilities: NginxCapabilities, name: str, shares: Shares) -> list[Directive]:
    if uses_dns(capabilities, shares):
        label = names.endpoints_name(name)
        server = _server(f"{label}.gatehouse", "service=endpoints", "resolve")
        # Initial endpoints, used until the rest is resolved.
        return [server, simple_directive("include", quoting.word(f"seeds/{label}/*.conf"))]
    if uses_api(capabilities, shares):
        return [simple_directive("state", quoting.word(f"{capabilities.state_files}/{name}.conf"))]
    if shares[0][0].picker is not None:
        return [_server(picked_pools.pool_address(shares[0][0]))]
    return [
        _server(
            _address(cluster, endpoint),
            *([f"weight={weight}"] if len(shares) > 1 else []),
            *_connection_limit(cluster.settings),
            *(["resolve"] if cluster.resolution is not None else []),
            checks=cluster.settings.passive_checks,
        )
        for cluster, endpoint, weight in _weights(shares)
    ]


def _connection_limit(settings: UpstreamSettings) -> list[str]:
    most = settings.endpoint_connections
    return [f"max_conns={most}"] if most is not None else []


def _server(where: str, *more: str, checks: PassiveChecks | None = None) -> Directive:
    """Return the directive of an endpoint.

    Without ``checks``, only readiness decides about its health: NGINX would remove an endpoint for
    ten seconds after one failure, and answer 502 if it is the only one.
    """
    health = ["max_fails=0"]
    if checks is not None:
        health = [f"max_fails={checks.failures}", f"fail_timeout={whole_seconds(checks.ejection)}"]
    return simple_directive("server", quoting.word(where), *health, *more)


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
