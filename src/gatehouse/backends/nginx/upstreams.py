"""Upstreams: one per cluster, in a file of its own, which is all that changes with endpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gatehouse.backends.nginx import quoting
from gatehouse.backends.nginx.tree import Directive, block, simple, write
from gatehouse.ir import http as ir

KEEPALIVE = 32
"""Idle connections kept per worker; without any, a request costs 3.5 times as much (measured)."""


def upstream(cluster: ir.Cluster, name: str = "", *, by: str = "") -> str:
    """Write a cluster that has endpoints; ``by``: the variable that decides which answers."""
    servers = [server(endpoint) for endpoint in cluster.endpoints]
    chosen = [simple("hash", quoting.word(f"${by}"), "consistent")] if by else []
    inner = [*chosen, *servers, simple("keepalive", str(KEEPALIVE))]
    return write([block("upstream", (quoting.word(name or cluster.name),), inner)])


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


def weighted(name: str, shares: Sequence[tuple[ir.Cluster, int]], *, keepalive: int = 0) -> str:
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
    kept = [simple("keepalive", str(keepalive))] if keepalive else []
    return write([block("upstream", (quoting.word(name),), [*shared, *servers, *kept])])
