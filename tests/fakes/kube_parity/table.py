"""The table of requests."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kube_base.types.objects import Object, copy_value

DIRECTORY = Path(__file__).parent

CORE, GATEWAY = "/api/v1/namespaces/{namespace}", "/apis/gateway.networking.k8s.io/v1"
_COLLECTIONS = {
    **{
        plural: f"{CORE}/{plural}"
        for plural in ("configmaps", "secrets", "services", "pods", "serviceaccounts")
    },
    "namespaces": "/api/v1/namespaces",
    "crds": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}
_GROUPS = {
    "gateways": "gateway.networking.k8s.io/v1",
    "httproutes": "gateway.networking.k8s.io/v1",
    "deployments": "apps/v1",
    "leases": "coordination.k8s.io/v1",
    "poddisruptionbudgets": "policy/v1",
    "endpointslices": "discovery.k8s.io/v1",
    "networkpolicies": "networking.k8s.io/v1",
    "horizontalpodautoscalers": "autoscaling/v2",
    "roles": "rbac.authorization.k8s.io/v1",
    "rolebindings": "rbac.authorization.k8s.io/v1",
    "widgets": "parity.example/v1",
    "scalables": "parity.example/v1",
}
_OF_OBJECTS = {
    "pdb": "poddisruptionbudgets",
    "hpa": "horizontalpodautoscalers",
    "networkpolicy": "networkpolicies",
}
"""Collections of objects whose plural has no `s`, or whose name in the table is short."""

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ParityRequest(msgspec.Struct, frozen=True):
    """A request of the table."""

    name: str
    """Unique name: the group, a colon, and what is requested."""
    namespace: str
    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    status_only: bool = False
    """True if only status and headers are compared, because the content is that of a server."""
    recorded: bool = True
    """False if the request only prepares others."""
    wait: int = 0
    """Status code with which the request is repeated, until the server is ready for it."""


@functools.cache
def objects() -> dict[str, Object]:
    """Return the valid objects by name."""
    named: dict[str, Object] = _read("objects.yaml")
    return named


@functools.cache
def parity_requests() -> tuple[ParityRequest, ...]:
    """Return the table in the order of its requests."""
    requests = (
        *_life(),
        *_invalid(),
        *_sequence("updates"),
        *_sequence("reads"),
        *_sequence("operators"),
        *_sequence("kinds"),
        *_sequence("statuses"),
        *_sequence("devices"),
        *_sequence("jobs"),
        *_sequence("events"),
        *_sequence("ownership"),
        *_sequence("nulls"),
        *_sequence("families"),
        *_sequence("selectors"),
    )
    names = [request.name for request in requests]
    assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]
    return requests


def namespaces() -> list[str]:
    """Return the namespaces of all requests."""
    return list(dict.fromkeys(request.namespace for request in parity_requests()))


def _read(name: str) -> Any:
    return yaml.safe_load((DIRECTORY / name).read_text())


def _life() -> Iterator[ParityRequest]:
    table = _read("requests/life.yaml")
    for kind in table["for"]:
        obj = objects()[kind]
        values = {"path": collection(f"{kind}s"), "name": obj["metadata"]["name"]}
        for entry in table["requests"]:
            yield _request(f"life of a {kind}", "parity-life", entry, kind, values)


def _invalid() -> Iterator[ParityRequest]:
    for kind, cases in _read("requests/invalid.yaml").items():
        path = collection(_OF_OBJECTS.get(kind, f"{kind}s"))
        query = "dryRun=All&fieldManager=editor&fieldValidation"
        for case, changes in cases.items():
            for validation in ("Strict", "Warn") if "unknown field" in case else ("Strict",):
                entry = {
                    "as": f"{case} ({validation})",
                    "do": f"POST {path}?{query}={validation}",
                    "object": kind,
                    "set": changes,
                }
                yield _request(f"invalid {kind}", "parity-invalid", entry)


def _sequence(group: str) -> Iterator[ParityRequest]:
    for entry in _read(f"requests/{group}.yaml"):
        yield _request(group, f"parity-{group}", entry)


def _request(
    group: str, namespace: str, entry: Object, kind: str = "", values: Object | None = None
) -> ParityRequest:
    values = {**(values or {}), "namespace": namespace}
    method, _, path = _filled(entry["do"], values).partition(" ")
    if not path.startswith("/"):
        first, slash, rest = path.partition("/")
        plural, mark, query = first.partition("?")
        path = collection(plural) + mark + query + slash + rest
    headers = {"Accept": entry.get("accept", "application/json")}
    body = _body(entry, kind, values)
    if body is not None:
        name = entry.get("type", "application/json")
        headers["Content-Type"] = PATCH_TYPES.get(name, name)
    if "user" in entry:
        headers["Impersonate-User"] = entry["user"]
    return ParityRequest(
        f"{group}: {entry['as']}",
        namespace,
        method,
        path.replace("{namespace}", namespace),
        body,
        headers,
        entry.get("status_only", False),
        not entry.get("unrecorded"),
        entry.get("wait", 0),
    )


def collection(plural: str) -> str:
    """Return the path of a collection; its namespace is still open."""
    if plural in _COLLECTIONS:
        return _COLLECTIONS[plural]
    return f"/apis/{_GROUPS[plural]}/namespaces/{{namespace}}/{plural}"


def _filled(text: str, values: Object) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _body(entry: Object, kind: str, values: Object) -> bytes | None:
    if "text" in entry:
        return str(entry["text"]).encode()
    if "file" in entry:
        return Path(DIRECTORY, entry["file"]).read_bytes()
    if "body" in entry:
        return msgspec.json.encode(entry["body"])
    if "object" not in entry:
        return None
    named = entry["object"]
    obj = objects()[kind if named in ("self", "bare") else named]
    if named == "bare":
        obj = {**obj, "metadata": {"name": obj["metadata"]["name"]}}
        obj = {key: obj[key] for key in ("apiVersion", "kind", "metadata")}
    changed = copy_value(obj)
    for path, value in (entry.get("set") or {}).items():
        _set(changed, path.split("."), _filled(value, values) if isinstance(value, str) else value)
    return msgspec.json.encode(changed)


def _set(holder: Any, path: list[str], value: Any) -> None:
    """Set a field. None removes it."""
    step: Any = int(path[0]) if isinstance(holder, list) else path[0]
    if len(path) > 1:
        if isinstance(holder, dict):
            holder.setdefault(step, {})
        _set(holder[step], path[1:], value)
    elif value is None:
        holder.pop(step, None)
    elif isinstance(holder, list) and step == len(holder):
        holder.append(value)
    else:
        holder[step] = value
