"""Routes with fields that the CRDs of Gateway API 1.7 have under another name."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from fakes.custom_kinds import CRDS
from fakes.inprocess import Server
from fakes.patience import until

CRD = f"{CRDS}/httproutes.gateway.networking.k8s.io"
ROUTES = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes"
SCHEMA = (
    "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/rules/items/properties"
    "/sessionPersistence"
)
FORMER_SCHEMA = {
    "type": "object",
    "properties": {
        "sessionName": {"type": "string"},
        "type": {"type": "string", "default": "Cookie"},
        "absoluteTimeout": {"type": "string"},
        "cookieConfig": {"type": "object", "properties": {"lifetimeType": {"type": "string"}}},
    },
}
"""The schema of sessions in Gateway API 1.6, without limits of values."""


async def patch(http: aiohttp.ClientSession, path: str, pointer: str, value: Any) -> Any:
    """Set a part of an object. Return the status and the response."""
    headers = {"Content-Type": "application/json-patch+json"}
    operations = [{"op": "add", "path": pointer, "value": value}]
    async with http.patch(path, json=operations, headers=headers) as response:
        return response.status, await response.json()


async def session(http: aiohttp.ClientSession) -> Any:
    """Return the session persistence of the route."""
    async with http.get(f"{ROUTES}/r") as response:
        return (await response.json())["spec"]["rules"][0]["sessionPersistence"]


LIFETIME = {"absoluteTimeout": "1h", "type": "Cookie"}


@pytest.mark.parametrize(
    ("former", "new", "why"),
    [
        (
            {**LIFETIME, "sessionName": "shop", "cookieConfig": {"lifetimeType": "Permanent"}},
            {**LIFETIME, "cookie": {"name": "shop", "lifetimeType": "Permanent", "path": "/"}},
            "cookie must be specified for Cookie type",
        ),
        (
            {"type": "Header", "sessionName": "X-Shop"},
            {"type": "Header", "header": {"name": "X-Shop"}},
            "header must be specified for Header type",
        ),
    ],
    ids=["cookie", "header"],
)
async def test_session_with_former_fields_stays_until_it_gets_the_new_ones(
    server: Server, former: dict[str, Any], new: dict[str, Any], why: str
) -> None:
    head = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute"}
    spec = {"rules": [{"sessionPersistence": former}]}
    route = {**head, "metadata": {"name": "r"}, "spec": spec}
    async with server.raw() as http:
        async with http.get(CRD) as response:
            schema: Any = await response.json()
        for step in SCHEMA.split("/")[1:]:
            schema = schema[int(step) if step.isdigit() else step]
        assert (await patch(http, CRD, SCHEMA, FORMER_SCHEMA))[0] == 200

        async def is_created() -> bool:
            async with http.post(ROUTES, json=route) as response:
                assert response.status in (201, 422), await response.text()
            return response.status == 201

        await until(is_created)
        assert await session(http) == former
        assert (await patch(http, CRD, SCHEMA, schema))[0] == 200

        async def refusal() -> Any:
            status, answer = await patch(http, f"{ROUTES}/r", "/metadata/labels", {"a": "b"})
            return answer["message"] if status == 422 else ""

        assert why in await until(refusal)
        status, answer = await patch(http, f"{ROUTES}/r/status", "/status", {"parents": []})
        assert (status, answer.get("status")) == (200, {"parents": []}), answer
        assert answer["metadata"]["generation"] == 1
        assert await session(http) == former
        assert (await patch(http, f"{ROUTES}/r", "/spec/rules/0/sessionPersistence", new))[0] == 200
        assert await session(http) == new
