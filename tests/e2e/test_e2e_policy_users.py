"""Logins of SecurityPolicies, on each proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.browsers import Browser, browsing, ready, secret
from fakes.installation import address, apply, hello, holds, route
from fakes.kinds import resource_of
from fakes.oidc_provider import CLIENT, SECRET, OidcProvider, oidc_provider
from fakes.patience import until, until_equal
from fakes.policy_traffic import REDIRECT
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long]

POLICY = resource_of("SecurityPolicy")


def login(
    provider: OidcProvider, name: str, kind: str, target: str, **fields: Any
) -> dict[str, Any]:
    """Return a policy of one target."""
    reference = {"group": "gateway.networking.k8s.io", "kind": kind, "name": target}
    oidc = {
        "issuer": provider.issuer,
        "clientID": CLIENT,
        "clientSecretRef": {"name": f"client-of-{name}"},
        "caCertificateRefs": [{"name": "provider-ca"}],
        **fields,
    }
    return {
        "apiVersion": POLICY.api_version,
        "kind": POLICY.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"targetRefs": [reference], "oidc": oidc},
    }


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def provider(
    client: kube.Client, backends: None, tmp_path: Path, gateway_class: str
) -> AsyncIterator[OidcProvider]:
    with oidc_provider(tmp_path / "pki") as result:
        routes = [
            route("account", "/account"),
            route("open", "/open"),
            route("moved", "/moved", filters=[REDIRECT], backendRefs=[]),
            route("gone", "/gone", "gone"),
        ]
        authority = secret("provider-ca", "ca.crt", result.authority)
        await apply(client, [*hello(gateway_class), authority, *routes])
        yield result


async def answered(browser: Browser, path: str, expected: int, **request: Any) -> None:
    """Wait until a request gets a status."""

    async def status() -> int:
        return (await browser.get(path, allow_redirects=False, **request))[0]

    await until_equal(status, expected)


async def test_users_of_a_route_log_in_and_out(client: kube.Client, provider: OidcProvider) -> None:
    policy = login(
        provider, "users", "HTTPRoute", "account",
        requiredClaims=[{"name": "groups", "values": ["staff"], "header": "X-Groups"}],
        logout={"uri": "/logout", "postLogoutURI": "/open"},
    )  # fmt: skip
    async with browsing(await address(client), provider) as browser:
        await answered(browser, "/account", 200)
        await apply(client, [policy])
        # No request is served without its check.
        await answered(browser, "/account", 500)
        condition = await holds(client, "HTTPRoute", "account", "ResolvedRefs", "False")
        missing = "spec.oidc.clientSecretRef: Secret default/client-of-users not found"
        assert condition["message"] == f"SecurityPolicy default/users: {missing}"
        await apply(client, [secret("client-of-users", "client-secret", f"{SECRET}\n")])
        await ready(browser)
        browser.jar.clear()
        await answered(browser, "/account", 302)
        await answered(browser, "/account", 401, method="POST", data=b"x")
        browser.jar.clear()
        status, page = await browser.get("/account/orders?page=2", headers={"X-Groups": "root"})
        assert (status, page["path"]) == (200, "/account/orders?page=2")
        callback = f"{browser.origin}/oidc_callback_default_users"
        assert provider.authorized[-1]["redirect_uri"] == callback
        _, page = await browser.get("/account", headers={"X-Groups": "root"})
        assert page["headers"]["x-groups"] == "staff,admins"
        assert "cookie" not in page["headers"]
        [cookie] = browser.cookies()
        assert cookie.startswith("GATEHOUSE_")
        # The backend trusts the header, so that no other route lets a client set it.
        _, page = await browser.get("/open", headers={"X-Groups": "root"})
        assert "x-groups" not in page["headers"]
        status, page = await browser.get("/logout")
        assert (status, page["path"]) == (200, "/open")
        assert browser.cookies() == set()
        await answered(browser, "/account", 302)
        provider.user = {"sub": "bob", "groups": ["guests"]}
        assert (await browser.get("/account"))[0] == 403
    await client.delete(POLICY, "users", "default")


async def test_users_of_a_gateway_log_in_whatever_answers(
    client: kube.Client, provider: OidcProvider
) -> None:
    paths = {"/account": 200, "/moved": 302, "/gone": 500}
    site = login(provider, "site", "Gateway", "web")
    site["spec"]["securityHeaders"] = {"frameOptions": "Deny"}
    await apply(
        client,
        [
            secret("client-of-site", "client-secret", SECRET),
            site,
        ],
    )
    async with browsing(await address(client), provider) as browser:

        async def asked() -> bool:
            if (await browser.get("/gone", allow_redirects=False))[0] != 302:
                return False
            return (await browser.sent("/gone")).startswith(provider.issuer)

        await until(asked)
        for path in paths:
            await answered(browser, path, 302)
            assert (await browser.sent(path)).startswith(provider.issuer)
            await answered(browser, path, 401, headers={"Sec-Fetch-Mode": "cors"})
            for mode in ("navigate", "cors"):
                assert await browser.header(path, "X-Frame-Options", mode) == "DENY"
        await ready(browser)
        for path, status in paths.items():
            await answered(browser, path, status)
            assert await browser.header(path, "X-Frame-Options", "navigate") == "DENY"
        assert await browser.sent("/moved") == f"{browser.origin}/moved".replace(
            browser.origin.removeprefix("http://").partition(":")[0], "b.example"
        )
        await client.delete(POLICY, "site", "default")
        browser.jar.clear()
        for path, status in paths.items():
            await answered(browser, path, status)
        await answered(browser, "/oidc_callback_default_site", 200)
