"""Status of a HostedAPIServer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.compiler.frontends.gateway_api.findings import (
    Condition,
    Finding,
    Reason,
    fold_findings,
)
from gatehouse.compiler.frontends.gateway_api.inputs import programmed_input
from gatehouse.compiler.frontends.gateway_api.status.merge import (
    merge_conditions as merged_conditions,
)
from gatehouse.compiler.frontends.hosted_apiserver.attachment import (
    attachment_of,
    gateways_of_hosted,
)
from gatehouse.compiler.frontends.hosted_apiserver.claims import (
    ClaimRecord,
    owned_claims,
    parsed_spec,
)
from gatehouse.compiler.frontends.hosted_apiserver.dns import targets_of
from gatehouse.compiler.frontends.hosted_apiserver.translate import passthrough_cluster
from gatehouse.compiler.frontends.kinds import DesiredStatus
from gatehouse.incremental.query import Ask, Key

OPTIONAL = frozenset({"Conflicted"})
"""Condition types that are present only when a finding has them."""


class HostedStatus(DesiredStatus, frozen=True, tag=True):
    """Desired status, without times and entries of other controllers."""

    conditions: tuple[Condition, ...]
    hosts: tuple[str, ...] = ()
    """Served hostnames."""
    addresses: tuple[str, ...] = ()
    """DNS targets of the hostnames: IP addresses, or hostnames."""
    ready: int = 0
    """Number of ready endpoints."""
    record: ClaimRecord = ClaimRecord()

    @property
    def next_record(self) -> ClaimRecord:
        """Record of the object for the next pass."""
        return self.record


def hosted_status(ask: Ask, key: Key) -> HostedStatus | None:
    """Return the desired status of an object; None if it does not exist."""
    hosted = ask.read(key)
    if hosted is None:
        return None
    attachment, record = ask(attachment_of, key), ask(owned_claims, key).record
    findings = (*attachment.findings, _programmed(ask, key))
    defaults = (Finding(Reason.RESOLVED, "all references are resolved"),)
    desired_conditions = fold_findings(findings, defaults, hosted.metadata.generation)
    if not attachment.attachments:
        return HostedStatus(desired_conditions, record=record)
    ready = 0
    if attachment.cluster is not None:
        first = (attachment.attachments[0].gateway, attachment.cluster)
        ready = len(ask(passthrough_cluster, first).endpoints)
    hosts = {attached.host for attached in attachment.attachments}
    served_hosts = tuple(host for host in ask(parsed_spec, key).hosts if host in hosts)
    return HostedStatus(desired_conditions, served_hosts, ask(targets_of, key), ready, record)


def _programmed(ask: Ask, key: Key) -> Finding:
    serving = ask(gateways_of_hosted, key)
    if not serving:
        return Finding(Reason.NOT_PROGRAMMED, "not programmed because the object is not accepted")
    for gateway in serving:
        plane = programmed_input(ask, gateway)
        if not plane.programmed:
            rejected = plane.reason is Reason.NOT_PROGRAMMED
            reason = Reason.NOT_PROGRAMMED if rejected else Reason.PENDING
            return Finding(reason, f"Gateway {gateway[1]}/{gateway[2]}: {plane.message}")
    return Finding(Reason.PROGRAMMED, "all data planes confirmed the configuration")


def merge_hosted_status(
    current: Mapping[str, Any] | None, desired: HostedStatus, now: str
) -> dict[str, Any] | None:
    """Return the whole status to write; None if ``current`` is up to date. ``now``: RFC 3339."""
    before = dict(current or {})
    known = before.get("conditions")
    merged = {
        **before,
        "conditions": merged_conditions(known, desired.conditions, now, OPTIONAL),
        "hosts": list(desired.hosts),
        "addresses": [_address(address) for address in desired.addresses],
        "readyEndpoints": desired.ready,
    }
    merged = desired.record.merged_into(merged)
    return None if merged == before else merged


def _address(value: str) -> dict[str, str]:
    numeric = value.replace(".", "").isdigit() or ":" in value
    return {"type": "IPAddress" if numeric else "Hostname", "value": value}
