"""The build plan: a load balancer with everything that its hosts are to hold."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.apis.external_load_balancers import Spec
from gatehouse.compiler.frontends.external_load_balancer.claims import Claim
from gatehouse.compiler.frontends.external_load_balancer.findings import Finding, Note, Reason
from gatehouse.compiler.frontends.external_load_balancer.hosts import host_configs
from gatehouse.compiler.frontends.external_load_balancer.inputs import name_of, owned
from gatehouse.compiler.frontends.external_load_balancer.machines import (
    cluster_names,
    gateway,
    listening,
)
from gatehouse.compiler.frontends.external_load_balancer.ownership import (
    UpstreamOwnership,
    upstream_ownership,
)
from gatehouse.compiler.frontends.external_load_balancer.servers import servers
from gatehouse.compiler.frontends.external_load_balancer.sources import MACHINES, spec_of
from gatehouse.compiler.ir import load_balancing as ir
from gatehouse.dataplane import upstream_name
from gatehouse.incremental.query import Ask, Key


class Compiled(msgspec.Struct, frozen=True):
    """What was found of one source."""

    balancer: ir.LoadBalancer | ir.Machines | None
    """None: there is nothing to go on with, and hosts are left as they are."""
    claimed: tuple[tuple[upstream_name.UpstreamName, Key], ...] = ()
    """The upstreams that are to be followed, each with its Service, sorted."""
    forgotten: tuple[upstream_name.UpstreamName, ...] = ()
    """Upstreams that are ours no more, with what they hold left there, as asked for."""
    findings: tuple[Finding, ...] = ()
    """Of the source itself."""
    notes: tuple[Note, ...] = ()
    """Of Services."""


def compile_balancer(ask: Ask, key: Key) -> Compiled:
    """Give the load balancer that a source asks for."""
    spec = ask(spec_of, key)
    found = ask(host_configs, key)
    if isinstance(spec, Finding) or found.refused:
        return Compiled(None, findings=found.findings)
    if spec.type in MACHINES:
        return _machines(ask, key, spec)
    # Who has an upstream comes before what is in it: only the winner's servers are looked for.
    who = ask(upstream_ownership, key)
    sets = {claim: ask(_upstream, (key, claim)) for claim in who.won}
    ours: Mapping[upstream_name.UpstreamName, Key] = ask.read(owned(key)) or {}
    gone = ours.keys() - _held(who, sets, ours) - {claim.name for claim in who.won}
    balancer = ir.LoadBalancer(
        name=name_of(key),
        hosts=found.hosts,
        upstreams=tuple(each for each in sets.values() if each is not None),
        released_upstreams=() if spec.deletion_policy == "Retain" else tuple(sorted(gone)),
        drain=float(spec.drain_seconds),
        resync=float(spec.resync_seconds),
        timeout=float(spec.timeout_seconds),
    )
    return Compiled(
        balancer,
        claimed=tuple((claim.name, claim.service) for claim in who.won),
        forgotten=tuple(sorted(gone)) if spec.deletion_policy == "Retain" else (),
        findings=found.findings,
        notes=_notes(ask, key, who),
    )


def _machines(ask: Ask, key: Key, spec: Spec) -> Compiled:
    """Give machines with all that they serve: what is not asked for now is not there."""
    who, listens = ask(upstream_ownership, key), ask(listening, key)
    names = dict.fromkeys(host.name for host in spec.hosts if host.name)
    ours: Mapping[upstream_name.UpstreamName, Key] = ask.read(owned(key)) or {}
    sets: dict[Claim, ir.UpstreamSet | None] = {
        claim: ask(_upstream, (key, claim)) for claim in who.won
    }
    held = _held(who, sets, ours)
    balancer = ir.Machines(
        name=name_of(key),
        proxy="envoy" if spec.type == "Envoy" else "nginx",
        hosts=tuple(map(ir.Machine, names)),
        upstreams=tuple(ask(upstream_set, (key, claim)) for claim in who.won),
        gateway=ask(gateway, key),
        retained_upstreams=tuple(sorted(each for name in held for each in cluster_names(name))),
    )
    gone = ours.keys() - held - {claim.name for claim in who.won}
    return Compiled(
        balancer,
        claimed=tuple((claim.name, claim.service) for claim in who.won),
        forgotten=tuple(sorted(gone)),
        findings=listens.findings,
        notes=(*_notes(ask, key, who), *listens.notes),
    )


def _upstream(ask: Ask, which: tuple[Key, Claim]) -> ir.UpstreamSet | None:
    """Give what an upstream is to hold; None: what it holds already."""
    spec = ask(spec_of, which[0])
    assert isinstance(spec, Spec)
    found = ask(upstream_set, which)
    return None if not found.servers and spec.when_empty == "Keep" else found


def upstream_set(ask: Ask, which: tuple[Key, Claim]) -> ir.UpstreamSet:
    """Give the servers of an upstream, be there any or none."""
    key, claim = which
    found = ask(servers, (key, claim.service, claim.port))
    return ir.UpstreamSet(claim.name, found.servers, ask(_parameters, key))


def _parameters(ask: Ask, key: Key) -> ir.Parameters:
    spec = ask(spec_of, key)
    assert isinstance(spec, Spec)
    asked = {name: getattr(spec.parameters, name) for name in spec.parameters.__struct_fields__}
    return ir.Parameters(**asked)


def _held(
    who: UpstreamOwnership,
    sets: Mapping[Claim, ir.UpstreamSet | None],
    ours: Mapping[upstream_name.UpstreamName, Key],
) -> frozenset[upstream_name.UpstreamName]:
    """Give the upstreams that stay as they are: a bad value must not take traffic down."""
    unclear = {claim.service for claim in who.refused}
    refused = [name for name, service in ours.items() if service in unclear]
    lost = [claim.name for claim, _ in who.lost]
    empty = [claim.name for claim, found in sets.items() if found is None]
    return frozenset((*refused, *lost, *empty))


def _notes(ask: Ask, key: Key, who: UpstreamOwnership) -> tuple[Note, ...]:
    found = [Note(claim.service, claim.finding) for claim in who.refused]
    for claim, winner in who.lost:
        having = f"Service {winner.service[1]}/{winner.service[2]} port {winner.port!r}"
        message = f"port {claim.port!r}: upstream {claim.name} is that of {having}"
        found.append(Note(claim.service, Finding(Reason.CONFLICT, message)))
    for claim in who.won:
        finding = ask(servers, (key, claim.service, claim.port)).finding
        if finding is not None:
            found.append(Note(claim.service, finding))
    return tuple(found)
