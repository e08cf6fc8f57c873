"""Valid objects of the built-in kinds that are stored, and the keys of their lists."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.objects import Object, Schema

_LABELS = {"app": "web"}
_TEMPLATE: Object = {
    "metadata": {"labels": _LABELS},
    "spec": {"containers": [{"name": "c", "image": "i:1"}]},
}
_JOB = {"template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}
_WORKLOAD = {"spec": {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE}}
_ROLE = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}
_SCALED = {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "X", "name": "x"}}
_DEVICES = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}}
_POOL = {"name": "p", "generation": 1, "resourceSliceCount": 1}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
_VERSION = {"group": "x", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
_SCHEMA = {"openAPIV3Schema": {"type": "object"}}
_DEFINITION = {
    "group": "x.example",
    "scope": "Cluster",
    "names": {"plural": "xs", "kind": "X"},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": _SCHEMA}],
}

_BODIES: dict[str, Object] = {
    "ServiceAccount": {"secrets": [{"name": "s"}]},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "Pod": {"spec": _TEMPLATE["spec"]},
    "Event": {"involvedObject": {"namespace": "default"}},
    "Deployment": _WORKLOAD,
    "DaemonSet": _WORKLOAD,
    "ReplicaSet": _WORKLOAD,
    "ReplicationController": {"spec": {"template": _TEMPLATE}},
    "PodTemplate": {"template": _TEMPLATE},
    "Job": {"spec": _JOB},
    "CronJob": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": _JOB}}},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1}},
    "HorizontalPodAutoscaler": {"spec": _SCALED},
    "EndpointSlice": {"addressType": "IPv4", "endpoints": []},
    "RoleBinding": _ROLE,
    "ClusterRoleBinding": {"roleRef": {**_ROLE["roleRef"], "kind": "ClusterRole"}},
    "CustomResourceDefinition": {"spec": _DEFINITION},
    "ValidatingAdmissionPolicy": {
        "spec": {
            "matchConstraints": {"resourceRules": [_RULE]},
            "validations": [{"expression": "true"}],
        }
    },
    "ValidatingAdmissionPolicyBinding": {
        "spec": {"policyName": "p", "validationActions": ["Deny"]}
    },
    "PersistentVolumeClaim": {"spec": _CLAIM},
    "FlowSchema": {"spec": {"priorityLevelConfiguration": {"name": "exempt"}}},
    "PriorityLevelConfiguration": {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    "Ingress": {"spec": {"rules": [{"host": "a.example"}]}},
    "IngressClass": {"spec": {"controller": "example.com/c"}},
    "ResourceClaim": {"spec": _DEVICES},
    "ResourceClaimTemplate": {"spec": {"spec": _DEVICES}},
    "DeviceClass": {"spec": {}},
    "ResourceSlice": {"spec": {"driver": "d.example", "pool": _POOL, "nodeName": "n"}},
    "RuntimeClass": {"handler": "runc"},
    "PriorityClass": {"value": 10},
    "CSINode": {"spec": {"drivers": []}},
    "StorageClass": {"provisioner": "example.com/p"},
    "APIService": {"spec": _VERSION},
}
"""Fields of kinds that have none without."""

_NAMES = {"CustomResourceDefinition": "xs.x.example", "APIService": "v1.x"}
_LEFT_OUT = ("CertificateSigningRequest", "ClusterTrustBundle")
"""Kinds whose objects need certificates."""


class ListKey(msgspec.Struct, frozen=True):
    """A key of an associative list."""

    path: tuple[str | int, ...]
    """Path of the list. Numbers are indices."""
    name: str
    example: Any = "x"
    """Value of the right type."""
    others: tuple[ListKey, ...] = ()
    """Keys of the lists around it, and the other keys of its own list."""


def stored_builtin_kinds() -> list[ServedResource]:
    """Return the built-in kinds of which :func:`valid_object` builds objects."""
    return [
        served
        for served in BUILTIN_KINDS
        if served.persisted and not served.alias and served.resource.kind not in _LEFT_OUT
    ]


def valid_object(served: ServedResource) -> Object:
    """Build the smallest object of a kind."""
    kind = served.resource.kind
    head = {"apiVersion": served.resource.api_version, "kind": kind}
    body = _BODIES.get(kind, {})
    whole = {**head, "metadata": {"name": _NAMES.get(kind, "one")}, **body}
    result: Object = json.loads(json.dumps(whole))
    return result


def list_keys_of(served: ServedResource) -> list[ListKey]:
    """Return all keys of associative lists of a kind. Each recursive schema is entered once."""
    return list(_keys(served.schema, (), (), frozenset()))


def _keys(
    schema: Schema, path: tuple[str | int, ...], outer: tuple[ListKey, ...], entered: frozenset[int]
) -> Iterator[ListKey]:
    if id(schema) in entered:
        return
    entered |= {id(schema)}
    if schema.get("x-kubernetes-list-type") == "map":
        types = schema["items"]["properties"]
        keys = [
            ListKey(path, name, 1 if types[name]["type"] == "integer" else "x")
            for name in schema["x-kubernetes-list-map-keys"]
        ]
        for key in keys:
            siblings = tuple(other for other in keys if other is not key)
            yield msgspec.structs.replace(key, others=outer + siblings)
        outer += tuple(keys)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _keys(inner, (*path, name), outer, entered)
    for keyword, step in (("items", 0), ("additionalProperties", "x")):
        if isinstance(schema.get(keyword), dict):
            yield from _keys(schema[keyword], (*path, step), outer, entered)


def with_key(obj: Object, key: ListKey, value: Any) -> Object:
    """Return a copy of an object with an item whose key has a value, in lists with such items."""
    result: Object = json.loads(json.dumps(obj))
    for other in key.others:
        _first_item(result, other.path).setdefault(other.name, other.example)
    _first_item(result, key.path)[key.name] = value
    return result


def _first_item(obj: Object, path: tuple[str | int, ...]) -> Object:
    """Return the first item of a list, added if absent."""
    holder: Any = obj
    for step, following in itertools.pairwise((*path, 0, "")):
        inner: Any = [] if isinstance(following, int) else {}
        if isinstance(holder, list):
            if not holder:
                holder.append(inner)
            holder = holder[0]
        else:
            holder = holder.setdefault(step, inner)
    item: Object = holder
    return item
