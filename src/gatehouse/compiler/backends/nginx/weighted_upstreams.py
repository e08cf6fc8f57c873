"""Weighted backends: if they differ only in their endpoints, one upstream contains them all.

Then a round-robin cycle has exactly the requested shares, and one backend can replace another that
fails. Otherwise a backend is chosen randomly (:mod:`actions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gatehouse.compiler.backends.fragments import Need
from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.directives import Directive, simple_directive
from gatehouse.compiler.backends.nginx.route_context import UPSTREAM, SharedUpstream
from gatehouse.compiler.ir import http as ir

SHARE_STEPS = 10_000
"""Number of shares that ``split_clients`` distinguishes."""


def shares(action: ir.Forward, clusters: Mapping[str, ir.Cluster]) -> list[tuple[ir.Cluster, int]]:
    """Return the clusters of a common upstream with their weights; empty if there can be none."""
    backends = action.backends
    known = [clusters.get(backend.cluster) for backend in backends]
    if len(backends) < 2 or action.failing:
        return []
    if any(one.request_headers or one.response_headers or one.persistence for one in backends):
        return []
    mixed: dict[str, tuple[ir.Cluster, int]] = {}
    for cluster, backend in zip(known, backends, strict=True):
        # Connections and TLS sessions of an upstream are shared: two TLS policies must not be.
        if cluster is None or not cluster.endpoints or cluster.tls is not None:
            return []
        # The endpoints of Services would be static beside an external name. Another process chooses
        # those of a pool.
        if cluster.resolution is not None or cluster.picker is not None:
            return []
        first = known[0] or cluster
        if (cluster.protocol, cluster.settings) != (first.protocol, first.settings):
            return []
        if cluster.settings.effective_balancing.method != "round-robin":
            return []
        # Repeated backends share what they have together.
        weight_before = mixed[cluster.name][1] if cluster.name in mixed else 0
        mixed[cluster.name] = cluster, weight_before + backend.weight
    return list(mixed.values())


def shared_upstream(mixed: Sequence[tuple[ir.Cluster, int]]) -> Need:
    """Return the need of an upstream with these shares."""
    weights = tuple((cluster.name, weight) for cluster, weight in mixed)
    name = f"w-{names.name_digest(*(f'{cluster}={weight}' for cluster, weight in weights))}"
    return UPSTREAM, name, SharedUpstream(weights)


def split_rows(shares: Sequence[tuple[str, int]]) -> list[Directive]:
    """Return the rows of ``split_clients`` that choose a value by weight, in steps of 0.01 %.

    Bounds are rounded, not shares: NGINX rejects rows that exceed 100 % together.
    """
    total = sum(weight for _, weight in shares)
    rows: list[Directive] = []
    weight_before = bound_before = 0
    for value, weight in shares[:-1]:
        weight_before += weight
        bound = round(weight_before * SHARE_STEPS / total)
        if bound > bound_before:
            rows.append(
                simple_directive(f"{(bound - bound_before) * 100 / SHARE_STEPS:.2f}%", value)
            )
        bound_before = bound
    return [*rows, simple_directive("*", shares[-1][0])]
