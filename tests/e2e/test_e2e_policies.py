"""Policies and filters of gateway.nginx.org, as traffic meets them on each proxy."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.installation import apply, holds, route
from fakes.key_server import key_server
from fakes.kinds import resource_of
from fakes.patience import until
from fakes.policy_traffic import KEY, KEY_SET, REDIRECT, basic, credentials, served, status, token
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long]


def made(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    api = resource_of(kind).api_version
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def about(kind: str, name: str) -> dict[str, str]:
    return {"group": "gateway.networking.k8s.io", "kind": kind, "name": name}


def uses(kind: str, name: str) -> dict[str, Any]:
    reference = {"group": "gateway.nginx.org", "kind": kind, "name": name}
    return {"type": "ExtensionRef", "extensionRef": reference}


async def accepted(client: kube.Client, *keys: tuple[str, str]) -> None:
    for kind, name in keys:

        async def said(kind: str = kind, name: str = name) -> bool:
            result = await client.get(resource_of(kind), name, "default")
            status = result.get("status") or {}
            entries = status.get("ancestors") or status.get("controllers") or []
            return any(
                condition["type"] == "Accepted" and condition["status"] == "True"
                for entry in entries
                for condition in entry["conditions"]
            )

        await until(said)


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_too_long_body_is_rejected_by_the_limit_of_its_route(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    matches = [{"path": {"value": "/long"}, "headers": [{"name": "x-long", "value": "1"}]}]
    await apply(
        client,
        [
            route("short", "/long"),
            route("long", "/long", matches=matches),
            made(
                "ClientSettingsPolicy",
                "short",
                {"targetRef": about("Gateway", "web"), "body": {"maxSize": "1k"}},
            ),
            made(
                "ClientSettingsPolicy",
                "long",
                {"targetRef": about("HTTPRoute", "long"), "body": {"maxSize": "64k"}},
            ),
        ],
    )
    await accepted(client, ("ClientSettingsPolicy", "short"), ("ClientSettingsPolicy", "long"))
    await holds(client, "HTTPRoute", "long", "Accepted")

    async def chunks(size: int) -> AsyncIterator[bytes]:
        yield b"x" * size

    async def sent(size: int, *, chunked: bool = False, long: bool = False) -> int:
        body, headers = chunks(size) if chunked else b"x" * size, {"x-long": "1"} if long else {}
        return await status(http, "/long", method="POST", data=body, headers=headers)

    async def limited() -> bool:
        return await sent(1025) == 413

    await until(limited)
    assert await sent(1024) == 200
    assert await sent(1025, chunked=True) == 413
    assert await sent(1024, chunked=True) == 200
    assert await sent(65536, long=True) == 200
    assert await sent(65537, long=True) == 413
    assert await sent(65537, chunked=True, long=True) == 413
    for name in ("short", "long"):
        await client.delete(resource_of("ClientSettingsPolicy"), name, "default")


RATES: dict[str, dict[str, Any]] = {
    "RateLimitPolicy": {
        "local": {"rules": [{"key": "$http_x_user", "rate": "1r/m", "burst": 1, "noDelay": True}]},
        "rejectCode": 429,
    },
    "TrafficPolicy": {
        "local": {
            "rules": [
                {
                    "key": {"type": "Header", "name": "X-User"},
                    "requests": 1,
                    "per": "Minute",
                    "burst": 1,
                }
            ]
        },
        "statusCode": 429,
    },
}


@pytest.mark.parametrize("kind", RATES)
async def test_rates_are_limited_for_backends_and_redirections(
    client: kube.Client, http: aiohttp.ClientSession, kind: str
) -> None:
    await apply(
        client,
        [
            route("rated", "/rated"),
            route("moved", "/moved", filters=[REDIRECT], backendRefs=[]),
            *(
                made(
                    kind,
                    name,
                    {"targetRefs": [about("HTTPRoute", name)], "rateLimit": RATES[kind]},
                )
                for name in ("rated", "moved")
            ),
        ],
    )
    await accepted(client, (kind, "rated"), (kind, "moved"))

    for path, good in (("/rated", 200), ("/moved", 302)):
        await served(http, path, good)

        await served(http, path, 429, headers={"x-user": "probe"})
        answers = [await status(http, path, headers={"x-user": "one"}) for _ in range(4)]
        assert answers == [good, good, 429, 429]
        # Another value of the key has a count of its own, and none at all is not counted.
        assert await status(http, path, headers={"x-user": "two"}) == good
        assert [await status(http, path) for _ in range(4)] == [good] * 4
        await client.delete(resource_of(kind), path.strip("/"), "default")


async def test_basic_authentication_follows_secret_changes(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    spec = {"type": "Basic", "basic": {"realm": "members", "secretRef": {"name": "users"}}}
    await apply(
        client,
        [
            credentials("users", b"alice:{PLAIN}first\n"),
            made("AuthenticationFilter", "members", spec),
            route("members", "/members", filters=[uses("AuthenticationFilter", "members")]),
        ],
    )
    await accepted(client, ("AuthenticationFilter", "members"))
    await served(http, "/members", 401)
    async with http.get("/members") as response:
        assert response.headers["WWW-Authenticate"] == 'Basic realm="members"'
    assert await status(http, "/members", headers=basic("alice", "first")) == 200
    assert await status(http, "/members", headers=basic("alice", "wrong")) == 401
    await apply(client, [credentials("users", b"alice:{PLAIN}second\n")])

    async def changed() -> bool:
        statuses.append(await status(http, "/members", headers=basic("alice", "second")))
        return statuses[-1] == 200

    statuses: list[int] = []
    await until(changed)
    # Until then the old password stays valid, and there are no other responses.
    assert set(statuses) <= {200, 401}
    assert await status(http, "/members", headers=basic("alice", "first")) == 401
    # What `htpasswd` makes without a word; Envoy does not know it by itself.
    hashed = b"bob:$apr1$8sFt66rZ$eup.HOtZcQ/VrnApBM3rR/\n"
    await apply(client, [credentials("users", b"alice:{PLAIN}second\n" + hashed)])

    async def joined() -> bool:
        statuses.append(await status(http, "/members", headers=basic("bob", "secret")))
        return statuses[-1] == 200

    await until(joined)
    assert set(statuses) <= {200, 401}
    assert await status(http, "/members", headers=basic("alice", "second")) == 200
    assert await status(http, "/members", headers=basic("bob", "Secret")) == 401
    async with http.get("/members", headers=basic("bob", "secret")) as response:
        headers = (await response.json())["headers"]
        assert headers["authorization"] == basic("bob", "secret")["Authorization"]
        assert not {"server", "date", "content-type", "www-authenticate"} & {*headers}
    async with http.get("/members") as response:
        assert response.headers["WWW-Authenticate"] == 'Basic realm="members"'


async def test_token_is_accepted_when_its_claims_match(
    client: kube.Client, http: aiohttp.ClientSession
) -> None:
    def forging(key: bytes = KEY, **claims: Any) -> dict[str, str]:
        return {**token(key, **claims), "X-Audience": "forged"}

    claims = [{"name": "aud", "values": ["api"], "proxySetHeader": "X-Audience"}]
    spec = {
        "type": "JWT",
        "jwt": {
            "realm": "api",
            "source": "File",
            "file": {"secretRef": {"name": "keys"}},
            "authorization": {"rules": [{"claims": claims}]},
        },
    }
    await apply(
        client,
        [
            credentials("keys", KEY_SET),
            made("AuthenticationFilter", "tokens", spec),
            route("tokens", "/tokens", filters=[uses("AuthenticationFilter", "tokens")]),
        ],
    )
    await accepted(client, ("AuthenticationFilter", "tokens"))
    await served(http, "/tokens", 401)
    good = forging(aud=["other", "api"])
    async with http.get("/tokens", headers=good) as response:
        assert response.status == 200
        assert (await response.json())["headers"]["x-audience"] == "other,api"
    assert await status(http, "/tokens", headers=forging(aud="apis")) == 403
    expired = int(time.time()) - 60
    assert await status(http, "/tokens", headers=forging(aud="api", exp=expired)) == 401
    assert await status(http, "/tokens", headers=forging(b"x" * 40, aud="api")) == 401


async def test_client_address_comes_from_the_proxy_protocol(
    client: kube.Client, http: aiohttp.ClientSession, gateway_class: str
) -> None:
    trusted = [{"type": "CIDR", "value": "127.0.0.0/8"}]
    proxy = {"rewriteClientIP": {"mode": "ProxyProtocol", "trustedAddresses": trusted}}
    reference = {"group": "gateway.nginx.org", "kind": "NginxProxy", "name": "behind"}
    spec = {
        "gatewayClassName": gateway_class,
        "infrastructure": {"parametersRef": reference},
        "listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}],
    }
    gateway = {"kind": "Gateway", "metadata": {"name": "behind", "namespace": "default"}}
    route_object = route("behind", "/")
    route_object["spec"]["parentRefs"] = [{"name": "behind"}]
    await apply(client, [{**gateway, "spec": spec}])
    condition = await holds(client, "Gateway", "behind", "Accepted", "False")
    assert condition["reason"] == "InvalidParameters"
    assert "NginxProxy default/behind not found" in condition["message"]
    parameters = made("NginxProxy", "behind", proxy)
    await apply(client, [{**parameters, "apiVersion": "gateway.nginx.org/v1alpha2"}, route_object])
    await holds(client, "Gateway", "behind", "Accepted")
    condition = await holds(client, "Gateway", "behind", "Programmed")
    where = condition["addresses"][0]["value"]

    async def asked() -> dict[str, Any]:
        reader, writer = await asyncio.open_connection(where, 8080)
        writer.write(b"PROXY TCP4 203.0.113.9 192.0.2.1 5555 80\r\n")
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return json.loads(body)["headers"] if b" 200 " in head.splitlines()[0] else {}

    await until(asked)
    headers = await asked()
    assert (headers["x-real-ip"], headers["x-forwarded-for"]) == ("203.0.113.9", "203.0.113.9")
    await client.delete(resource_of("Gateway"), "behind", "default")


async def test_remote_token_keys_are_fetched_and_rotated(
    client: kube.Client, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with key_server(tmp_path / "pki") as server:
        server.serve(KEY)
        authority = credentials("authority", b"")
        authority["data"] = {"ca.crt": base64.b64encode(server.authority.encode()).decode()}
        remote = {"uri": server.url, "caCertificateRefs": [{"name": "authority"}]}
        spec = {"realm": "api", "source": "Remote", "remote": remote, "keyCache": "1s"}
        filters = [uses("AuthenticationFilter", "remote")]
        await apply(
            client,
            [
                authority,
                made("AuthenticationFilter", "remote", {"type": "JWT", "jwt": spec}),
                route("remote", "/remote", filters=filters),
            ],
        )
        await accepted(client, ("AuthenticationFilter", "remote"))
        await served(http, "/remote", 401)
        assert await status(http, "/remote", headers=token(KEY)) == 200
        another = b"another secret that signs the tokens"
        server.serve(another)

        await served(http, "/remote", 200, headers=token(another))
        assert await status(http, "/remote", headers=token(KEY)) == 401
