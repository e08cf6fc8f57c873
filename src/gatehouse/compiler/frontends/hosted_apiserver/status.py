"""Status of a HostedAPIServer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.compiler.frontends.gateway_api.findings import Condition, Finding, Reason, conditions
from gatehouse.compiler.frontends.gateway_api.inputs import ProgrammedInput
from gatehouse.compiler.frontends.gateway_api.status.merge import conditions as merged_conditions
from gatehouse.compiler.frontends.hosted_apiserver.attachment import attachment_of, gateways_of
from gatehouse.compiler.frontends.hosted_apiserver.claims import parsed_spec
from gatehouse.compiler.frontends.hosted_apiserver.dns import targets_of
from gatehouse.compiler.frontends.hosted_apiserver.translate import passthrough_cluster
from gatehouse.compiler.frontends.kinds import DesiredStatus
from gatehouse.incremental.query import Ask, Key


class HostedStatus(DesiredStatus, frozen=True, tag=True):
    """Desired status, without times and entries of other controllers."""

    conditions: tuple[Condition, ...]
    hosts: tuple[str, ...] = ()
    """Served hostnames."""
    addresses: tuple[str, ...] = ()
    """DNS targets of the hostnames: IP addresses, or hostnames."""
    ready: int = 0
    """Number of ready endpoints."""


def status(ask: Ask, key: Key) -> HostedStatus | None:
    """Return the desired status of an object; None if it does not exist."""
    found = ask.read(key)
    if found is None:
        return None
    attachment = ask(attachment_of, key)
    findings = (*attachment.findings, _programmed(ask, key))
    defaults = (Finding(Reason.RESOLVED, "all references are resolved"),)
    desired_conditions = conditions(findings, defaults, found.metadata.generation)
    if not attachment.attachments:
        return HostedStatus(desired_conditions)
    ready = (
        len(ask(passthrough_cluster, attachment.cluster).endpoints)
        if attachment.cluster is not None
        else 0
    )
    hosts = {attached.host for attached in attachment.attachments}
    served_hosts = tuple(host for host in ask(parsed_spec, key).hosts if host in hosts)
    return HostedStatus(desired_conditions, served_hosts, ask(targets_of, key), ready)


def _programmed(ask: Ask, key: Key) -> Finding:
    serving = ask(gateways_of, key)
    if not serving:
        return Finding(Reason.NOT_PROGRAMMED, "not programmed because the object is not accepted")
    for gateway in serving:
        plane = ask.read(("Programming", *gateway[1:]))
        if not isinstance(plane, ProgrammedInput) or not plane.programmed:
            message = (
                plane.message
                if isinstance(plane, ProgrammedInput)
                else "waiting for the data plane"
            )
            refused = isinstance(plane, ProgrammedInput) and plane.reason == "Invalid"
            reason = Reason.NOT_PROGRAMMED if refused else Reason.PENDING
            return Finding(reason, f"Gateway {gateway[1]}/{gateway[2]}: {message}")
    return Finding(Reason.PROGRAMMED, "all data planes confirmed the configuration")


def merge_status(
    current: Mapping[str, Any] | None, desired: HostedStatus, now: str
) -> dict[str, Any] | None:
    """Return the whole status to write; None if ``current`` is up to date. ``now``: RFC 3339."""
    before = dict(current or {})
    merged = {
        **before,
        "conditions": merged_conditions(before.get("conditions"), desired.conditions, now),
        "hosts": list(desired.hosts),
        "addresses": [_address(each) for each in desired.addresses],
        "readyEndpoints": desired.ready,
    }
    return None if merged == before else merged


def _address(value: str) -> dict[str, str]:
    numeric = value.replace(".", "").isdigit() or ":" in value
    return {"type": "IPAddress" if numeric else "Hostname", "value": value}
