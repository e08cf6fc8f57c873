"""The status of a load balancer: which host holds which version, and what is wrong where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gatehouse.frontends.external_load_balancer.assemble import Compiled
from gatehouse.frontends.external_load_balancer.findings import Reason
from gatehouse.ir.load_balancing import Name
from gatehouse.query import Key

Object = dict[str, Any]

FAILURES_SHOWN = 10
"""Of one host; a host that lost its configuration fails hundreds of upstreams alike."""


class HostStanding(msgspec.Struct, frozen=True):
    """What is known of one host."""

    url: str
    version: str = ""
    """Of what it was last seen to hold in whole; empty: nothing yet."""
    server: str = ""
    """What it says it is."""
    api: int = 0
    """The version of its API that is spoken; 0: none yet."""
    failing: tuple[tuple[str, str], ...] = ()
    """Upstreams that could not be changed, each with the host's own words."""
    error: str = ""
    """Why the host cannot be spoken to; empty: it can."""

    @property
    def trouble(self) -> str:
        """What is wrong, for one line; empty: nothing."""
        if self.error or not self.failing:
            return self.error
        name, words = self.failing[0]
        more = f" (and {len(self.failing) - 1} more)" if len(self.failing) > 1 else ""
        return f"{name}: {words}{more}"


def status(
    compiled: Compiled,
    owned: Mapping[Name, Key],
    version: str,
    standings: Sequence[HostStanding],
    generation: int,
) -> Object:
    """Give the wanted status, with conditions that have no time yet. ``version``: the wanted one.

    ``upstreams`` is also the memory of what is ours: what is listed there and asked for no more is
    emptied, even if the Service went while no controller ran.
    """
    listed = [
        {"context": name.context, "name": name.name, "service": "/".join(service[1:])}
        for name, service in sorted(owned.items())
    ]
    conditions = [_accepted(compiled), _programmed(compiled, version, standings)]
    return {
        "conditions": [{**each, "observedGeneration": generation} for each in conditions],
        "version": version,
        "hostsInStep": f"{_in_step(version, standings)}/{len(standings)}",
        "hosts": [_host(each) for each in standings],
        "upstreams": listed,
    }


def _in_step(version: str, standings: Sequence[HostStanding]) -> int:
    return sum(each.version == version and not each.trouble for each in standings)


def _host(standing: HostStanding) -> Object:
    found: Object = {"url": standing.url, "version": standing.version}
    if standing.api:
        found |= {"server": standing.server, "apiVersion": standing.api}
    if standing.error:
        found["error"] = standing.error
    if standing.failing:
        found["failing"] = [
            {"upstream": name, "error": words} for name, words in standing.failing[:FAILURES_SHOWN]
        ]
    return found


def _accepted(compiled: Compiled) -> Object:
    said = "; ".join(finding.message for finding in compiled.findings)
    reason = compiled.findings[0].reason.value if compiled.findings else "Accepted"
    holds = compiled.balancer is not None and bool(compiled.balancer.hosts)
    if not holds and not said:
        reason, said = Reason.INVALID_HOST.value, "no host is named"
    return _condition("Accepted", holds, reason, said or "hosts and Services are followed")


def _programmed(compiled: Compiled, version: str, standings: Sequence[HostStanding]) -> Object:
    if compiled.balancer is None or not standings:
        return _condition("Programmed", False, "NotAccepted", "there is no host to speak to")
    behind = [each for each in standings if each.trouble]
    if behind:
        words = "; ".join(f"{each.url}: {each.trouble}" for each in behind)
        message = f"{len(behind)} of {len(standings)} hosts: {words}"
        return _condition("Programmed", False, "HostsFailing", message)
    missing = len(standings) - _in_step(version, standings)
    if missing:
        message = f"{missing} of {len(standings)} hosts are not in step yet"
        return _condition("Programmed", False, "Pending", message)
    message = f"{len(standings)} hosts hold {len(compiled.balancer.upstreams)} upstreams"
    return _condition("Programmed", True, "Programmed", message)


def _condition(kind: str, holds: bool, reason: str, message: str) -> Object:
    # 32,768 is the longest message of a Kubernetes condition.
    said = message[:32768]
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": said}


def remembered(current: Mapping[str, Any] | None) -> dict[Name, Key]:
    """Give the upstreams that a status lists as ours."""
    found: dict[Name, Key] = {}
    for entry in (current or {}).get("upstreams") or ():
        namespace, _, service = entry.get("service", "").partition("/")
        if entry.get("context") in ("http", "stream") and entry.get("name"):
            name = Name(entry["context"], entry["name"])
            found[name] = ("Service", namespace, service)
    return found


def merged(current: Mapping[str, Any] | None, wanted: Object, now: str) -> Object | None:
    """Give the status to write, with times; None when ``current`` says the same. ``now``: RFC 3339.

    A condition keeps its time while its status is the same; conditions of others stay.
    """
    before = dict(current or {})
    conditions: dict[str, Object] = {
        each.get("type", ""): dict(each) for each in before.get("conditions") or ()
    }
    for each in wanted["conditions"]:
        known = conditions.get(each["type"], {})
        since = known.get("lastTransitionTime") if known.get("status") == each["status"] else None
        conditions[each["type"]] = {**each, "lastTransitionTime": since or now}
    found = {**before, **wanted, "conditions": list(conditions.values())}
    return None if found == before else found
