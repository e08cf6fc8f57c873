"""Load balancers outside the cluster: hosts, what differs on them, and upstreams. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from gatehouse.inspection.object_set import ObjectSet
from kube_base.types.objects import Object


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all parts."""


class FailingUpstream(_Part, frozen=True):
    """An upstream whose servers a host did not accept."""

    upstream: str
    error: str


class ReportedHost(_Part, frozen=True):
    """A host of a load balancer."""

    name: str
    """URL of its API, or name of the machine."""
    synced: Literal["True", "False", "Pending"]
    """``Pending``: it has another version than the desired one, without an error."""
    version: str = ""
    server: str = ""
    """Name and version of its proxy."""
    api_version: str = ""
    error: str = ""
    failing: tuple[FailingUpstream, ...] = ()

    @property
    def message(self) -> str:
        """Reason why it is not synchronized; empty without an error."""
        return self.error or "; ".join(f"{item.upstream}: {item.error}" for item in self.failing)


class ReportedUpstream(_Part, frozen=True):
    """An upstream that a load balancer owns on its hosts."""

    context: str
    """``http`` or ``stream``."""
    name: str
    service: str
    """``namespace/name``."""


class ReportedLoadBalancer(_Part, frozen=True):
    """A load balancer, except its conditions."""

    name: str
    """``namespace/name``."""
    version: str = ""
    """Desired version."""
    hosts: tuple[ReportedHost, ...] = ()
    upstreams: tuple[ReportedUpstream, ...] = ()
    message: str = ""
    """Reason why there are no hosts."""


def report_load_balancers(objects: ObjectSet) -> tuple[ReportedLoadBalancer, ...]:
    """Return all ExternalLoadBalancers, sorted by name."""
    statuses = {
        f"{item['metadata']['namespace']}/{item['metadata']['name']}": item.get("status") or {}
        for item in objects.of_kind("ExternalLoadBalancer")
    }
    return tuple(report_load_balancer(name, statuses[name]) for name in sorted(statuses))


def report_load_balancer(name: str, status: Object) -> ReportedLoadBalancer:
    """Return the report about a status."""
    version = status.get("version", "")
    hosts = tuple(_hosts(status, version))
    return ReportedLoadBalancer(
        name,
        version,
        hosts,
        tuple(
            ReportedUpstream(
                entry.get("context", ""), entry.get("name", ""), entry.get("service", "")
            )
            for entry in status.get("upstreams") or ()
        ),
        "" if hosts else _refusal(status),
    )


def _refusal(status: Object) -> str:
    messages = (
        str(condition.get("message", ""))
        for condition in status.get("conditions") or ()
        if condition.get("type") == "Accepted" and condition.get("status") != "True"
    )
    return next(messages, "no status yet")


def _hosts(status: Object, version: str) -> Iterator[ReportedHost]:
    for entry in status.get("hosts") or ():
        host = ReportedHost(
            entry.get("url") or entry.get("name", ""),
            "True",
            entry.get("version", ""),
            entry.get("server", ""),
            str(entry.get("apiVersion", "")),
            entry.get("error", ""),
            tuple(
                FailingUpstream(failing["upstream"], failing["error"])
                for failing in entry.get("failing") or ()
            ),
        )
        if host.message:
            yield msgspec.structs.replace(host, synced="False")
        elif host.version != version:
            yield msgspec.structs.replace(host, synced="Pending")
        else:
            yield host
