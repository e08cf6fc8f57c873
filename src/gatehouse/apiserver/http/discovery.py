"""Discovery: which groups, versions and resources there are, in both forms clients ask for."""

from __future__ import annotations

from typing import Any

from gatehouse.apiserver.registry import SERVED, Served

Object = dict[str, Any]

VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


def _groups() -> dict[str, dict[str, list[Served]]]:
    groups: dict[str, dict[str, list[Served]]] = {}
    for served in SERVED:
        versions = groups.setdefault(served.resource.group, {})
        for version in served.versions:
            versions.setdefault(version, []).append(served)
    return groups


def core_versions(server: str) -> Object:
    """Give ``/api``."""
    address = {"clientCIDR": "0.0.0.0/0", "serverAddress": server}
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}


def group_list() -> Object:
    """Give ``/apis``."""
    groups = [group(name) for name in sorted(_groups()) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(name: str) -> Object | None:
    """Give ``/apis/<group>``."""
    versions = _groups().get(name)
    if versions is None:
        return None
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": listed,
        "preferredVersion": listed[0],
    }


def resource_list(group_name: str, version: str) -> Object | None:
    """Give ``/apis/<group>/<version>``."""
    served = _groups().get(group_name, {}).get(version)
    if served is None:
        return None
    found: list[Object] = []
    for entry in served:
        found.append(
            {
                "name": entry.resource.plural,
                "singularName": entry.resource.kind.lower(),
                "namespaced": entry.resource.namespaced,
                "kind": entry.resource.kind,
                "verbs": list(VERBS if entry.stored else ("create",)),
                **({"shortNames": list(entry.short)} if entry.short else {}),
            }
        )
        for name, verbs, kind in _subresources(entry):
            found.append(
                {
                    "name": f"{entry.resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": entry.resource.namespaced,
                    "kind": kind,
                    "verbs": list(verbs),
                }
            )
    whole = f"{group_name}/{version}" if group_name else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": whole,
        "resources": found,
    }


def aggregated(version: str, *, core: bool) -> Object:
    """Give the aggregated discovery of the core group or of all others."""
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None},
            "versions": [
                {
                    "version": number,
                    "freshness": "Current",
                    "resources": [_aggregated(entry, number) for entry in served],
                }
                for number, served in versions.items()
            ],
        }
        for name, versions in sorted(_groups().items())
        if (name == "") == core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated(entry: Served, version: str) -> Object:
    resource = entry.resource
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    subresources = [
        {
            "subresource": name,
            "responseKind": {"group": resource.group, "version": version, "kind": kind_name},
            "verbs": list(verbs),
        }
        for name, verbs, kind_name in _subresources(entry)
    ]
    return {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.kind.lower(),
        "verbs": list(VERBS if entry.stored else ("create",)),
        **({"shortNames": list(entry.short)} if entry.short else {}),
        **({"subresources": subresources} if subresources else {}),
    }


def _subresources(entry: Served) -> list[tuple[str, tuple[str, ...], str]]:
    found: list[tuple[str, tuple[str, ...], str]] = []
    if entry.status:
        found.append(("status", ("get", "patch", "update"), entry.resource.kind))
    if entry.resource.plural == "serviceaccounts":
        found.append(("token", ("create",), "TokenRequest"))
    return found
