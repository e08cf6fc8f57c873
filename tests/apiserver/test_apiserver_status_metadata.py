"""Metadata in writes of a status, and the fields that strict decoding reports."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from fakes.inprocess import Server

MERGE = {"Content-Type": "application/merge-patch+json"}
CORE = "/api/v1/namespaces/default"
GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways"
LABELS = {"app": "web"}
POD = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD}
KINDS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("/api/v1/namespaces", {}, {"annotations", "labels"}),
    (f"{CORE}/services", {"spec": {"ports": [{"port": 80}]}}, {"annotations", "labels"}),
    (f"{CORE}/resourcequotas", {"spec": {"hard": {"pods": "1"}}}, {"annotations", "labels"}),
    (
        "/apis/apps/v1/namespaces/default/deployments",
        {"spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}},
        {"annotations"},
    ),
    (f"{CORE}/pods", {"spec": POD}, {"annotations", "labels"}),
    (
        GATEWAYS,
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "spec": {
                "gatewayClassName": "c",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            },
        },
        set(),
    ),
]


async def created(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    async with http.post(path, json={"metadata": {"name": "one"}, **body}) as response:
        assert response.status == 201, await response.text()


@pytest.mark.parametrize(("path", "body", "changed"), KINDS, ids=[path for path, _, _ in KINDS])
async def test_status_write_changes_metadata_of_most_builtin_kinds(
    server: Server, path: str, body: dict[str, Any], changed: set[str]
) -> None:
    patch = {"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}, "status": {}}
    async with server.raw() as http:
        await created(http, path, body)
        async with http.patch(f"{path}/one/status", json=patch, headers=MERGE) as response:
            answer = await response.json()
    assert response.status == 200, answer
    metadata = answer["metadata"]
    values = {"annotations": ("a", "b"), "labels": ("c", "d")}
    present = {field for field, item in values.items() if item in metadata.get(field, {}).items()}
    assert present == changed
    owned = [entry for entry in metadata["managedFields"] if entry.get("subresource") == "status"]
    fields = {field for entry in owned for field in entry["fieldsV1"].get("f:metadata", {})}
    assert fields == {f"f:{field}" for field in changed}


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
