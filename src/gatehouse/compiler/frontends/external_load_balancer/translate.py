"""Translation of a load balancer and the upstreams of its hosts to IR."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.apis.external_load_balancers import LoadBalancerSpec
from gatehouse.compiler.frontends.external_load_balancer.claims import PortClaim
from gatehouse.compiler.frontends.external_load_balancer.findings import (
    LoadBalancerFinding,
    LoadBalancerReason,
    Note,
)
from gatehouse.compiler.frontends.external_load_balancer.hosts import host_configs
from gatehouse.compiler.frontends.external_load_balancer.inputs import owned, source_name
from gatehouse.compiler.frontends.external_load_balancer.machines import (
    gateway,
    listening,
    upstream_cluster_names,
)
from gatehouse.compiler.frontends.external_load_balancer.ownership import (
    UpstreamOwnership,
    upstream_ownership,
)
from gatehouse.compiler.frontends.external_load_balancer.servers import upstream_servers
from gatehouse.compiler.frontends.external_load_balancer.sources import (
    MACHINES,
    nlk_version,
    spec_of,
)
from gatehouse.compiler.ir import load_balancing as ir
from gatehouse.dataplane import upstream_name
from gatehouse.incremental.query import Ask, Key


class CompiledLoadBalancer(msgspec.Struct, frozen=True):
    """Translation of one source."""

    balancer: ir.LoadBalancer | ir.Machines | None
    """None: the source is invalid, and its hosts are left unchanged."""
    claimed: tuple[tuple[upstream_name.UpstreamName, Key], ...] = ()
    """Claimed upstreams with their Services, sorted."""
    forgotten: tuple[upstream_name.UpstreamName, ...] = ()
    """Upstreams that are no longer owned and that no host has to empty."""
    findings: tuple[LoadBalancerFinding, ...] = ()
    """Findings about the source."""
    notes: tuple[Note, ...] = ()
    """Findings about Services."""
    nlk_version: str = ""
    """Generation of nlk that the source belongs to; empty for an ExternalLoadBalancer."""


def compile_balancer(ask: Ask, key: Key) -> CompiledLoadBalancer:
    """Translate a source of a load balancer."""
    spec = ask(spec_of, key)
    hosts = ask(host_configs, key)
    if isinstance(spec, LoadBalancerFinding) or hosts.refused:
        return CompiledLoadBalancer(
            None, findings=hosts.findings, nlk_version=nlk_version(ask, key)
        )
    if spec.type in MACHINES:
        return _machines(ask, key, spec)
    # Conflicts are resolved first: servers are computed only for the winning claims.
    ownership = ask(upstream_ownership, key)
    sets = {claim: ask(_upstream, key, claim) for claim in ownership.won}
    owned_now: Mapping[upstream_name.UpstreamName, Key] = ask.read(owned(key)) or {}
    gone = (
        owned_now.keys()
        - _unchanged(ownership, sets, owned_now)
        - {claim.name for claim in ownership.won}
    )
    balancer = ir.LoadBalancer(
        name=source_name(key),
        hosts=hosts.hosts,
        upstreams=tuple(upstream for upstream in sets.values() if upstream is not None),
        released_upstreams=() if spec.deletion_policy == "Retain" else tuple(sorted(gone)),
        drain=float(spec.drain_seconds),
        resync=float(spec.resync_seconds),
        timeout=float(spec.timeout_seconds),
    )
    return CompiledLoadBalancer(
        balancer,
        claimed=tuple((claim.name, claim.service) for claim in ownership.won),
        forgotten=tuple(sorted(gone)) if spec.deletion_policy == "Retain" else (),
        findings=hosts.findings,
        notes=_notes(ask, key, ownership),
        nlk_version=nlk_version(ask, key),
    )


def _machines(ask: Ask, key: Key, spec: LoadBalancerSpec) -> CompiledLoadBalancer:
    """Translate machines with their whole configuration. Unclaimed upstreams are absent from it."""
    ownership, listens = ask(upstream_ownership, key), ask(listening, key)
    names = dict.fromkeys(host.name for host in spec.hosts if host.name)
    owned_now: Mapping[upstream_name.UpstreamName, Key] = ask.read(owned(key)) or {}
    sets: dict[PortClaim, ir.UpstreamSet | None] = {
        claim: ask(_upstream, key, claim) for claim in ownership.won
    }
    unchanged = _unchanged(ownership, sets, owned_now)
    balancer = ir.Machines(
        name=source_name(key),
        proxy="envoy" if spec.type == "Envoy" else "nginx",
        hosts=tuple(map(ir.Machine, names)),
        upstreams=tuple(ask(upstream_set, key, claim) for claim in ownership.won),
        gateway=ask(gateway, key),
        retained_upstreams=tuple(
            sorted(
                upstream_cluster_name
                for name in unchanged
                for upstream_cluster_name in upstream_cluster_names(name)
            )
        ),
    )
    gone = owned_now.keys() - unchanged - {claim.name for claim in ownership.won}
    return CompiledLoadBalancer(
        balancer,
        claimed=tuple((claim.name, claim.service) for claim in ownership.won),
        forgotten=tuple(sorted(gone)),
        findings=(*_unsupported_fields(spec), *listens.findings),
        notes=(*_notes(ask, key, ownership), *listens.notes),
    )


_PLUS_FIELDS = {"resync_seconds": "resyncSeconds", "timeout_seconds": "timeoutSeconds"}
"""Fields of ``spec`` for hosts with NGINX Plus that have defaults. The API server rejects the
others for other types.
"""


def _unsupported_fields(spec: LoadBalancerSpec) -> tuple[LoadBalancerFinding, ...]:
    """Return a finding about the fields that have no effect on machines."""
    default = LoadBalancerSpec()
    fields = ", ".join(
        f"spec.{name}"
        for attribute, name in _PLUS_FIELDS.items()
        if getattr(spec, attribute) != getattr(default, attribute)
    )
    message = f"{fields}: not supported for type {spec.type}, only for NginxPlus"
    return (LoadBalancerFinding(LoadBalancerReason.UNSUPPORTED, message),) if fields else ()


def _upstream(ask: Ask, key: Key, claim: PortClaim) -> ir.UpstreamSet | None:
    """Return the servers of an upstream; None to leave its servers unchanged."""
    spec = ask(spec_of, key)
    assert isinstance(spec, LoadBalancerSpec)
    upstream = ask(upstream_set, key, claim)
    return None if not upstream.servers and spec.when_empty == "Keep" else upstream


def upstream_set(ask: Ask, key: Key, claim: PortClaim) -> ir.UpstreamSet:
    """Return the servers of an upstream, even if there are none."""
    result = ask(upstream_servers, key, claim.service, claim.port)
    return ir.UpstreamSet(claim.name, result.servers, ask(_parameters, key))


def _parameters(ask: Ask, key: Key) -> ir.ServerParameters:
    spec = ask(spec_of, key)
    assert isinstance(spec, LoadBalancerSpec)
    parameters = {
        name: getattr(spec.parameters, name) for name in spec.parameters.__struct_fields__
    }
    return ir.ServerParameters(**parameters)


def _unchanged(
    ownership: UpstreamOwnership,
    sets: Mapping[PortClaim, ir.UpstreamSet | None],
    owned_now: Mapping[upstream_name.UpstreamName, Key],
) -> frozenset[upstream_name.UpstreamName]:
    """Return the upstreams that stay unchanged: an invalid value must not interrupt traffic."""
    unclear = {claim.service for claim in ownership.refused}
    refused = [name for name, service in owned_now.items() if service in unclear]
    lost = [claim.name for claim, _ in ownership.lost]
    empty = [claim.name for claim, upstream in sets.items() if upstream is None]
    return frozenset((*refused, *lost, *empty))


def _notes(ask: Ask, key: Key, ownership: UpstreamOwnership) -> tuple[Note, ...]:
    notes = [Note(claim.service, claim.finding) for claim in ownership.refused]
    for claim, winner in ownership.lost:
        winner_port = f"Service {winner.service[1]}/{winner.service[2]} port {winner.port!r}"
        message = f"port {claim.port!r}: upstream {claim.name} already used by {winner_port}"
        notes.append(Note(claim.service, LoadBalancerFinding(LoadBalancerReason.CONFLICT, message)))
    for claim in ownership.won:
        finding = ask(upstream_servers, key, claim.service, claim.port).finding
        if finding is not None:
            notes.append(Note(claim.service, finding))
    return tuple(notes)
