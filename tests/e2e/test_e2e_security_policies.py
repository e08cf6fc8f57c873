"""SecurityPolicies, as traffic meets them on each proxy."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from fakes import authorization_servers
from fakes.installation import apply, holds, route
from fakes.kinds import resource_of
from fakes.patience import until, until_equal
from fakes.policy_traffic import KEY_SET, REDIRECT, basic, credentials, served, status, token
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long]

KIND = "SecurityPolicy"


def checked(name: str, kind: str, target: str, **spec: Any) -> dict[str, Any]:
    """Return a policy of one target."""
    reference = {"group": "gateway.networking.k8s.io", "kind": kind, "name": target}
    return {
        "apiVersion": resource_of(KIND).api_version,
        "kind": KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"targetRefs": [reference], **spec},
    }


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.asynccontextmanager
async def applied(client: kube.Client, *policies: dict[str, Any]) -> AsyncIterator[None]:
    """Apply policies, and delete them at the end: those of the Gateway are about other tests."""
    await apply(client, list(policies))
    try:
        yield
    finally:
        for policy in policies:
            await client.delete(resource_of(KIND), policy["metadata"]["name"], "default")


async def rejected(client: kube.Client, name: str, message: str) -> None:
    """Wait until a policy is invalid for one reason."""

    async def reported() -> list[tuple[str, str]]:
        policy = await client.get(resource_of(KIND), name, "default")
        entries = policy.get("status", {}).get("ancestors", [])
        conditions = [one for entry in entries for one in entry["conditions"]]
        return [(one["reason"], one["message"]) for one in conditions]

    await until_equal(reported, [("Invalid", message)])


async def test_gateway_asks_for_passwords_whatever_answers(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    answers = {"/app": 200, "/moved": 302, "/gone": 500}
    await apply(
        client,
        [
            credentials("users", b"alice:{PLAIN}first\n"),
            route("app", "/app"),
            route("moved", "/moved", filters=[REDIRECT], backendRefs=[]),
            route("gone", "/gone", "gone"),
        ],
    )
    for path, answer in answers.items():
        await served(http, path, answer)
    users = {"secretRef": {"name": "users"}, "realm": "members"}
    async with applied(client, checked("members", "Gateway", "web", basicAuth=users)):
        for path, answer in answers.items():
            await served(http, path, 401)
            assert await status(http, path, headers=basic("alice", "first")) == answer
            assert await status(http, path, headers=basic("alice", "wrong")) == 401
        async with http.get("/app") as response:
            assert response.headers["WWW-Authenticate"] == 'Basic realm="members"'
        await holds(client, "Gateway", "web", "gatehouse.dev/SecurityPolicyAffected")
    for path, answer in answers.items():
        await served(http, path, answer)


async def test_route_replaces_the_passwords_of_its_gateway_by_tokens(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    claims = [{"name": "aud", "values": ["api", "shop"]}]
    await apply(
        client,
        [
            credentials("users", b"alice:{PLAIN}first\n"),
            credentials("keys", KEY_SET),
            route("tokens", "/tokens"),
        ],
    )
    tokens = {"secretRef": {"name": "keys"}, "requiredClaims": claims}
    outer = checked("outer", "Gateway", "web", basicAuth={"secretRef": {"name": "users"}})
    async with applied(client, outer, checked("inner", "HTTPRoute", "tokens", jwt=tokens)):
        await served(http, "/tokens", 401)
        await served(http, "/tokens", 200, headers=token(aud="api"))
        assert await status(http, "/tokens", headers=token(aud=["other", "shop"])) == 200
        assert await status(http, "/tokens", headers=token(aud="other")) == 403
        assert await status(http, "/tokens", headers=token(aud="api", exp=1)) == 401
        assert await status(http, "/tokens", headers=basic("alice", "first")) == 401
    await served(http, "/tokens", 200)


async def test_clients_have_keys_that_change_without_a_restart(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    keys = {
        "secretRefs": [{"name": "clients"}],
        "extractFrom": [{"headers": ["X-Key"], "params": ["key"]}],
        "clientHeader": "X-Client",
    }
    await apply(client, [route("keys", "/keys"), route("open", "/open")])
    await served(http, "/keys", 200)
    async with applied(client, checked("keys", "HTTPRoute", "keys", apiKeys=keys)):
        # No request is served without its check.
        await served(http, "/keys", 500)
        await rejected(
            client, "keys", "spec.apiKeys.secretRefs[0]: Secret default/clients not found"
        )
        await apply(client, [credentials("clients", alice=b"first\n", bob=b"second")])
        await served(http, "/keys", 401)
        sent = {"X-Key": "first", "X-Client": "bob"}
        async with http.get("/keys?key=hidden&a=1", headers=sent) as response:
            assert response.status == 200
            echo = await response.json()
        assert echo["headers"]["x-client"] == "alice"
        assert "x-key" not in echo["headers"]
        assert "hidden" not in str(echo)
        await served(http, "/keys?key=second", 200)

        async def removed() -> bool:
            async with http.get("/open", headers={"X-Client": "forged"}) as answer:
                return "x-client" not in (await answer.json())["headers"]

        # The backend trusts the header, so that no other route lets a client set it.
        await until(removed)
        await apply(client, [credentials("clients", alice=b"third", bob=b"second")])
        await served(http, "/keys?key=third", 200)
        assert await status(http, "/keys", headers={"X-Key": "first"}) == 401
        assert await status(http, "/keys", headers={"X-Key": "second"}) == 200
        # Two clients with one key: the backend could not tell them apart.
        await apply(client, [credentials("clients", alice=b"second", bob=b"second")])
        await served(http, "/keys?key=second", 500)
        why = "data[bob]: has the same key as data[alice] of Secret default/clients"
        await rejected(client, "keys", f"spec.apiKeys.secretRefs[0]: Secret default/clients: {why}")
        await client.delete(resource_of("Secret"), "clients", "default")


async def test_authorization_server_is_asked_before_the_backend(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    async with authorization_servers.http_server() as server:
        labels = {"kubernetes.io/service-name": "asked"}
        metadata = {"name": "asked", "namespace": "default"}
        await apply(
            client,
            [
                {
                    "kind": "Service",
                    "metadata": metadata,
                    "spec": {"ports": [{"name": "p", "port": 80}]},
                },
                {
                    "kind": "EndpointSlice",
                    "metadata": {**metadata, "labels": labels},
                    "addressType": "IPv4",
                    "ports": [{"name": "p", "port": server.port}],
                    "endpoints": [{"addresses": ["127.0.0.1"]}],
                },
                route("asked", "/asked"),
                route("open", "/open"),
            ],
        )
        external = {
            "protocol": "HTTP",
            "backendRef": {"name": "asked", "port": 80},
            "http": {"path": "/check", "allowedResponseHeaders": ["X-User"]},
        }
        headers = {"frameOptions": "Deny"}
        policy = checked(
            "asked", "HTTPRoute", "asked", externalAuth=external, securityHeaders=headers
        )
        async with applied(client, policy):
            await served(http, "/asked?status=403", 403)
            async with http.get("/asked?status=403") as response:
                assert response.headers.getall("X-Frame-Options") == ["DENY"]
            assert server.last().target == "/check/asked?status=403"
            assert await status(http, "/asked?status=401") == 401
            async with http.get("/asked?user=bob", headers={"X-User": "forged"}) as response:
                assert response.status == 200
                assert (await response.json())["headers"]["x-user"] == "bob"

            async def removed() -> bool:
                async with http.get("/open", headers={"X-User": "forged"}) as response:
                    return "x-user" not in (await response.json())["headers"]

            # The backend trusts the header, so that no other route lets a client set it.
            await until(removed)


async def test_addresses_decide_who_is_served(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    await apply(
        client,
        [
            route("far", "/far"),
            route("far-moved", "/far-moved", filters=[REDIRECT], backendRefs=[]),
        ],
    )
    answers = {"/far": 200, "/far-moved": 302}
    others, own = ["192.0.2.0/24", "2001:db8::/32"], ["127.0.0.0/8"]
    for addresses, permitted in (
        ({"allow": others}, False),
        ({"allow": [*others, *own]}, True),
        ({"allow": own, "deny": ["0.0.0.0/0"]}, False),
        ({"deny": others}, True),
        ({"deny": own}, False),
    ):
        async with applied(client, checked("near", "Gateway", "web", clientAddresses=addresses)):
            for path, answer in answers.items():
                await served(http, path, answer if permitted else 403)
        for path, answer in answers.items():
            await served(http, path, answer)


async def test_headers_are_in_every_kind_of_answer(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    await apply(
        client,
        [
            credentials("users", b"alice:{PLAIN}first\n"),
            route("shown", "/shown"),
            route("shown-moved", "/shown-moved", filters=[REDIRECT], backendRefs=[]),
        ],
    )
    security = {
        "strictTransportSecurity": {"maxAgeSeconds": 60},
        "contentTypeOptions": "NoSniff",
        "frameOptions": "Deny",
        "referrerPolicy": "NoReferrer",
        "contentSecurityPolicy": "default-src 'self'; img-src \"$x\"",
    }
    users = {"secretRef": {"name": "users"}}
    policy = checked("shown", "Gateway", "web", securityHeaders=security, basicAuth=users)
    async with applied(client, policy):
        for path, answer in (("/shown", 200), ("/shown-moved", 302)):
            await served(http, path, 401)
            for sent, status_code in (({}, 401), (basic("alice", "first"), answer)):
                async with http.get(path, headers=sent, allow_redirects=False) as response:
                    assert response.status == status_code
                    headers = {name: response.headers.getall(name, []) for name in SHOWN}
                    assert headers == SHOWN, path


SHOWN = {
    "Strict-Transport-Security": ["max-age=60"],
    "X-Content-Type-Options": ["nosniff"],
    "X-Frame-Options": ["DENY"],
    "Referrer-Policy": ["no-referrer"],
    "Content-Security-Policy": ["default-src 'self'; img-src \"$x\""],
}


async def test_route_answers_500_while_a_check_cannot_be_served(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    await apply(client, [route("late", "/late")])
    await served(http, "/late", 200)
    users = {"secretRef": {"name": "late-users"}}
    async with applied(client, checked("late", "HTTPRoute", "late", basicAuth=users)):
        await served(http, "/late", 500)

        await rejected(
            client, "late", "spec.basicAuth.secretRef: Secret default/late-users not found"
        )
        await apply(client, [credentials("late-users", b"alice:{PLAIN}first\n")])
        await served(http, "/late", 401)
        assert await status(http, "/late", headers=basic("alice", "first")) == 200
