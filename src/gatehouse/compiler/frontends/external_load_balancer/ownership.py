"""Whose an upstream is that several ports want, also of load balancers that share hosts."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from gatehouse.compiler.frontends.external_load_balancer.claims import Claim, balancer_claims
from gatehouse.compiler.frontends.external_load_balancer.hosts import host_configs
from gatehouse.compiler.frontends.external_load_balancer.sources import load_balancer_sources
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.incremental.query import Ask, Key


class UpstreamOwnership(msgspec.Struct, frozen=True):
    """Of one load balancer, who has what."""

    won: tuple[Claim, ...] = ()
    """Sorted by upstream."""
    lost: tuple[tuple[Claim, Claim], ...] = ()
    """Each with the one that has the upstream instead."""
    refused: tuple[Claim, ...] = ()
    """Those with a problem of their own."""


def upstream_ownership(ask: Ask, balancer: Key) -> UpstreamOwnership:
    """Give who has which upstream of a load balancer."""
    rivals = ask(_rivals, balancer)
    best = dict(ask(_first_claims, balancer))
    for rival in rivals:
        for name, claim in ask(_first_claims, rival):
            if name in best and claim.order < best[name].order:
                best[name] = claim
    found = ask(balancer_claims, balancer)
    sound = [claim for claim in found if not claim.problem]
    won = [claim for claim in sound if best[claim.name] == claim]
    lost = [(claim, best[claim.name]) for claim in sound if best[claim.name] != claim]
    refused = tuple(claim for claim in found if claim.problem)
    return UpstreamOwnership(tuple(sorted(won, key=lambda claim: claim.name)), tuple(lost), refused)


def _first_claims(ask: Ask, balancer: Key) -> tuple[tuple[UpstreamName, Claim], ...]:
    by_name: defaultdict[UpstreamName, list[Claim]] = defaultdict(list)
    for claim in ask(balancer_claims, balancer):
        if not claim.problem:
            by_name[claim.name].append(claim)
    return tuple((name, min(some, key=lambda c: c.order)) for name, some in by_name.items())


def _rivals(ask: Ask, balancer: Key) -> tuple[Key, ...]:
    """Give the other load balancers that speak to a host of this one."""
    own = {host.url for host in ask(host_configs, balancer).hosts}
    others = (key for key in ask(load_balancer_sources, "") if key != balancer)
    return tuple(key for key in others if own & {host.url for host in ask(host_configs, key).hosts})
