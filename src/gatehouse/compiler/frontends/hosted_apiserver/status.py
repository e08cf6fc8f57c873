"""What is said of a HostedAPIServer in its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.compiler.frontends.gateway_api.findings import Condition, Finding, Reason, conditions
from gatehouse.compiler.frontends.gateway_api.inputs import ProgrammedInput
from gatehouse.compiler.frontends.gateway_api.status.merge import conditions as merged_conditions
from gatehouse.compiler.frontends.hosted_apiserver.attachment import exposure, gateways_of
from gatehouse.compiler.frontends.hosted_apiserver.claims import accepted_claims
from gatehouse.compiler.frontends.hosted_apiserver.dns import targets_of
from gatehouse.compiler.frontends.hosted_apiserver.translate import passthrough_cluster
from gatehouse.incremental.query import Ask, Key


class HostedStatus(msgspec.Struct, frozen=True, tag=True):
    """The wanted status, before times and others' entries."""

    conditions: tuple[Condition, ...]
    hosts: tuple[str, ...] = ()
    """As they are served."""
    addresses: tuple[str, ...] = ()
    """To be put into the DNS: IP addresses, or host names."""
    ready: int = 0
    """Endpoints that are ready."""


def status(ask: Ask, key: Key) -> HostedStatus | None:
    """Give the wanted status of an object; None for one that is gone."""
    found = ask.read(key)
    if found is None:
        return None
    exposed = ask(exposure, key)
    said = (*exposed.findings, _programmed(ask, key))
    defaults = (Finding(Reason.RESOLVED, "all references are resolved"),)
    known = conditions(said, defaults, found.metadata.generation)
    if not exposed.places:
        return HostedStatus(known)
    ready = (
        len(ask(passthrough_cluster, exposed.cluster).endpoints)
        if exposed.cluster is not None
        else 0
    )
    hosts = {place.host for place in exposed.places}
    shown = tuple(host for host in ask(accepted_claims, key).hosts if host in hosts)
    return HostedStatus(known, shown, ask(targets_of, key), ready)


def _programmed(ask: Ask, key: Key) -> Finding:
    serving = ask(gateways_of, key)
    if not serving:
        return Finding(Reason.NOT_PROGRAMMED, "it is not accepted, and nothing of it is served")
    for gateway in serving:
        plane = ask.read(("Programming", *gateway[1:]))
        if not isinstance(plane, ProgrammedInput) or not plane.programmed:
            why = (
                plane.message
                if isinstance(plane, ProgrammedInput)
                else "waiting for the data plane"
            )
            refused = isinstance(plane, ProgrammedInput) and plane.reason == "Invalid"
            reason = Reason.NOT_PROGRAMMED if refused else Reason.PENDING
            return Finding(reason, f"Gateway {gateway[1]}/{gateway[2]}: {why}")
    return Finding(Reason.PROGRAMMED, "every data plane confirmed it")


def merge_status(
    current: Mapping[str, Any] | None, wanted: HostedStatus, now: str
) -> dict[str, Any] | None:
    """Give the whole status to write; None when ``current`` says the same. ``now``: RFC 3339."""
    before = dict(current or {})
    merged = {
        **before,
        "conditions": merged_conditions(before.get("conditions"), wanted.conditions, now),
        "hosts": list(wanted.hosts),
        "addresses": [_address(each) for each in wanted.addresses],
        "readyEndpoints": wanted.ready,
    }
    return None if merged == before else merged


def _address(value: str) -> dict[str, str]:
    numeric = value.replace(".", "").isdigit() or ":" in value
    return {"type": "IPAddress" if numeric else "Hostname", "value": value}
