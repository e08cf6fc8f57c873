"""Weighted backends: if they differ only in their endpoints, one upstream contains them all.

Then a round-robin cycle has exactly the requested shares, and one backend can replace another that
fails. Otherwise a backend is chosen randomly (:mod:`actions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.directives import Directive, simple
from gatehouse.compiler.backends.nginx.upstreams import Shares
from gatehouse.compiler.ir import http as ir


def shares(action: ir.Forward, clusters: Mapping[str, ir.Cluster]) -> list[tuple[ir.Cluster, int]]:
    """Return the clusters of a common upstream with their weights; empty if there can be none."""
    backends = action.backends
    known = [clusters.get(backend.cluster) for backend in backends]
    if len(backends) < 2 or action.failing or action.persistence is not None:
        return []
    if any(backend.request_headers or backend.response_headers for backend in backends):
        return []
    if len({backend.cluster for backend in backends}) < len(backends):
        return []
    mixed = []
    for cluster, backend in zip(known, backends, strict=True):
        # Connections and TLS sessions of an upstream are shared: two TLS policies must not be.
        if cluster is None or not cluster.endpoints or cluster.tls is not None:
            return []
        first = known[0] or cluster
        if (cluster.protocol, cluster.settings) != (first.protocol, first.settings):
            return []
        if cluster.settings.effective_balancing.method != "round-robin":
            return []
        mixed.append((cluster, backend.weight))
    return mixed


def upstream_name(mixed: list[tuple[ir.Cluster, int]]) -> str:
    """Return the name of the upstream of these shares."""
    return f"w-{names.digest(*(f'{cluster.name}={weight}' for cluster, weight in mixed))}"


def upstreams(action: ir.Forward, clusters: Mapping[str, ir.Cluster]) -> dict[str, Shares]:
    """Return the common upstream of a route, by name; empty if it has none."""
    mixed = shares(action, clusters)
    return {upstream_name(mixed): mixed} if mixed else {}


def split_rows(shares: Sequence[tuple[str, int]]) -> list[Directive]:
    """Return the rows of ``split_clients`` that choose a value by weight, in steps of 0.01 %."""
    total = sum(weight for _, weight in shares)
    rows = [(f"{weight * 100 / total:.2f}%", value) for value, weight in shares[:-1]]
    rows.append(("*", shares[-1][0]))
    return [simple(share, value) for share, value in rows if share != "0.00%"]
