"""Requests in the audit log of a kube-apiserver, and the permissions that they used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gatehouse.controller.permissions import Permission

_ACCEPTED = {
    "ExternalDNS is not installed": r"^externaldns\.k8s\.io dnsendpoints ",
    "no UpstreamCluster has a limit that data planes share": r" ratelimitconditions",
    "only for an Event that happens again": r"^ events patch$",
    "Kubernetes before 1.37 does not serve the kind": r" clustertrustbundles watch$",
}
"""Permissions that a run need not use: regular expressions by reason."""


class AuditLog:
    """The audit log of a kube-apiserver, with its rotated files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def requests(self, account: str = "", *, begun: bool = False) -> Iterator[dict[str, Any]]:
        """Yield completed requests of everyone, the oldest first.

        ``account``: only those of a ServiceAccount, ``namespace:name``, or of all of a namespace.
        ``begun``: those whose response has begun instead, such as watches that still run.
        """
        stage = "ResponseStarted" if begun else "ResponseComplete"
        for event in self._events():
            prefix, _, user = event["user"].get("username", "").partition("system:serviceaccount:")
            names = (user, user.partition(":")[0])
            if event["stage"] == stage and (not account or (not prefix and account in names)):
                yield event

    def unused(self, account: str, roles: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return what a ServiceAccount has not used of its roles, though a run must."""
        granted = {permission for role in roles for permission in _granted(role)}
        return sorted(
            " ".join(permission)
            for permission in granted - self._used(account)
            if not _follows_a_conflict(permission, granted) and not _is_accepted(permission)
        )

    def _used(self, account: str) -> set[Permission]:
        return {
            Permission(
                event["objectRef"].get("apiGroup", ""), requested_resource(event), event["verb"]
            )
            for begun in (False, True)
            for event in self.requests(account, begun=begun)
            if "objectRef" in event
        }

    def _events(self) -> Iterator[dict[str, Any]]:
        # Rotated files have the time in their names.
        rotated = self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}")
        for file in (*sorted(rotated), self._path):
            with file.open() as log:
                # The last line may not be complete yet.
                yield from (json.loads(line) for line in log if line.endswith("\n"))


def requested_resource(event: Mapping[str, Any]) -> str:
    """Return the plural name of an event's kind, with its subresource."""
    reference = event.get("objectRef", {})
    names = (reference.get("resource", ""), reference.get("subresource", ""))
    return "/".join(filter(None, names))


def _granted(role: Mapping[str, Any]) -> Iterator[Permission]:
    """Yield the permissions of a Role or ClusterRole."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for name in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Permission(group, name, verb)


def _follows_a_conflict(permission: Permission, granted: set[Permission]) -> bool:
    """Return whether an object is read only after a write that conflicts with another client's."""
    written = {
        permission._replace(resource=f"{permission.resource}{subresource}", verb="update")
        for subresource in ("", "/status")
    }
    return permission.verb == "get" and bool(written & granted)


def _is_accepted(permission: Permission) -> bool:
    """Return whether a run need not use a permission."""
    words = " ".join(permission)
    return any(re.search(pattern, words) for pattern in _ACCEPTED.values())
