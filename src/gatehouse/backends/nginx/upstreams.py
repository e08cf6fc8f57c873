"""Upstreams: one per cluster, in a file of its own, which is all that changes with endpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gatehouse.backends.nginx import quoting
from gatehouse.backends.nginx.capabilities import Capabilities
from gatehouse.backends.nginx.settings import time
from gatehouse.backends.nginx.tree import Directive, block, simple, write
from gatehouse.ir import http as ir
from gatehouse.ir.settings import UpstreamSettings

KEEPALIVE = 32
"""Idle connections kept per worker; without any, a request costs 3.5 times as much (measured)."""


def upstream(
    capabilities: Capabilities, cluster: ir.Cluster, name: str = "", *, by: str = ""
) -> str:
    """Write a cluster that has endpoints; ``by``: the variable that decides which answers."""
    name, settings = quoting.word(name or cluster.name), cluster.settings
    inner = [
        *([simple("zone", name, str(settings.memory))] if settings.memory else []),
        *(_hashed(by) if by else balancing(settings, capabilities)),
        *(server(endpoint) for endpoint in cluster.endpoints),
        *kept(settings, capabilities),
    ]
    return write([block("upstream", (name,), inner)])


def _hashed(variable: str) -> list[Directive]:
    return [simple("hash", quoting.word(f"${variable}"), "consistent")]


def missing(settings: UpstreamSettings, capabilities: Capabilities) -> list[str]:
    """Say what of the settings this NGINX leaves out."""
    if "least_time" in settings.balancing and not capabilities.least_time:
        return [f"loadBalancingMethod {settings.balancing} needs NGINX 1.31.0 or newer"]
    return []


def balancing(settings: UpstreamSettings, capabilities: Capabilities) -> list[Directive]:
    """Give the directive that says which endpoint is next; none for one after the other."""
    method, *words = settings.balancing.split() or ["round_robin"]
    if method == "round_robin" or missing(settings, capabilities):
        return []
    if method == "hash":
        key = settings.key.name if settings.key is not None else "request_uri"
        words = [quoting.word(f"${key}"), *words]
    return [simple(method, *(quoting.word(each) for each in words))]


def kept(settings: UpstreamSettings, capabilities: Capabilities) -> list[Directive]:
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


def server(endpoint: ir.Endpoint, *more: str) -> Directive:
    """Give the directive of an endpoint.

    Whether one is fit is for its readiness to say: NGINX would leave one out for ten seconds after
    one failure, and answer 502 when it is the only one.
    """
    return simple("server", quoting.word(address(endpoint)), "max_fails=0", *more)


def address(endpoint: ir.Endpoint) -> str:
    """Give an endpoint as NGINX writes it."""
    host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    return f"{host}:{endpoint.port}"


def weighted(
    name: str, shares: Sequence[tuple[ir.Cluster, int]], keepalive: Sequence[Directive] = ()
) -> str:
    """Write an upstream whose clusters get their shares however many endpoints they have."""
    common = math.lcm(*(len(cluster.endpoints) for cluster, _ in shares))
    weights = [weight * common // len(cluster.endpoints) for cluster, weight in shares]
    divisor = math.gcd(*weights)
    servers = [
        server(endpoint, *([f"weight={weight // divisor}"] if len(shares) > 1 else []))
        for (cluster, _), weight in zip(shares, weights, strict=True)
        for endpoint in cluster.endpoints
    ]
    # One count for all workers, or each would begin its own round.
    shared = [simple("zone", quoting.word(name), "64k")] if len(shares) > 1 else []
    return write([block("upstream", (quoting.word(name),), [*shared, *servers, *keepalive])])
