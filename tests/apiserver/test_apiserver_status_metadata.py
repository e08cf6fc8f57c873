"""Metadata in writes of a status, and the fields that strict decoding reports."""

from __future__ import annotations

from typing import Any, NamedTuple

import aiohttp
import pytest

from fakes.inprocess import Server

MERGE = {"Content-Type": "application/merge-patch+json"}
CORE = "/api/v1/namespaces/default"
GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways"
LABELS = {"app": "web"}
POD = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD}
GATEWAY = {
    "gatewayClassName": "c",
    "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
}
RULE = {"apiGroups": ["a"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["a"]}
POLICY = {
    "validations": [{"expression": "true"}],
    "matchConstraints": {"resourceRules": [RULE]},
}
API_SERVICE = {"group": "a", "version": "v1", "groupPriorityMinimum": 9, "versionPriority": 9}
ALL = {"annotations", "finalizers", "labels", "ownerReferences"}


class Case(NamedTuple):
    """A kind, and the fields of metadata that a write of its status changes."""

    path: str
    api_version: str
    kind: str
    spec: dict[str, Any]
    changed: set[str]
    name: str = "one"

    def manifest(self, **fields: Any) -> dict[str, Any]:
        """Return an object without a spec, with further fields of metadata."""
        metadata = {"name": self.name, **fields}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}


KINDS = [
    Case("/api/v1/namespaces", "v1", "Namespace", {}, ALL),
    Case(f"{CORE}/services", "v1", "Service", {"ports": [{"port": 80}]}, ALL),
    Case(f"{CORE}/resourcequotas", "v1", "ResourceQuota", {"hard": {"pods": "1"}}, ALL),
    Case(
        "/apis/apps/v1/namespaces/default/deployments",
        "apps/v1",
        "Deployment",
        {"selector": {"matchLabels": LABELS}, "template": TEMPLATE},
        ALL - {"labels"},
    ),
    Case(f"{CORE}/pods", "v1", "Pod", POD, ALL - {"ownerReferences"}),
    Case(GATEWAYS, "gateway.networking.k8s.io/v1", "Gateway", GATEWAY, set()),
    Case(
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        POLICY,
        set(),
    ),
    Case(
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "apiregistration.k8s.io/v1",
        "APIService",
        API_SERVICE,
        set(),
        "v1.a",
    ),
]


async def created(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    async with http.post(path, json={"metadata": {"name": "one"}, **body}) as response:
        assert response.status == 201, await response.text()


async def metadata_to_write(http: aiohttp.ClientSession) -> dict[str, Any]:
    """Return metadata of which the owner exists, so that the garbage collector keeps objects."""
    async with http.get("/api/v1/namespaces/default") as response:
        uid = (await response.json())["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": uid}
    return {
        "annotations": {"a": "b"},
        "finalizers": ["a.example/b"],
        "labels": {"c": "d"},
        "ownerReferences": [owner],
    }


@pytest.mark.parametrize("kind", KINDS, ids=[case.kind for case in KINDS])
@pytest.mark.parametrize("patch_type", ["merge-patch+json", "apply-patch+yaml"])
async def test_status_write_changes_metadata_of_most_builtin_kinds(
    server: Server, kind: Case, patch_type: str
) -> None:
    async with server.raw() as http:
        await created(http, kind.path, kind.manifest() | {"spec": kind.spec})
        fields = await metadata_to_write(http)
        async with http.patch(
            f"{kind.path}/{kind.name}/status",
            json=kind.manifest(**fields) | {"status": {}},
            headers={"Content-Type": f"application/{patch_type}"},
            params={"fieldManager": "writer"},
        ) as response:
            answer = await response.json()
    assert response.status == 200, answer
    metadata = answer["metadata"]
    changed = {
        field
        for field, value in fields.items()
        if value == metadata.get(field)
        or (field == "labels" and value.items() <= metadata.get(field, {}).items())
        or (field == "finalizers" and value[0] in metadata.get(field, ()))
    }
    assert changed == kind.changed
    owned = [entry for entry in metadata["managedFields"] if entry["manager"] == "writer"]
    of_metadata = {field for entry in owned for field in entry["fieldsV1"].get("f:metadata", {})}
    assert of_metadata == {f"f:{field}" for field in kind.changed}


async def test_status_write_cannot_change_the_spec_or_the_generation(server: Server) -> None:
    patch = {"spec": {"ports": [{"port": 81}]}, "metadata": {"finalizers": ["a.example/b"]}}
    async with server.raw() as http:
        await created(http, f"{CORE}/services", {"spec": {"ports": [{"port": 80}]}})
        async with http.patch(f"{CORE}/services/one/status", json=patch, headers=MERGE) as response:
            answer = await response.json()
    assert [port["port"] for port in answer["spec"]["ports"]] == [80]
    assert answer["metadata"]["finalizers"] == ["a.example/b"]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (
            f"{CORE}/configmaps",
            '{"metadata": {"name": "x", "odd": 1}, "data": {"a": "b", "a": "c"}, "other": 1}',
            'unknown field "metadata.odd", unknown field "other", duplicate field "data.a"',
        ),
        (
            GATEWAYS,
            '{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "other": 1, '
            '"metadata": {"name": "x", "name": "y"}}',
            'duplicate field "metadata.name", unknown field "other"',
        ),
    ],
    ids=["built-in kind", "custom resource"],
)
async def test_strict_decoding_names_unknown_and_duplicate_fields(
    server: Server, path: str, body: str, expected: str
) -> None:
    headers = {"Content-Type": "application/json"}
    params = {"fieldValidation": "Strict"}
    async with (
        server.raw() as http,
        http.post(path, data=body, params=params, headers=headers) as response,
    ):
        message = (await response.json())["message"]
    assert (response.status, expected in message) == (400, True), message
