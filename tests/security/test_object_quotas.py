"""ResourceQuotas at the embedded API server: numbers of objects, and what Pods request.

Who: a tenant with permission to create objects in one namespace. Through what: creates one after
another and at the same time, server-side apply, dry runs, updates that claim more, other API
groups of the same objects, and deletion. What must hold: a quota of the operator is never exceeded,
the answer names quota, resource and numbers, other namespaces are not affected, and the status has
the correct use. A quota that the server could not enforce is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.inprocess import Server
from fakes.patience import until_equal
from gatehouse.standalone.state_directory import State

CORE = "/api/v1/namespaces"
GATEWAY_API = "/apis/gateway.networking.k8s.io/v1/namespaces"
ROUTE = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "spec": {"parentRefs": [{"name": "gw"}]},
}
PORTS = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.raw() as session:
        assert isinstance(session.connector, aiohttp.TCPConnector)
        session.connector._limit = 100
        for name in ("a", "b"):
            async with session.post("/api/v1/namespaces", json={"metadata": {"name": name}}):
                pass
        yield session


async def send(
    http: aiohttp.ClientSession, method: str, path: str, body: Any = None, **options: Any
) -> tuple[int, Any]:
    async with http.request(method, path, json=body, **options) as response:
        return response.status, await response.json()


async def create(
    http: aiohttp.ClientSession, path: str, name: str, rest: Any = None, **options: Any
) -> tuple[int, str]:
    body = {"metadata": {"name": name}, **(rest or {})}
    status, answer = await send(http, "POST", path, body, **options)
    return status, answer.get("message", "")


async def set_quota(http: aiohttp.ClientSession, hard: Any, namespace: str = "a") -> None:
    status, message = await create(
        http, f"{CORE}/{namespace}/resourcequotas", "q", {"spec": {"hard": hard}}
    )
    assert status == 201, message


async def use(http: aiohttp.ClientSession, expected: dict[str, str]) -> None:
    """Wait until the status of the quota has this use."""

    async def used() -> Any:
        _, quota = await send(http, "GET", f"{CORE}/a/resourcequotas/q")
        status = quota.get("status")
        if status and status["used"] == expected:
            assert status["hard"] == quota["spec"]["hard"]
        return status and status["used"]

    await until_equal(used, expected)


KINDS = [
    ("count/configmaps", f"{CORE}/a/configmaps", {}),
    ("configmaps", f"{CORE}/a/configmaps", {}),
    ("secrets", f"{CORE}/a/secrets", {}),
    ("services", f"{CORE}/a/services", {"spec": {"ports": PORTS}}),
    ("count/httproutes.gateway.networking.k8s.io", f"{GATEWAY_API}/a/httproutes", ROUTE),
    (
        "count/endpointslices.discovery.k8s.io",
        "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices",
        {"addressType": "IPv4", "endpoints": []},
    ),
]


async def test_quota_limits_objects_of_its_namespace(admin: aiohttp.ClientSession) -> None:
    for name, path, rest in KINDS:
        await _limited(admin, name, path, rest)
        assert (await send(admin, "DELETE", f"{CORE}/a/resourcequotas/q"))[0] == 200


async def _limited(admin: aiohttp.ClientSession, name: str, path: str, rest: Any) -> None:
    _, listed = await send(admin, "GET", path)
    present = len(listed["items"])
    await set_quota(admin, {name: str(present + 2)})
    for number in range(2):
        status, message = await create(admin, path, f"x{number}", rest)
        assert status == 201, message
    status, message = await create(admin, path, "x2", rest)
    plural = path.rpartition("/")[2]
    assert status == 403
    assert message.startswith(f"{plural}")
    total = present + 2
    assert message.endswith(
        f'"x2" is forbidden: exceeded quota: q, requested: {name}=1, used: {name}={total}, '
        f"limited: {name}={total}"
    )
    await use(admin, {name: str(total)})
    # Others are not affected, an update claims nothing, and a deletion gives the place back.
    assert (await create(admin, path.replace("/a/", "/b/"), "x2", rest))[0] == 201
    headers = {"Content-Type": "application/merge-patch+json"}
    body = {"metadata": {"labels": {"a": "b"}}}
    assert (await send(admin, "PATCH", f"{path}/x0", body, headers=headers))[0] == 200
    assert (await send(admin, "DELETE", f"{path}/x0"))[0] == 200
    await use(admin, {name: str(total - 1)})
    assert (await create(admin, path, "x2", rest))[0] == 201
    await use(admin, {name: str(total)})
    for namespace in ("a", "b"):
        await send(admin, "DELETE", path.replace("/a/", f"/{namespace}/"))


async def test_concurrent_creates_do_not_exceed_a_quota(admin: aiohttp.ClientSession) -> None:
    _, listed = await send(admin, "GET", f"{CORE}/a/configmaps")
    limit = len(listed["items"]) + 30
    await set_quota(admin, {"count/configmaps": limit, "configmaps": limit + 1})
    results = await asyncio.gather(
        *(create(admin, f"{CORE}/a/configmaps", f"x{number}") for number in range(200))
    )
    assert sorted(status for status, _ in results) == [201] * 30 + [403] * 170
    await use(admin, {"count/configmaps": str(limit), "configmaps": str(limit)})


async def test_rejected_and_dry_writes_release_their_place(admin: aiohttp.ClientSession) -> None:
    path = f"{CORE}/a/configmaps"
    _, listed = await send(admin, "GET", path)
    await set_quota(admin, {"configmaps": len(listed["items"]) + 1})
    for _ in range(3):
        assert (await create(admin, path, "x", params={"dryRun": "All"}))[0] == 201
        assert (await create(admin, path, "invalid_name"))[0] == 422
    results = await asyncio.gather(*(create(admin, path, "x") for _ in range(20)))
    assert sorted(status for status, _ in results)[0] == 201
    assert {status for status, _ in results} <= {201, 403, 409}
    assert [status for status, _ in results].count(201) == 1
    # At the limit, a dry run is refused as the write would be.
    assert (await create(admin, path, "y", params={"dryRun": "All"}))[0] == 403
    headers = {"Content-Type": "application/apply-patch+yaml"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "y"}}
    params = {"fieldManager": "m"}
    status, _ = await send(admin, "PATCH", f"{path}/y", body, headers=headers, params=params)
    assert status == 403


async def test_update_that_claims_more_is_refused(admin: aiohttp.ClientSession) -> None:
    await set_quota(admin, {"services.loadbalancers": "1", "services.nodeports": "3"})
    path = f"{CORE}/a/services"
    for name, kind in (("x", "LoadBalancer"), ("y", "ClusterIP")):
        rest = {"spec": {"type": kind, "ports": PORTS}}
        assert (await create(admin, path, name, rest))[0] == 201
    await use(admin, {"services.loadbalancers": "1", "services.nodeports": "2"})
    headers = {"Content-Type": "application/merge-patch+json"}
    for kind, message in (
        ("LoadBalancer", "requested: services.loadbalancers=1,services.nodeports=2, used: "),
        ("NodePort", "requested: services.nodeports=2, used: services.nodeports=2, limited: "),
    ):
        body = {"spec": {"type": kind}}
        status, answer = await send(admin, "PATCH", f"{path}/y", body, headers=headers)
        assert (status, message in answer["message"]) == (403, True), answer
    assert (await send(admin, "DELETE", f"{path}/x"))[0] == 200
    status, _ = await send(
        admin, "PATCH", f"{path}/y", {"spec": {"type": "LoadBalancer"}}, headers=headers
    )
    assert status == 200
    await use(admin, {"services.loadbalancers": "1", "services.nodeports": "2"})


async def test_pods_that_ended_count_only_as_objects(admin: aiohttp.ClientSession) -> None:
    await set_quota(admin, {"pods": "1", "count/pods": "2"})
    path = f"{CORE}/a/pods"
    rest = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert (await create(admin, path, "x", rest))[0] == 201
    status, message = await create(admin, path, "y", rest)
    assert (status, "limited: pods=1" in message) == (403, True)
    headers = {"Content-Type": "application/merge-patch+json"}
    ended = {"status": {"phase": "Succeeded"}}
    assert (await send(admin, "PATCH", f"{path}/x/status", ended, headers=headers))[0] == 200
    await use(admin, {"pods": "0", "count/pods": "1"})
    assert (await create(admin, path, "y", rest))[0] == 201
    assert "limited: count/pods=2" in (await create(admin, path, "z", rest))[1]


async def test_events_of_both_groups_count(admin: aiohttp.ClientSession) -> None:
    await set_quota(admin, {"count/events.events.k8s.io": "1"})
    rest = {"involvedObject": {"namespace": "a"}}
    assert (await create(admin, f"{CORE}/a/events", "x", rest))[0] == 201
    assert "exceeded quota: q" in (await create(admin, f"{CORE}/a/events", "y", rest))[1]


OF_NO_CLASS = {"scopeName": "PriorityClass", "operator": "In"}
INVALID = [
    ({"hard": {"requests.gpu": "1"}}, "spec.hard[requests.gpu]: "),
    ({"hard": {"requests.kubernetes.io/x": "1"}}, "must be a standard resource for quota"),
    ({"hard": {"count/": "1"}}, "spec.hard[count/]: "),
    ({"hard": {"configmaps": "-1"}}, "must be greater than or equal to 0"),
    ({"hard": {"configmaps": "500m"}}, "must be an integer"),
    ({"hard": {"configmaps": "x"}}, "spec.hard"),
    ({"hard": {"pods": "1"}, "scopes": ["Sometimes"]}, "unsupported scope"),
    ({"hard": {"pods": "1"}, "scopes": ["VolumeAttributesClass"]}, "unsupported scope applied"),
    ({"hard": {"services": "1"}, "scopes": ["Terminating"]}, "unsupported scope applied"),
    ({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}, "unsupported scope applied"),
    ({"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}, "conflicting scopes"),
    (
        {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [OF_NO_CLASS]}},
        "must be at least one value",
    ),
]


async def test_quota_that_cannot_be_enforced_is_refused(admin: aiohttp.ClientSession) -> None:
    for spec, message in INVALID:
        status, answer = await create(admin, f"{CORE}/a/resourcequotas", "q", {"spec": spec})
        assert status in (400, 422)
        assert message in answer or "quantities must match" in answer


async def test_default_roles_do_not_allow_to_write_quotas(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('dev,dev,dev,""\n')
    server = Server(State(tmp_path / "state"), token_file=tokens)
    binding = {
        "metadata": {"name": "dev"},
        "roleRef": {
            "kind": "ClusterRole",
            "name": "admin",
            "apiGroup": "rbac.authorization.k8s.io",
        },
        "subjects": [{"kind": "User", "name": "dev", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    async with (
        server.running(),
        server.raw() as admin,
        server.raw(Authorization="Bearer dev") as dev,
    ):
        assert (await send(admin, "POST", bindings, binding))[0] == 201
        quotas = f"{CORE}/default/resourcequotas"
        spec = {"spec": {"hard": {"configmaps": "0"}}}
        assert (await create(admin, quotas, "q", spec))[0] == 201
        assert (await send(dev, "GET", quotas))[0] == 200
        assert (await send(dev, "DELETE", f"{quotas}/q"))[0] == 403
        assert (await create(dev, quotas, "r", spec))[0] == 403
        assert (await create(dev, f"{CORE}/default/configmaps", "x"))[0] == 403
