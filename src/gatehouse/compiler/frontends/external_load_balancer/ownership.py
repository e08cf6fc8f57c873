"""Conflict resolution between claims on an upstream, across load balancers that share hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from gatehouse.compiler.frontends.external_load_balancer.claims import PortClaim, balancer_claims
from gatehouse.compiler.frontends.external_load_balancer.hosts import host_configs
from gatehouse.compiler.frontends.external_load_balancer.inputs import owned
from gatehouse.compiler.frontends.external_load_balancer.sources import load_balancer_sources
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.incremental.query import Ask, Key


class UpstreamOwnership(msgspec.Struct, frozen=True):
    """Results of the claims on one load balancer."""

    won: tuple[PortClaim, ...] = ()
    """Accepted claims, sorted by upstream."""
    lost: tuple[tuple[PortClaim, PortClaim], ...] = ()
    """Conflicting claims, each with the winner."""
    refused: tuple[PortClaim, ...] = ()
    """Invalid claims."""


def upstream_ownership(ask: Ask, balancer: Key) -> UpstreamOwnership:
    """Return the results of the claims on a load balancer.

    The Service that has the upstream keeps it, so that no edit of an older Service takes it away.
    Of others, the oldest wins.
    """
    rivals = ask(_rivals, balancer)
    best = dict(ask(_first_claims, balancer))
    for rival in rivals:
        for name, claim in ask(_first_claims, rival):
            if name in best and _precedence(ask, claim) < _precedence(ask, best[name]):
                best[name] = claim
    claims = ask(balancer_claims, balancer)
    valid = [claim for claim in claims if not claim.problem]
    won = [claim for claim in valid if best[claim.name] == claim]
    lost = [(claim, best[claim.name]) for claim in valid if best[claim.name] != claim]
    refused = tuple(claim for claim in claims if claim.problem)
    return UpstreamOwnership(tuple(sorted(won, key=lambda claim: claim.name)), tuple(lost), refused)


def _first_claims(ask: Ask, balancer: Key) -> tuple[tuple[UpstreamName, PortClaim], ...]:
    by_name: defaultdict[UpstreamName, list[PortClaim]] = defaultdict(list)
    for claim in ask(balancer_claims, balancer):
        if not claim.problem:
            by_name[claim.name].append(claim)
    return tuple(
        (name, min(some, key=lambda c: _precedence(ask, c))) for name, some in by_name.items()
    )


def _precedence(ask: Ask, claim: PortClaim) -> tuple[bool, tuple[str, Key, Key, str]]:
    """Return the sort key of a claim. The first claim of an upstream gets it."""
    services: Mapping[UpstreamName, Key] = ask.read(owned(claim.balancer)) or {}
    return services.get(claim.name) != claim.service, claim.order


def _rivals(ask: Ask, balancer: Key) -> tuple[Key, ...]:
    """Return the other load balancers that share a host with this one."""
    own = {host.url for host in ask(host_configs, balancer).hosts}
    others = (key for key in ask(load_balancer_sources) if key != balancer)
    return tuple(key for key in others if own & {host.url for host in ask(host_configs, key).hosts})
