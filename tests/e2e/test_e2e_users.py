"""Users of an OpenID Connect provider, on each proxy: from login to headers for backends."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.browsers import Browser, browsing, ready, secret
from fakes.durations import pace
from fakes.installation import Installation, address, apply, hello, holds, route
from fakes.oidc_provider import CLIENT, ENDS_AT_ONCE, SECRET, OidcProvider, oidc_provider
from fakes.patience import until
from gatehouse.kube import client as kube
from gatehouse.sidecars.base import control

pytestmark = [pytest.mark.process, pytest.mark.long]

FILTER = "AuthenticationFilter"


def users(provider: OidcProvider, name: str, **fields: Any) -> dict[str, Any]:
    spec = {
        "issuer": provider.issuer,
        "clientID": CLIENT,
        "clientSecretRef": {"name": "client"},
        "caCertificateRefs": [{"name": "provider-ca"}],
        **fields,
    }
    return {
        "apiVersion": "gateway.nginx.org/v1alpha1",
        "kind": FILTER,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "OIDC", "oidc": spec},
    }


def guarded(path: str, name: str, **rule: Any) -> dict[str, Any]:
    reference = {"group": "gateway.nginx.org", "kind": FILTER, "name": name}
    filters = [{"type": "ExtensionRef", "extensionRef": reference}]
    return route(path.strip("/"), path, filters=filters, **rule)


def asking(*values: str, header: str) -> dict[str, Any]:
    claim = {"name": "groups", "values": list(values), "proxySetHeader": header}
    return {"rules": [{"claims": [claim]}]}


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def provider(
    client: kube.Client, backends: None, tmp_path: Path, gateway_class: str
) -> AsyncIterator[OidcProvider]:
    with oidc_provider(tmp_path / "pki") as result:
        logout = {"uri": "/logout", "postLogoutURI": "/", "tokenHint": True}
        await apply(
            client,
            [
                *hello(gateway_class),
                secret("client", "client-secret", f"{SECRET}\n"),
                secret("provider-ca", "ca.crt", result.authority),
                users(
                    result, "users", authorization=asking("staff", header="X-Groups"), logout=logout
                ),
                users(
                    result, "admins", authorization=asking("admins", header="X-Groups"),
                    session={"cookieName": "ADMINS"},
                ),
                guarded("/account", "users"),
                guarded("/retried", "users", retry={"attempts": 1, "codes": [500]}),
                guarded("/admin", "admins"),
            ],
        )  # fmt: skip
        for name in ("account", "retried", "admin"):
            await holds(client, "HTTPRoute", name, "Accepted")
        yield result


async def test_logged_in_user_is_forwarded_to_backend_in_headers(
    client: kube.Client, provider: OidcProvider
) -> None:
    async with browsing(await address(client), provider) as browser:
        await ready(browser)
        browser.jar.clear()
        forged = {"X-Groups": "root", "Cookie": "theme=dark"}
        status, page = await browser.get("/account/orders?page=2", headers=forged)
        assert (status, page["path"]) == (200, "/account/orders?page=2")
        assert provider.authorized[-1]["redirect_uri"] == (
            f"{browser.origin}/oidc_callback_default_users"
        )
        status, page = await browser.get("/account", headers={"X-Groups": "root"})
        assert status == 200
        assert page["headers"]["x-groups"] == "staff,admins"
        assert browser.cookies() == {"NGX_OIDC_SESSION"}
        assert "cookie" not in page["headers"]
        browser.jar.update_cookies({"theme": "dark"})
        _, page = await browser.get("/account")
        assert page["headers"]["cookie"] == "theme=dark"
        # Bodies are the backend's alone.
        status, page = await browser.get("/account", method="POST", data=io.BytesIO(bytes(4 << 20)))
        assert (status, page["body_bytes"]) == (200, 4 << 20)
        status, page = await browser.get("/retried")
        assert (status, page["headers"]["x-groups"]) == (200, "staff,admins")


async def test_request_without_session_is_redirected_or_rejected(
    client: kube.Client, provider: OidcProvider
) -> None:
    async with browsing(await address(client), provider) as browser:
        await ready(browser)
        browser.jar.clear()
        more: dict[str, Any] = {"allow_redirects": False}
        assert (await browser.get("/account", **more))[0] == 302
        assert (await browser.get("/retried", **more))[0] == 302
        assert (await browser.get("/account", method="POST", data=b"x", **more))[0] == 401
        assert (await browser.get("/account", headers={"Sec-Fetch-Mode": "cors"}, **more))[0] == 401
        upgrade = {"Upgrade": "websocket", "Connection": "upgrade"}
        assert (await browser.get("/account", headers=upgrade, **more))[0] == 401
        assert (await browser.get("/oidc_callback_default_users", **more))[0] == 400
        cookie = {"Cookie": "NGX_OIDC_SESSION=1AAAA; NGX_OIDC_SESSION_1=x"}
        assert (await browser.get("/account", headers=cookie, **more))[0] == 302


async def test_user_without_the_required_group_is_denied(
    client: kube.Client, provider: OidcProvider
) -> None:
    async with browsing(await address(client), provider) as browser:
        await ready(browser)
        await ready(browser, "/admin")
        provider.user = {"sub": "bob", "groups": ["staff"]}
        browser.jar.clear()
        assert (await browser.get("/account"))[0] == 200
        assert (await browser.get("/admin"))[0] == 403
        assert browser.cookies() == {"NGX_OIDC_SESSION", "ADMINS"}


async def test_logout_ends_local_and_provider_session(
    client: kube.Client, provider: OidcProvider
) -> None:
    async with browsing(await address(client), provider) as browser:
        await ready(browser)
        browser.jar.clear()
        assert (await browser.get("/account"))[0] == 200
        status, page = await browser.get("/logout")
        assert (status, page["path"]) == (200, "/")
        assert provider.logouts[-1]["post_logout_redirect_uri"] == f"{browser.origin}/"
        assert "id_token_hint" in provider.logouts[-1]
        assert browser.cookies() == set()
        assert (await browser.get("/account", allow_redirects=False))[0] == 302


async def test_expired_tokens_of_a_session_are_refreshed_by_a_request(
    client: kube.Client, provider: OidcProvider
) -> None:
    async with browsing(await address(client), provider) as browser:
        await ready(browser)
        browser.jar.clear()
        provider.lifetime = ENDS_AT_ONCE
        assert (await browser.get("/account"))[0] == 200
        provider.user, provider.lifetime = {"sub": "alice", "groups": ["staff", "new"]}, 300
        logins, before = len(provider.authorized), {cookie.value for cookie in browser.jar}
        status, page = await browser.get("/account", method="POST", data=b"x")
        assert (status, page["headers"]["x-groups"]) == (200, "staff,new")
        assert {cookie.value for cookie in browser.jar}.isdisjoint(before)
        assert (await browser.get("/account"))[0] == 200
        assert len(provider.authorized) == logins


async def test_expired_session_requires_a_new_login(
    client: kube.Client, provider: OidcProvider
) -> None:
    async with browsing(await address(client), provider) as browser:
        await ready(browser)
        browser.jar.clear()
        provider.lifetime, provider.refreshable = 3, False
        assert (await browser.get("/account"))[0] == 200

        async def is_expired() -> bool:
            return (await browser.get("/account", method="POST", data=b"x"))[0] == 401

        await until(is_expired)
        provider.lifetime, logins = 300, len(provider.authorized)
        assert (await browser.get("/account"))[0] == 200
        assert len(provider.authorized) == logins + 1


async def test_foreign_or_forged_login_is_rejected(
    client: kube.Client, provider: OidcProvider
) -> None:
    where = await address(client)
    callback = "/oidc_callback_default_users"
    async with browsing(where, provider) as browser, browsing(where, provider) as other:
        await ready(browser)
        browser.jar.clear()
        # A code and a state are nothing without the cookie of the browser that asked for them.
        begun = await browser.sent("/account")
        back = await other.sent(begun)
        assert back.startswith(f"{other.origin}{callback}?")
        path = back.removeprefix(other.origin)
        assert (await other.get(path, allow_redirects=False))[0] == 400
        assert other.cookies() == set()
        forged = {"nonce": "of another login"}
        provider.forged = forged
        assert (await browser.get("/account"))[0] == 403
        provider.forged = {}
        assert (await browser.get(f"{callback}?code=x&state=y"))[0] == 400
        assert not {cooky for cooky in browser.cookies() if cooky == "NGX_OIDC_SESSION"}
        assert (await browser.get("/account"))[0] == 200


async def test_sessions_end_when_the_client_secret_changes(
    client: kube.Client, provider: OidcProvider
) -> None:
    async with browsing(await address(client), provider) as browser:
        await ready(browser)
        before = len(provider.authorized)
        await apply(client, [secret("client", "client-secret", "another, for a while")])

        async def ended() -> bool:
            return (await browser.get("/account", allow_redirects=False))[0] == 302

        await until(ended)
        await apply(client, [secret("client", "client-secret", SECRET)])

        async def back() -> bool:
            return (await browser.get("/account", allow_redirects=False))[0] == 200

        # Sessions are in the users' cookies alone, and open again.
        await until(back)
        assert len(provider.authorized) == before


async def test_unavailable_provider_blocks_new_logins_and_keeps_sessions(
    client: kube.Client, provider: OidcProvider
) -> None:
    where = await address(client)
    async with browsing(where, provider) as browser, browsing(where, provider) as other:
        await ready(browser)
        provider.away = True
        # Another filter is another relying party, which has never met the provider.
        await apply(
            client,
            [
                users(
                    provider, "users", scopes=["email"], authorization=asking("staff", header="X-A")
                ),
                guarded("/account", "users"),
            ],
        )

        async def unavailable() -> bool:
            return (await other.get("/account"))[0] == 503

        await until(unavailable)

        async def told() -> bool:
            status, page = await browser.get("/account")
            assert status == 200
            return bool(page["headers"].get("x-a") == "staff,admins")

        # A connection of before may still be an old worker's.
        await until(told)
        assert (await other.get("/account", method="POST", data=b"x"))[0] == 401
        provider.away = False
        await ready(other)


async def test_killed_authenticator_is_restarted_and_sessions_stay_valid(
    client: kube.Client, provider: OidcProvider, installation: Installation, gateway_class: str
) -> None:
    where = await address(client)
    (sockets,) = installation.state.glob("node/pods/*/volumes/run/authenticators")
    statuses: dict[str, Counter[int]] = {"with": Counter(), "without": Counter()}

    async with browsing(where, provider) as browser, browsing(where, provider) as stranger:
        await ready(browser)

        async def load(name: str, who: Browser) -> None:
            while True:
                status, _ = await who.get("/account", allow_redirects=False)
                statuses[name][status] += 1
                await pace(0.005)

        tasks = [
            asyncio.create_task(load(name, who))
            for name, who in (("with", browser), ("without", stranger))
            for _ in range(4)
        ]
        await until(lambda: all(statuses.values()))
        pid = control.pid(sockets)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

        async def replaced() -> bool:
            return control.pid(sockets) not in (None, pid)

        await until(replaced)
        good = statuses["with"][200]

        async def served() -> bool:
            return statuses["with"][200] > good + 50

        await until(served)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        away = {503} if gateway_class == "gatehouse-envoy" else {500, 502}
        assert set(statuses["with"]) <= {200, *away}
        assert set(statuses["without"]) <= {302, *away}


async def test_route_with_invalid_authentication_filter_returns_error(
    client: kube.Client, provider: OidcProvider
) -> None:
    await apply(
        client,
        [
            users(provider, "broken", clientSecretRef={"name": "missing"}),
            guarded("/broken", "broken"),
        ],
    )
    condition = await holds(client, "HTTPRoute", "broken", "ResolvedRefs", "False")
    assert "spec.oidc.clientSecretRef: Secret default/missing not found" in condition["message"]
    async with browsing(await address(client), provider) as browser:

        async def closed() -> bool:
            return (await browser.get("/broken"))[0] == 500

        await until(closed)
