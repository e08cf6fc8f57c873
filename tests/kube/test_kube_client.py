"""The verbs as they go over the wire, and how failures come back."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fakes.kube_fake_api import Handler, config_map, line, serving, status, stream
from gatehouse.apis.resources import CONFIG_MAPS, GATEWAY_CLASSES, GATEWAYS
from gatehouse.kube import client as kube
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken, TokenFile
from gatehouse.kube.errors import error_from_response


def answer(body: Any, code: int = 200) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=code)

    return handler


async def test_list_reads_pages_and_sets_kind_of_items() -> None:
    async with serving() as (api, client):
        for number in range(7):
            api.put(f"c{number}")
        result = await client.list(CONFIG_MAPS, limit=3)
        assert [item["metadata"]["name"] for item in result.items] == [f"c{n}" for n in range(7)]
        assert {(item["apiVersion"], item["kind"]) for item in result.items} == {
            ("v1", "ConfigMap")
        }
        assert result.resource_version == str(api.revision)
        assert [q.get("continue") for _, _, q in api.requests] == [None, "3", "6"]


async def test_list_with_expired_continuation_is_read_again_without_pages() -> None:
    async with serving() as (api, client):
        for name in "abc":
            api.put(name)
        api.lists.append(answer({"metadata": {"continue": "1"}, "items": [config_map("stale", 1)]}))
        api.lists.append(status(410, "Expired"))
        result = await client.list(CONFIG_MAPS, limit=1)
        assert [item["metadata"]["name"] for item in result.items] == ["a", "b", "c"]
        assert "limit" not in api.requests[-1][2]


async def test_selectors_and_namespace_are_sent() -> None:
    async with serving() as (api, client):
        await client.list(CONFIG_MAPS, "ns", label_selector="a=b,c", field_selector="x=y")
        _, path, query = api.requests[0]
        assert path == "/api/v1/namespaces/ns/configmaps"
        assert (query["labelSelector"], query["fieldSelector"]) == ("a=b,c", "x=y")


async def test_each_verb_requests_its_path() -> None:
    obj = {"metadata": {"name": "g", "namespace": "ns"}}
    async with serving() as (api, client):
        api.others.extend([answer(obj)] * 6)
        await client.get(GATEWAYS, "g", "ns")
        await client.create(GATEWAYS, obj)
        await client.update(GATEWAYS, obj)
        await client.update_status(GATEWAYS, obj)
        await client.patch(GATEWAYS, "g", {"a": 1}, "ns", "status")
        await client.delete(GATEWAYS, "g", "ns", uid="u1")
        base = "/apis/gateway.networking.k8s.io/v1/namespaces/ns/gateways"
        assert [(method, path) for method, path, _ in api.requests] == [
            ("GET", f"{base}/g"),
            ("POST", base),
            ("PUT", f"{base}/g"),
            ("PUT", f"{base}/g/status"),
            ("PATCH", f"{base}/g/status"),
            ("DELETE", f"{base}/g"),
        ]
        assert api.bodies[-1]["preconditions"] == {"uid": "u1"}
        assert api.bodies[-1]["propagationPolicy"] == "Background"


@pytest.mark.parametrize("name", ["", "..", "a/b", "%2e%2e"])
async def test_name_that_changes_path_is_rejected_without_request(name: str) -> None:
    async with serving() as (api, client):
        with pytest.raises(kube.BadRequest, match="cannot be part of a URL"):
            await client.get(GATEWAY_CLASSES, name)
        assert api.requests == []


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", kube.BadRequest),
        (401, "Unauthorized", kube.Unauthorized),
        (403, "Forbidden", kube.Forbidden),
        (404, "NotFound", kube.NotFound),
        (409, "Conflict", kube.Conflict),
        (409, "AlreadyExists", kube.AlreadyExists),
        (410, "Expired", kube.Gone),
        (422, "Invalid", kube.Invalid),
        (429, "TooManyRequests", kube.Unavailable),
        (500, "InternalError", kube.Unavailable),
        (503, "ServiceUnavailable", kube.Unavailable),
        (405, "MethodNotAllowed", kube.ApiError),
    ],
)
async def test_error_responses_map_to_exception_types(
    code: int, reason: str, kind: type[kube.ApiError]
) -> None:
    async with serving() as (api, client):
        api.others.extend([status(code, reason, "the words of the server")] * 2)
        with pytest.raises(kube.ApiError, match="the words of the server") as caught:
            await client.get(CONFIG_MAPS, "a", "ns")
        assert type(caught.value) is kind
        assert (caught.value.status, caught.value.reason) == (code, reason)


def test_error_page_of_intermediary_is_truncated() -> None:
    error = error_from_response(502, {}, b"<html>Bad Gateway</html>" + b" " * 10_000)
    assert str(error) == "HTTP 502: <html>Bad Gateway</html>"
    assert isinstance(error, kube.Unavailable)


def test_retry_after_is_read_from_status() -> None:
    body = b'{"reason":"ServerTimeout","details":{"retryAfterSeconds":3}}'
    assert error_from_response(504, {}, body).retry_after == 3.0


async def test_unreachable_server_is_unavailable() -> None:
    async with kube.Client(Configuration("http://127.0.0.1:1", StaticToken())) as client:
        with pytest.raises(kube.Unavailable, match=r"127\.0\.0\.1"):
            await client.get(CONFIG_MAPS, "a", "ns")


async def test_watch_yields_events_before_it_raises_error() -> None:
    async with serving() as (api, client):
        expired = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
        api.watches.append(stream(line("ADDED", config_map("a", 5)) + expired))
        names = []
        with pytest.raises(kube.Gone):
            async with aclosing(client.watch(CONFIG_MAPS, resource_version="4")) as events:
                async for event in events:
                    names.append(event.object["metadata"]["name"])
        assert names == ["a"]


async def test_rejected_token_is_read_again_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    async with serving(TokenFile(file)) as (api, client):
        await client.list(CONFIG_MAPS)
        file.write_text("new\n")
        api.lists.append(status(401, "Unauthorized"))
        await client.list(CONFIG_MAPS)
        assert api.tokens == ["Bearer old", "Bearer old", "Bearer new"]
        api.lists.extend([status(401, "Unauthorized")] * 2)
        with pytest.raises(kube.Unauthorized):
            await client.list(CONFIG_MAPS)


async def test_token_is_issued_for_pod() -> None:
    issued = {"status": {"token": "t", "expirationTimestamp": "2026-01-02T03:04:05Z"}}
    async with serving() as (api, client):
        api.others.append(answer(issued, 201))
        token, expires = await client.create_token("ns", "sa", ["aud"], 600, "pod", "uid")
        assert (token, expires) == ("t", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
        assert api.requests[0][1] == "/api/v1/namespaces/ns/serviceaccounts/sa/token"
        spec = api.bodies[0]["spec"]
        assert spec["audiences"] == ["aud"]
        assert spec["expirationSeconds"] == 600
        assert (spec["boundObjectRef"]["name"], spec["boundObjectRef"]["uid"]) == ("pod", "uid")


async def test_token_review_returns_user() -> None:
    user = {
        "username": "system:serviceaccount:ns:sa",
        "groups": ["g"],
        "extra": {"authentication.kubernetes.io/pod-name": ["pod"]},
    }
    review = {"status": {"authenticated": True, "user": user, "audiences": ["aud"]}}
    async with serving() as (api, client):
        api.others.append(answer(review, 201))
        result = await client.review_token("secret", ["aud"])
        assert result.authenticated
        assert result.username == "system:serviceaccount:ns:sa"
        assert result.extra["authentication.kubernetes.io/pod-name"] == ("pod",)


async def test_token_review_without_audiences_is_not_authenticated() -> None:
    async with serving() as (api, client):
        api.others.append(answer({"status": {"authenticated": True, "user": {"username": "u"}}}))
        result = await client.review_token("secret", ["aud"])
        assert not result.authenticated
        assert "audience" in result.error
