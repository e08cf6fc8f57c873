"""Discovery of groups, versions and resources, in the legacy and the aggregated form."""

from __future__ import annotations

import base64
import hashlib
import re

from kube_api_server.objects.registry import Registry
from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.objects import Object

Groups = dict[str, dict[str, list[ServedResource]]]


class Discovery:
    """Discovery documents of one registry, rebuilt after the registry has changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = -1
        self._groups_cache: Groups = {}

    @property
    def _groups(self) -> Groups:
        if self._generation != self._registry.generation:
            groups: Groups = {}
            for served in self._registry.all():
                versions = groups.setdefault(served.resource.group, {})
                versions.setdefault(served.resource.version, []).append(served)
            self._groups_cache = {
                name: dict(sorted(versions.items(), key=lambda item: _rank(item[0])))
                for name, versions in groups.items()
            }
            self._generation = self._registry.generation
        return self._groups_cache

    @staticmethod
    def core_versions(server: str) -> Object:
        """Return the document of `/api`."""
        address = {"clientCIDR": "0.0.0.0/0", "serverAddress": server}
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}

    def group_list(self) -> Object:
        """Return the document of `/apis`."""
        groups = [self.group(name) for name in sorted(self._groups) if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, name: str) -> Object | None:
        """Return the document of `/apis/<group>`; None if the group is not served."""
        versions = self._groups.get(name)
        if versions is None or not name:
            return None
        listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": name,
            "versions": listed,
            "preferredVersion": listed[0],
        }

    def resource_list(self, group: str, version: str) -> Object | None:
        """Return the document of `/apis/<group>/<version>`; None if it is not served."""
        served = self._groups.get(group, {}).get(version)
        if served is None:
            return None
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [entry for resource in served for entry in _listed(resource)],
        }

    def aggregated(self, version: str, *, core: bool) -> Object:
        """Return the aggregated discovery of the core group or of all other groups."""
        items = [
            {
                "metadata": {"name": name, "creationTimestamp": None},
                "versions": [
                    {
                        "version": number,
                        "freshness": "Current",
                        "resources": [_aggregated(entry) for entry in served],
                    }
                    for number, served in versions.items()
                ],
            }
            for name, versions in sorted(self._groups.items())
            if (name == "") == core
        ]
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }


_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def _rank(version: str) -> tuple[int, int, int, str]:
    """Return a sort key for versions: stable before beta before alpha, newest first."""
    matched = _VERSION.fullmatch(version)
    if matched is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[matched[2]]
    return (stage, -int(matched[1]), -int(matched[3] or 0), version)


def _listed(served: ServedResource) -> list[Object]:
    entries: list[Object] = [
        {
            "name": served.resource.plural,
            "singularName": served.singular_name,
            "namespaced": served.resource.namespaced,
            "kind": served.resource.kind,
            "verbs": list(served.verbs),
            **({"shortNames": list(served.short)} if served.short else {}),
            **({"categories": list(served.categories)} if served.categories else {}),
            **({"storageVersionHash": _storage_version_hash(served)} if served.persisted else {}),
        }
    ]
    for name, verbs, kind in subresources(served):
        entries.append(
            {
                "name": f"{served.resource.plural}/{name}",
                "singularName": "",
                "namespaced": served.resource.namespaced,
                **_group_of(kind),
                "kind": kind,
                "verbs": list(verbs),
            }
        )
    return entries


def _storage_version_hash(served: ServedResource) -> str:
    """Return a text that changes when objects are stored in another version."""
    resource = served.resource
    text = f"{resource.group}/{served.storage_version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _group_of(kind: str) -> Object:
    known = {
        "Scale": ("autoscaling", "v1"),
        "TokenRequest": ("authentication.k8s.io", "v1"),
        "Eviction": ("policy", "v1"),
    }
    if kind not in known:
        return {}
    return {"group": known[kind][0], "version": known[kind][1]}


def _aggregated(served: ServedResource) -> Object:
    resource = served.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    inner = [
        {
            "subresource": name,
            "responseKind": {
                **kind,
                **_group_of(kind_name),
                "kind": kind_name,
            },
            "verbs": list(verbs),
        }
        for name, verbs, kind_name in subresources(served)
    ]
    return {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": served.singular_name,
        "verbs": list(served.verbs),
        **({"shortNames": list(served.short)} if served.short else {}),
        **({"categories": list(served.categories)} if served.categories else {}),
        **({"subresources": inner} if inner else {}),
    }


def subresources(served: ServedResource) -> list[tuple[str, tuple[str, ...], str]]:
    """Return name, verbs and kind of every subresource."""
    result: list[tuple[str, tuple[str, ...], str]] = []
    changed = ("get", "patch", "update")
    if served.status:
        result.append(("status", changed, served.resource.kind))
    if served.scale:
        result.append(("scale", changed, "Scale"))
    match served.resource.group, served.resource.plural:
        case "", "serviceaccounts":
            result.append(("token", ("create",), "TokenRequest"))
        case "", "pods":
            result += [("log", ("get",), "Pod"), ("eviction", ("create",), "Eviction")]
        case "certificates.k8s.io", "certificatesigningrequests":
            result.append(("approval", changed, served.resource.kind))
        case "", "namespaces":
            result.append(("finalize", ("update",), "Namespace"))
    return result
