"""Weights: where backends differ in nothing but their endpoints, one upstream holds them all.

Then a cycle has exactly the shares asked for, and what one backend cannot take another may. Else a
backend is chosen by chance (:mod:`actions`).
"""

from __future__ import annotations

from collections.abc import Mapping

from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.upstreams import Shares
from gatehouse.compiler.ir import http as ir


def shares(action: ir.Forward, clusters: Mapping[str, ir.Cluster]) -> list[tuple[ir.Cluster, int]]:
    """Give the clusters of a common upstream with their weights; empty if there can be none."""
    wanted = [backend for backend in action.backends if backend.weight > 0]
    found = [clusters.get(backend.cluster) for backend in wanted]
    if len(wanted) < 2 or action.persistence is not None:
        return []
    if any(backend.request_headers or backend.response_headers for backend in wanted):
        return []
    if len({backend.cluster for backend in wanted}) < len(wanted):
        return []
    mixed = []
    for cluster, backend in zip(found, wanted, strict=True):
        # Connections of an upstream are shared, and TLS sessions with them: two policies must not.
        if cluster is None or not cluster.endpoints or cluster.tls is not None:
            return []
        first = found[0] or cluster
        if (cluster.protocol, cluster.settings) != (first.protocol, first.settings):
            return []
        if cluster.settings.balancing not in ("", "round_robin"):
            return []
        mixed.append((cluster, backend.weight))
    return mixed


def upstream_name(mixed: list[tuple[ir.Cluster, int]]) -> str:
    """Give the upstream of some shares."""
    return f"w-{names.digest(*(f'{cluster.name}={weight}' for cluster, weight in mixed))}"


def upstreams(action: ir.Forward, clusters: Mapping[str, ir.Cluster]) -> dict[str, Shares]:
    """Give the common upstream of a route, by name; empty if it has none."""
    mixed = shares(action, clusters)
    return {upstream_name(mixed): mixed} if mixed else {}
