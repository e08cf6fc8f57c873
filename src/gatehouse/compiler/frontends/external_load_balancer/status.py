"""Status of a load balancer: the version on each host, and problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.compiler.frontends.external_load_balancer.findings import (
    ConditionReason,
    LoadBalancerReason,
)
from gatehouse.compiler.frontends.external_load_balancer.translate import CompiledLoadBalancer
from gatehouse.compiler.ir.load_balancing import Machines
from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.incremental.query import Key
from kube_base.types.objects import Object

MAX_LISTED_FAILURES = 10
"""Maximum number of listed failures of one host.

A host that lost its configuration fails hundreds of upstreams in the same way.
"""


def balancer_status(
    compiled: CompiledLoadBalancer,
    owned: Mapping[UpstreamName, Key],
    version: str,
    reports: Sequence[HostReport],
    generation: int,
) -> Object:
    """Return the desired status, with conditions without times.

    ``version``: the desired version. ``upstreams`` also records ownership: an upstream that is
    listed there and not claimed now is emptied, even if its Service was deleted while no controller
    ran.
    """
    listed = [
        {"context": name.context, "name": name.name, "service": "/".join(service[1:])}
        for name, service in sorted(owned.items())
    ]
    key = "name" if isinstance(compiled.balancer, Machines) else "url"
    conditions = [_accepted(compiled), _programmed(compiled, version, reports)]
    nlk = {"nlkVersion": compiled.nlk_version} if compiled.nlk_version else {}
    return {
        **nlk,
        "conditions": [{**condition, "observedGeneration": generation} for condition in conditions],
        "version": version,
        "readyHosts": f"{_synchronized(version, reports)}/{len(reports)}",
        "hosts": [_host(key, report) for report in reports],
        "upstreams": listed,
    }


def _synchronized(version: str, reports: Sequence[HostReport]) -> int:
    # Before a machine connects, both its version and the desired version may be empty.
    return sum(report.version == version != "" and not report.trouble for report in reports)


def _host(key: str, report: HostReport) -> Object:
    entry: Object = {key: report.host, "version": report.version}
    if report.server:
        entry["server"] = report.server
    if report.api:
        entry["apiVersion"] = report.api
    if report.error:
        entry["error"] = report.error
    if report.failing:
        entry["failing"] = [
            {"upstream": name, "error": words}
            for name, words in report.failing[:MAX_LISTED_FAILURES]
        ]
    return entry


def _accepted(compiled: CompiledLoadBalancer) -> Object:
    message = "; ".join(finding.message for finding in compiled.findings)
    _, _, reason = ConditionReason.ACCEPTED.value
    if compiled.findings:
        reason = compiled.findings[0].reason.value
    holds = compiled.balancer is not None and bool(compiled.balancer.hosts)
    if not holds and not message:
        field = "name" if isinstance(compiled.balancer, Machines) else "url"
        reason, message = (
            LoadBalancerReason.INVALID_HOST.value,
            f"spec.hosts: no host has a {field}",
        )
    return _condition("Accepted", holds, reason, message or "the load balancer is accepted")


def _programmed(
    compiled: CompiledLoadBalancer, version: str, reports: Sequence[HostReport]
) -> Object:
    if compiled.balancer is None or not reports:
        return _condition(*ConditionReason.NOT_ACCEPTED.value, "no usable host")
    behind = [report for report in reports if report.trouble]
    if behind:
        words = "; ".join(f"{host.host}: {host.trouble}" for host in behind)
        message = f"{len(behind)} of {len(reports)} hosts: {words}"
        return _condition(*ConditionReason.HOST_SYNC_FAILED.value, message)
    missing = len(reports) - _synchronized(version, reports)
    if missing:
        message = f"{missing} of {len(reports)} hosts are not synchronized"
        return _condition(*ConditionReason.PENDING.value, message)
    message = f"{len(reports)} hosts synchronized with {len(compiled.balancer.upstreams)} upstreams"
    return _condition(*ConditionReason.PROGRAMMED.value, message)


def _condition(kind: str, holds: bool, reason: str, message: str) -> Object:
    # 32,768 is the longest message of a Kubernetes condition.
    status = "True" if holds else "False"
    return {"type": kind, "status": status, "reason": reason, "message": message[:32768]}


def owned_upstreams(current: Mapping[str, Any] | None) -> dict[UpstreamName, Key]:
    """Return the owned upstreams that a status lists, with their Services."""
    result: dict[UpstreamName, Key] = {}
    for entry in (current or {}).get("upstreams") or ():
        namespace, _, service = entry.get("service", "").partition("/")
        if entry.get("context") in ("http", "stream") and entry.get("name"):
            name = UpstreamName(entry["context"], entry["name"])
            result[name] = ("Service", namespace, service)
    return result


def merge_balancer_status(
    current: Mapping[str, Any] | None, desired: Object, now: str
) -> Object | None:
    """Return the status to write, with times; None if ``current`` is up to date. ``now``: RFC 3339.

    A condition keeps its time while its status is unchanged. Conditions of other types are kept.
    """
    before = dict(current or {})
    conditions: dict[str, Object] = {
        condition.get("type", ""): dict(condition) for condition in before.get("conditions") or ()
    }
    for condition in desired["conditions"]:
        known = conditions.get(condition["type"], {})
        since = (
            known.get("lastTransitionTime") if known.get("status") == condition["status"] else None
        )
        conditions[condition["type"]] = {**condition, "lastTransitionTime": since or now}
    status = {**before, **desired, "conditions": list(conditions.values())}
    return None if status == before else status
