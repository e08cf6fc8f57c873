"""Upstreams: one per cluster, in a file of its own, apart from everything that names it.

Where NGINX can follow names and its agent answers them, or where it is NGINX Plus and has an API,
that file stays the same while endpoints change: they are in another file, which only the agent
reads. Sockets of connectors have no names.
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
from gatehouse.compiler.ir.settings import UpstreamSettings
from gatehouse.dataplane.file_set import File

KEEPALIVE = 32
"""Idle connections kept per worker; without any, a request costs 3.5 times as much (measured)."""

MAX_WEIGHT = 65_535
"""The greatest weight that a name's answer can have."""

BYTES_PER_PEER = 2048
"""What an endpoint takes in a zone, at most (1 kB measured)."""

MIN_ZONE_KIB = 16
"""MiB. Memory is taken as it is used; that of a new configuration is beside the old one's."""

SMALLEST_OWN_ZONE = 1
"""MiB of one upstream's own."""

Shares = Sequence[tuple[ir.Cluster, int]]
"""Clusters, which have endpoints, and their weights."""


def upstream(capabilities: Capabilities, name: str, shares: Shares, *, by: str = "") -> str:
    """Write an upstream whose clusters get their shares however many endpoints they have.

    ``by``: the variable that decides which endpoint answers.
    """
    settings = shares[0][0].settings
    inner = [
        *_memory(capabilities, name, shares, names.ZONE, settings.memory),
        *(_hashed(by) if by else balancing(settings, capabilities)),
        *_servers(capabilities, name, shares),
        *keepalive_directives(settings, capabilities),
    ]
    return write([block("upstream", (quoting.word(name),), inner)])


def stream_upstream(capabilities: Capabilities, name: str, shares: Shares) -> str:
    """Write an upstream of streams, which takes its endpoints in turn."""
    memory = _memory(capabilities, name, shares, names.STREAM_ZONE)
    inner = [*memory, *_servers(capabilities, name, shares)]
    return write([block("upstream", (quoting.word(name),), inner)])


def zone(name: str, endpoints: int) -> Directive:
    """Give the upstream that is only there to say how large the zone of all others is."""
    idle = simple("server", quoting.word("127.0.0.1:9"), "down")
    size = _size(MIN_ZONE_KIB, endpoints)
    return block("upstream", (quoting.word(name),), [simple("zone", name, size), idle])


def _size(least: int, endpoints: int) -> str:
    """Give the size of a zone that holds so many, in few steps: another size is a reload."""
    size = least
    while size << 20 < endpoints * BYTES_PER_PEER:
        size *= 4
    return f"{size}m"


def uses_dns(capabilities: Capabilities, shares: Shares) -> bool:
    """Whether NGINX asks the agent for the endpoints of an upstream."""
    return capabilities.resolving_upstreams and not _plain(shares)


def uses_api(capabilities: Capabilities, shares: Shares) -> bool:
    """Whether an upstream's endpoints come by NGINX Plus' API."""
    return bool(capabilities.state_files) and not _plain(shares)


def _plain(shares: Shares) -> bool:
    return any(tls_connectors.connected(cluster) for cluster, _ in shares)


def endpoints_files(capabilities: Capabilities, name: str, shares: Shares) -> list[File]:
    """Give the file of an upstream's endpoints, if they are apart from its configuration."""
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


def unsupported(settings: UpstreamSettings, capabilities: Capabilities) -> list[str]:
    """Say what of the settings this NGINX leaves out."""
    needs = ""
    if "least_time=" in settings.balancing and not capabilities.random_least_time:
        needs = "NGINX Plus"
    elif "least_time" in settings.balancing and not capabilities.least_time:
        needs = "NGINX 1.31.0 or newer"
    return [f"loadBalancingMethod {settings.balancing} needs {needs}"] if needs else []


def balancing(settings: UpstreamSettings, capabilities: Capabilities) -> list[Directive]:
    """Give the directive that says which endpoint is next; none for one after the other."""
    method, *words = settings.balancing.split() or ["round_robin"]
    if method == "round_robin" or unsupported(settings, capabilities):
        return []
    if method == "hash":
        key = settings.key.name if settings.key is not None else "request_uri"
        words = [quoting.word(f"${key}"), *words]
    return [simple(method, *(quoting.word(each) for each in words))]


def keepalive_directives(settings: UpstreamSettings, capabilities: Capabilities) -> list[Directive]:
    """Give the directives for connections without a request."""
    connections = KEEPALIVE if settings.connections is None else settings.connections
    if connections == 0:
        return [simple("keepalive", "0")] if capabilities.keepalive_off else []
    found = [simple("keepalive", str(connections))]
    if settings.requests is not None:
        found.append(simple("keepalive_requests", str(settings.requests)))
    if settings.lifetime is not None:
        found.append(simple("keepalive_time", time(settings.lifetime)))
    if settings.idle is not None:
        found.append(simple("keepalive_timeout", time(settings.idle)))
    return found


def address(cluster: ir.Cluster, endpoint: ir.Endpoint) -> str:
    """Give where NGINX connects for an endpoint of a cluster."""
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
        # Twice: there may be more before the next reload.
        count = 2 * sum(len(cluster.endpoints) for cluster, _ in shares)
        return [simple("zone", quoting.word(name), _size(SMALLEST_OWN_ZONE, count))]
    # One count for all workers, or each would begin its own round.
    return [simple("zone", quoting.word(name), "64k")] if len(shares) > 1 else []


def _servers(capabilities: Capabilities, name: str, shares: Shares) -> list[Directive]:
    if uses_dns(capabilities, shares):
        label = names.endpoints(name)
        server = _server(f"{label}.gatehouse", "service=endpoints", "resolve")
        # What the upstream begins with, which is there only until it has learned the rest.
        return [server, simple("include", quoting.word(f"seeds/{label}/*.conf"))]
    if uses_api(capabilities, shares):
        return [simple("state", quoting.word(f"{capabilities.state_files}/{name}.conf"))]
    return [
        _server(address(cluster, endpoint), *([f"weight={weight}"] if len(shares) > 1 else []))
        for cluster, endpoint, weight in _weights(shares)
    ]


def _server(where: str, *more: str) -> Directive:
    """Give the directive of an endpoint.

    Whether one is fit is for its readiness to say: NGINX would leave one out for ten seconds after
    one failure, and answer 502 when it is the only one.
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
