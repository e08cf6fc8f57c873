"""Authentication: certificates, all kinds of tokens, anonymous users, impersonation."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from fakes.inprocess import Server
from gatehouse.apis import resources
from gatehouse.apiserver_extension.extension import OWN_NAMES
from gatehouse.kube import client as kube
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State
from kube_api_server.identity import signing_keys as token_keys
from kube_api_server.identity import static_tokens
from kube_api_server.identity.signing_keys import Keys

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def whoami(http: aiohttp.ClientSession, **headers: str) -> Any:
    async with http.post(WHOAMI, json={}, headers=headers) as response:
        answer = await response.json()
        assert response.status == 201, answer
        return answer["status"]["userInfo"]


async def code(http: aiohttp.ClientSession, path: str, **headers: str) -> int:
    async with http.get(path, headers=headers) as response:
        return response.status


def with_certificate(
    server: Server,
    tmp_path: Path,
    leaf: pki.InstallationCertificate,
    signer: pki.KeyPair | None = None,
) -> aiohttp.ClientSession:
    pair = pki.KeyPair(tmp_path / "c.crt", tmp_path / "c.key")
    pki.issue(signer or server.state.pki.ca(), leaf, pair, datetime.now(UTC))
    context = ssl.create_default_context(cafile=str(server.state.pki.ca().cert))
    context.load_cert_chain(pair.cert, pair.key)
    connector = aiohttp.TCPConnector(ssl=context)
    return aiohttp.ClientSession(f"https://127.0.0.1:{server.port}", connector=connector)


async def test_certificate_subject_names_user_and_groups(server: Server, tmp_path: Path) -> None:
    leaf = pki.InstallationCertificate("c", "alice", organizations=("readers", "writers"))
    async with with_certificate(server, tmp_path, leaf) as http:
        user = await whoami(http)
        assert user == {
            "username": "alice",
            "groups": ["readers", "writers", "system:authenticated"],
        }
        assert await code(http, "/api/v1/pods") == 403


async def test_certificate_without_common_name_is_not_authenticated(
    server: Server, tmp_path: Path
) -> None:
    leaf = pki.InstallationCertificate(
        "c", "", organizations=("system:masters",), uri="spiffe://some/machine"
    )
    async with with_certificate(server, tmp_path, leaf) as http:
        assert await code(http, "/api/v1/pods") == 401


async def test_certificate_of_another_ca_is_rejected(server: Server, tmp_path: Path) -> None:
    other = State(tmp_path / "other").pki
    other.ensure()
    async with with_certificate(server, tmp_path, pki.ADMIN, other.ca()) as http:
        with pytest.raises(aiohttp.ClientError):
            await code(http, "/api/v1/pods")


async def test_anonymous_request_is_rejected_unless_enabled(tmp_path: Path) -> None:
    closed, opened = Server(State(tmp_path / "a")), Server(State(tmp_path / "b"), anonymous=True)
    for server, status in ((closed, 401), (opened, 403)):
        async with server.running():
            context = ssl.create_default_context(cafile=str(server.state.pki.ca().cert))
            async with aiohttp.ClientSession(
                f"https://127.0.0.1:{server.port}", connector=aiohttp.TCPConnector(ssl=context)
            ) as http:
                assert await code(http, "/api/v1/pods") == status
                assert await code(http, "/livez") == 200
                assert await code(http, "/version") == 200
                assert await code(http, "/metrics") == status


async def test_token_file_authenticates_users(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('secret-1,bob,42,"system:masters,dev"\nsecret-2,eve,43\n')
    server = Server(State(tmp_path / "s"), token_file=file)
    async with server.running():
        async with server.raw(Authorization="Bearer secret-1") as http:
            user = await whoami(http)
            assert (user["username"], user["uid"]) == ("bob", "42")
            assert user["groups"] == ["system:masters", "dev", "system:authenticated"]
        async with server.raw(Authorization="Bearer secret-2") as http:
            assert await code(http, "/api/v1/pods") == 403
        async with server.raw(Authorization="Bearer secret-3") as http:
            assert await code(http, "/api/v1/pods") == 401


def test_invalid_token_file_is_named_in_error(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text("good,alice,1\nbad,\n")
    with pytest.raises(
        static_tokens.TokenFileError, match=r"tokens\.csv, line 2: expected token,user"
    ):
        static_tokens.load_tokens(file)
    with pytest.raises(static_tokens.TokenFileError, match="No such file"):
        static_tokens.load_tokens(tmp_path / "none")


def encoded(**data: str) -> dict[str, str]:
    return {key.replace("_", "-"): base64.b64encode(v.encode()).decode() for key, v in data.items()}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 403),
        ({"usage_bootstrap_authentication": "false"}, 401),
        ({"token_secret": "zzzzzzzzzzzzzzzz"}, 401),
        ({"expiration": "2020-01-01T00:00:00Z"}, 401),
        ({"expiration": "2999-01-01T00:00:00Z"}, 403),
        ({"expiration": "tomorrow"}, 401),
    ],
)
async def test_bootstrap_token_authenticates_only_while_valid(
    server: Server, client: kube.Client, change: dict[str, str], status: int
) -> None:
    data = {
        "token_id": "abcdef",
        "token_secret": "0123456789abcdef",
        "usage_bootstrap_authentication": "true",
        "auth_extra_groups": "system:bootstrappers:nodes,system:masters",
        **change,
    }
    secret = {
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "data": encoded(**data),
    }
    await client.create(resources.SECRETS, secret)
    async with server.raw(Authorization="Bearer abcdef.0123456789abcdef") as http:
        assert await code(http, "/api/v1/pods") == status
        if status == 403:
            user = await whoami(http)
            assert user["username"] == "system:bootstrap:abcdef"
            # Groups outside of system:bootstrappers are ignored.
            groups = ["system:bootstrappers", "system:bootstrappers:nodes", "system:authenticated"]
            assert user["groups"] == groups


async def allow(server: Server, user: str, rule: dict[str, Any]) -> None:
    group = "rbac.authorization.k8s.io"
    role = {"metadata": {"name": user}, "rules": [rule]}
    bound = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    async with server.raw() as http:
        for plural, body in (("clusterroles", role), ("clusterrolebindings", bound)):
            async with http.post(f"/apis/{group}/v1/{plural}", json=body) as response:
                assert response.status == 201, await response.text()


async def test_impersonation_headers_set_user_info(server: Server, client: kube.Client) -> None:
    async with server.raw() as http:
        headers = {
            "Impersonate-User": "carol",
            "Impersonate-Group": "dev",
            "Impersonate-Uid": "7",
            "Impersonate-Extra-Acme.com%2fScope": "view",
        }
        user = await whoami(http, **headers)
        assert user == {
            "username": "carol",
            "uid": "7",
            "groups": ["dev", "system:authenticated"],
            "extra": {"acme.com/scope": ["view"]},
        }
        assert await code(http, "/api/v1/pods", **{"Impersonate-User": "carol"}) == 403
        account = "system:serviceaccount:default:robot"
        groups = (await whoami(http, **{"Impersonate-User": account}))["groups"]
        assert groups[:2] == ["system:serviceaccounts", "system:serviceaccounts:default"]
        assert await code(http, "/api/v1/pods", **{"Impersonate-Group": "dev"}) == 400


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"Impersonate-User": "dave"}, ""),
        ({"Impersonate-User": "erin"}, 'users "erin" is forbidden'),
        ({"Impersonate-User": "dave", "Impersonate-Group": "system:masters"}, "groups"),
        ({"Impersonate-User": "dave", "Impersonate-Uid": "1"}, "uids"),
        ({"Impersonate-User": "dave", "Impersonate-Extra-Scope": "all"}, "userextras"),
    ],
)
async def test_impersonation_requires_permission(
    server: Server, client: kube.Client, tmp_path: Path, headers: dict[str, str], refused: str
) -> None:
    rule = {
        "apiGroups": [""], "resources": ["users"], "resourceNames": ["dave"],
        "verbs": ["impersonate"],
    }  # fmt: skip
    await allow(server, "frank", rule)
    async with (
        with_certificate(server, tmp_path, pki.InstallationCertificate("c", "frank")) as http,
        http.post(WHOAMI, json={}, headers=headers) as response,
    ):
        answer = await response.json()
        assert response.status == (403 if refused else 201)
        assert refused in answer.get("message", "")


async def test_reader_of_one_object_can_list_and_watch_it(server: Server, tmp_path: Path) -> None:
    rule = {
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"],
        "verbs": ["get", "list", "watch"],
    }  # fmt: skip
    await allow(server, "grace", rule)
    path = "/api/v1/namespaces/default/secrets"
    async with with_certificate(
        server, tmp_path, pki.InstallationCertificate("c", "grace")
    ) as http:
        assert await code(http, path) == 403
        assert await code(http, f"{path}?fieldSelector=metadata.name%3Dmine") == 200
        assert await code(http, f"{path}?fieldSelector=metadata.name%3Dother") == 403
        assert await code(http, f"{path}?fieldSelector=metadata.name!%3Dmine") == 403


async def test_service_account_token_verifies_with_published_keys(
    server: Server, client: kube.Client
) -> None:
    account = {"metadata": {"name": "robot", "namespace": "default"}}
    await client.create(resources.SERVICE_ACCOUNTS, account)
    token, _ = await client.create_token("default", "robot", ["shop"], 1200)
    async with server.raw() as http:
        async with http.get("/.well-known/openid-configuration") as response:
            document = await response.json()
        async with http.get("/openid/v1/jwks") as response:
            assert response.content_type == "application/jwk-set+json"
            keys = jwt.PyJWKSet.from_dict(await response.json())
    assert document["jwks_uri"].endswith("/openid/v1/jwks")
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims = jwt.decode(
        token, key, algorithms=document["id_token_signing_alg_values_supported"],
        audience="shop", issuer=document["issuer"],
    )  # fmt: skip
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert claims["kubernetes.io"]["serviceaccount"]["name"] == "robot"
    assert claims["exp"] - claims["iat"] == 1200


async def test_token_is_invalid_after_its_service_account_is_deleted(
    server: Server, client: kube.Client
) -> None:
    account = {"metadata": {"name": "robot", "namespace": "default"}}
    await client.create(resources.SERVICE_ACCOUNTS, account)
    token, _ = await client.create_token("default", "robot", [], 600)
    async with server.raw(Authorization=f"Bearer {token}") as http:
        assert await code(http, "/api/v1/pods") == 403
        await client.delete(resources.SERVICE_ACCOUNTS, "robot", "default")
        assert await code(http, "/api/v1/pods") == 401
        await client.create(resources.SERVICE_ACCOUNTS, account)
        assert await code(http, "/api/v1/pods") == 401


async def test_too_short_token_lifetime_is_rejected(server: Server, client: kube.Client) -> None:
    account = {"metadata": {"name": "robot", "namespace": "default"}}
    await client.create(resources.SERVICE_ACCOUNTS, account)
    with pytest.raises(kube.ApiError, match=r"spec\.expirationSeconds"):
        await client.create_token("default", "robot", [], 60)


def test_former_signing_key_verifies_until_its_tokens_expire() -> None:
    keys, now = Keys(), 1_000_000
    first = token_keys.with_new_key(token_keys.empty_secret("keys", "signing-keys"), now)
    keys.load(first)
    old = keys.signing
    assert not keys.due(now + token_keys.ROTATE_SECONDS)
    assert keys.due(now + token_keys.ROTATE_SECONDS + 1)
    later = now + token_keys.ROTATE_SECONDS + 1
    second = token_keys.with_new_key(first, later)
    keys.load(second)
    assert keys.signing.id != old.id
    assert keys.find(old.id) is not None
    third = token_keys.with_new_key(second, later + token_keys.MAX_TOKEN_SECONDS + 1)
    keys.load(third)
    assert keys.find(old.id) is None
    assert len(keys.jwks()["keys"]) == 2


def test_malformed_key_secret_changes_no_key() -> None:
    keys = Keys()
    good = token_keys.with_new_key(token_keys.empty_secret("keys", "signing-keys"), 1)
    keys.load(good)
    before = keys.signing.id
    keys.load({"data": {"2.pem": base64.b64encode(b"nonsense").decode()}})
    assert keys.signing.id == before
    spoilt = {"data": {**good["data"], "2.pem": "!", "note": ""}}
    keys.load(spoilt)
    assert keys.signing.id == before
    keys.load(token_keys.with_new_key(spoilt, 3))
    assert keys.signing.created == 3


async def test_rotated_key_signs_new_tokens_at_once(server: Server, client: kube.Client) -> None:
    await client.create(
        resources.SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "default"}}
    )
    before, _ = await client.create_token("default", "robot", [], 600)
    secret = await client.get(resources.SECRETS, OWN_NAMES.signing_keys, token_keys.NAMESPACE)
    moment = datetime.now(UTC) + timedelta(seconds=1)
    await client.update(resources.SECRETS, token_keys.with_new_key(secret, int(moment.timestamp())))
    after, _ = await client.create_token("default", "robot", [], 600)
    kids = {jwt.get_unverified_header(token)["kid"] for token in (before, after)}
    assert len(kids) == 2
    for token in (before, after):
        async with server.raw(Authorization=f"Bearer {token}") as http:
            assert await code(http, "/api/v1/pods") == 403
