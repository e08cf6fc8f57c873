"""The reviewer beside an API server: whose tokens are, and who may be taken for whom."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import aiohttp
import jwt
import pytest

from fakes.inprocess import Server
from fakes.patience import until
from fakes.reviewer_process import CLUSTER, ReviewerProcess, Upstream, running
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.sidecars.reviewer import config
from gatehouse.standalone.state_directory import State

pytestmark = pytest.mark.process

RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NAMESPACE = "default"

REVIEWS = [
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["subjectaccessreviews"],
        "verbs": ["create"],
    },
]
"""All that the gateway needs for the reviewer. Its clients have nothing of it."""


def may(*names: str, group: str = "", resource: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": [resource], "verbs": ["impersonate"]}
    return {**rule, "resourceNames": list(names)} if names else rule


BEYOND = "authentication.k8s.io"

CLIENTS = {
    "nothing": [],
    "users": [may(resource="users")],
    "bob": [may("bob", resource="users"), may("dev", resource="groups")],
    "accounts": [may("web", resource="serviceaccounts")],
    "uids": [may(resource="users"), may("7", group=BEYOND, resource="uids")],
    "scopes": [
        may(resource="users"),
        may("view", "odd,=%", group=BEYOND, resource="userextras/scopes"),
    ],
    "extras": [may(resource="users"), may(group=BEYOND, resource="userextras/example.org/team")],
    "core-uids": [may(resource="users"), may(resource="uids")],
}

WANTED: list[dict[str, Any]] = [
    {"username": "bob"},
    {"username": "eve"},
    {"username": "bob", "groups": ["dev"]},
    {"username": "bob", "groups": ["dev", "ops"]},
    {"username": "bob", "groups": ["system:masters"]},
    {"username": "bob", "uid": "7"},
    {"username": "bob", "uid": "8"},
    {"username": "bob", "extra": {"scopes": ["view"]}},
    {"username": "bob", "extra": {"scopes": ["view", "edit"]}},
    {"username": "bob", "extra": {"scopes": ["odd,=%"]}},
    {"username": "bob", "extra": {"example.org/team": ["a"]}},
    {"username": "bob", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["view"]}},
    {"username": "system:serviceaccount:default:web"},
    {"username": "system:serviceaccount:other:web"},
    {"username": "system:serviceaccount:default:db"},
    {"username": "system:serviceaccount:default:web", "groups": ["dev"]},
    {"username": "system:serviceaccount:default"},
    {"username": "system:anonymous"},
    {"username": "böb, the =%builder"},
]


class World:
    """An API server, a reviewer, and between them what Envoy is."""

    def __init__(
        self, server: Server, client: kube.Client, reviewer: ReviewerProcess, upstream: Upstream
    ) -> None:
        self.server, self.client = server, client
        self.reviewer, self.upstream = reviewer, upstream

    async def token(self, account: str, seconds: int = 600) -> str:
        token, _ = await self.client.create_token(NAMESPACE, account, [], seconds)
        return token

    async def whoami(self, token: str) -> dict[str, Any]:
        """Return the user that the cluster reports for its client."""
        async with (
            self.server.raw(Authorization=f"Bearer {token}") as http,
            http.post(WHOAMI, json={}) as response,
        ):
            user_info: dict[str, Any] = (await response.json())["status"]["userInfo"]
            return user_info


async def account(server: Server, client: kube.Client, name: str, rules: list[Any]) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    await client.create(resources.SERVICE_ACCOUNTS, {"metadata": metadata})
    if not rules:
        return
    subject = {"kind": "ServiceAccount", **metadata}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    role = {"metadata": {"name": name}, "rules": rules}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    async with server.raw() as http:
        for plural, rbac_object in (("clusterroles", role), ("clusterrolebindings", binding)):
            async with http.post(f"{RBAC}/{plural}", json=rbac_object) as response:
                assert response.status == 201, await response.text()


@contextlib.asynccontextmanager
async def a_world(tmp_path: Path) -> AsyncIterator[World]:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client, running(tmp_path) as reviewer:
        await account(server, client, "gateway", REVIEWS)
        own, _ = await client.create_token(NAMESPACE, "gateway", [], 3600)
        async with server.raw(Authorization=f"Bearer {own}") as cluster:
            upstream = Upstream(tmp_path / config.UPSTREAM, cluster)
            await upstream.start()
            await reviewer.serving()
            yield World(server, client, reviewer, upstream)
            await upstream.stop()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as result:
        yield result


async def test_token_maps_to_its_service_account(world: World) -> None:
    await account(world.server, world.client, "robot", [])
    token = await world.token("robot")
    known = await world.whoami(token)
    response = await world.reviewer.token(token)
    assert response.status == 200, response.text
    assert unquote(response.headers["x-user"]) == f"system:serviceaccount:{NAMESPACE}:robot"
    assert response.headers["x-uid"] == known["uid"]
    assert list(map(unquote, response.headers["x-groups"].split(","))) == known["groups"]
    extra = [pair.partition("=") for pair in response.headers.get("x-extra", "").split(",") if pair]
    assert [(unquote(key), unquote(value)) for key, _, value in extra] == [
        (key, value) for key, values in known.get("extra", {}).items() for value in values
    ]
    (review,) = world.upstream.asked
    assert review.cluster == CLUSTER
    assert review.path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert review.spec == {"token": token}
    assert not [name for name in review.headers if name.lower().startswith("impersonate")]


async def test_cached_review_expires_with_token(world: World) -> None:
    await account(world.server, world.client, "robot", [])
    token = await world.token("robot", 600)
    ends = jwt.decode(token, options={"verify_signature": False})["exp"]
    left = ends - datetime.now(UTC).timestamp()
    assert left - 5 < (await world.reviewer.token(token, good=86_400)).keep <= left
    assert (await world.reviewer.token(token, good=60)).keep <= 60
    assert len(world.upstream.asked) == 1


async def test_unknown_tokens_are_denied(world: World) -> None:
    await account(world.server, world.client, "robot", [])
    token = await world.token("robot")
    head, payload, signature = token.split(".")
    other, _ = await world.client.create_token(NAMESPACE, "robot", ["somebody-else"], 600)
    for bad in ("no", f"{head}.{payload}.{signature[::-1]}", f"{head}.{payload}.", other):
        response = await world.reviewer.token(bad)
        assert (response.status, response.text) == (401, "")
        assert 9 < response.keep <= 10
        assert "x-user" not in response.headers
    assert (await world.reviewer.token(token)).status == 200


async def test_deleted_service_account_is_denied_after_cache_ttl(
    world: World,
) -> None:
    await account(world.server, world.client, "robot", [])
    token = await world.token("robot")
    assert (await world.reviewer.token(token)).status == 200
    await world.client.delete(resources.SERVICE_ACCOUNTS, "robot", NAMESPACE)
    assert (await world.reviewer.token(token)).status == 200
    # Good for as long as who asks now says.
    assert (await world.reviewer.token(token, good=0)).status == 401


async def test_missing_gateway_permission_is_reported_as_unavailable(world: World) -> None:
    async with (
        world.server.raw() as http,
        http.delete(f"{RBAC}/clusterrolebindings/gateway") as response,
    ):
        assert response.status == 200
    result = await world.reviewer.token("any")
    assert result.status == 503
    assert result.text.startswith(f"{CLUSTER}: tokenreviews: 403 ")
    assert 'User "system:serviceaccount:default:gateway" cannot create' in result.text
    assert len(world.upstream.asked) == 1
    assert result.text in world.reviewer.log


async def allowed_by_the_cluster(http: aiohttp.ClientSession, target: dict[str, Any]) -> bool:
    """Return whether the API server's own filter allows its client to impersonate a user."""
    headers = [("Impersonate-User", target["username"])]
    headers += [("Impersonate-Group", group) for group in target.get("groups", ())]
    headers += [("Impersonate-Uid", target["uid"])] if "uid" in target else []
    for key, values in target.get("extra", {}).items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    async with http.post(WHOAMI, json={}, headers=headers) as response:
        # The impersonated user may lack the permission for SelfSubjectReviews.
        assert response.status in (201, 403)
        return "cannot impersonate" not in await response.text()


async def test_impersonation_decisions_match_kube_apiserver(world: World) -> None:
    differ, granted = [], 0
    for name, rules in CLIENTS.items():
        await account(world.server, world.client, name, rules)
        token = await world.token(name)
        client = await world.whoami(token)
        async with world.server.raw(Authorization=f"Bearer {token}") as http:
            for target in WANTED:
                expected = await allowed_by_the_cluster(http, target)
                response = await world.reviewer.impersonation(client, target)
                granted += expected
                if response.status != (200 if expected else 403):
                    differ.append((name, target, expected, response))
    assert differ == []
    assert 10 < granted < len(CLIENTS) * len(WANTED) - 10
    for request in world.upstream.asked:
        assert not [
            header for header in request.headers if header.lower().startswith("impersonate")
        ]


async def test_denial_message_equals_that_of_kube_apiserver(world: World) -> None:
    await account(world.server, world.client, "bob", CLIENTS["bob"])
    token = await world.token("bob")
    client = await world.whoami(token)
    async with world.server.raw(Authorization=f"Bearer {token}") as http:
        for headers, target in (
            ({"Impersonate-User": "eve"}, {"username": "eve"}),
            (
                {"Impersonate-User": "bob", "Impersonate-Extra-scopes": "x"},
                {"username": "bob", "extra": {"scopes": ["x"]}},
            ),
            (
                {"Impersonate-User": "system:serviceaccount:a:b"},
                {"username": "system:serviceaccount:a:b"},
            ),
        ):
            async with http.post(WHOAMI, json={}, headers=headers) as response:
                message = (await response.json())["message"]
            assert (await world.reviewer.impersonation(client, target)).text == message


async def test_permission_is_cached_per_client_and_resource(world: World) -> None:
    await account(world.server, world.client, "bob", CLIENTS["bob"])
    client = {"username": f"system:serviceaccount:{NAMESPACE}:bob"}
    target = {"username": "bob", "groups": ["dev", "ops"]}
    first = await world.reviewer.impersonation(client, target)
    assert (first.status, len(world.upstream.asked)) == (403, 3)
    assert 'groups "ops" is forbidden' in first.text
    again = await world.reviewer.impersonation(client, target)
    assert (again.status, again.text, len(world.upstream.asked)) == (403, first.text, 3)
    assert again.keep <= first.keep <= 30
    allowed = await world.reviewer.impersonation(client, {"username": "bob", "groups": ["dev"]})
    assert (allowed.status, len(world.upstream.asked)) == (200, 3)
    assert 295 < allowed.keep <= 300
    other = await world.reviewer.impersonation({**client, "groups": ["x"]}, {"username": "bob"})
    assert (other.status, len(world.upstream.asked)) == (200, 4)


async def test_denied_user_costs_one_review(world: World) -> None:
    target = {"username": "bob", "groups": [f"g{number}" for number in range(500)]}
    assert (await world.reviewer.impersonation({"username": "eve"}, target)).status == 403
    assert len(world.upstream.asked) == 1


async def test_new_permission_applies_after_cached_denial_expires(
    world: World,
) -> None:
    await account(world.server, world.client, "late", [])
    client = {"username": f"system:serviceaccount:{NAMESPACE}:late"}
    target = {"username": "bob"}
    assert (await world.reviewer.impersonation(client, target, bad=0.2)).status == 403
    async with world.server.raw() as http:
        role = {"metadata": {"name": "late"}, "rules": [may(resource="users")]}
        binding = {
            "metadata": {"name": "late"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "late",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "late", "namespace": NAMESPACE}],
        }  # fmt: skip
        for plural, rbac_object in (("clusterroles", role), ("clusterrolebindings", binding)):
            async with http.post(f"{RBAC}/{plural}", json=rbac_object) as response:
                assert response.status == 201

    async def is_granted() -> bool:
        return (await world.reviewer.impersonation(client, target, bad=0.2)).status == 200

    await until(is_granted)
