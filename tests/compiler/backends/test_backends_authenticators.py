"""Routes that require an authenticator: agents without one, and logins on one hostname."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.origins import match_of
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Logout, Oidc
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin
from gatehouse.sidecars.authenticator import config

ISSUER = "https://id.example"
USERS = Oidc(
    owner="a/users",
    issuer=ISSUER,
    metadata_url=ISSUER,
    client_id="web",
    secret="s",
    callback="/cb",
)
ROUTE = ir.Route(
    "a/b/0/0", ir.Match(), ir.Redirect(), authentication=USERS, origin=match_of("a/b/0/0")
)
GATEWAY = ir_gateway.GatewayConfiguration(
    "shop/web", listeners=(ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost("", (ROUTE,)),)),)
)


@pytest.mark.parametrize("module", [True, False])
@pytest.mark.parametrize("authenticators", [True, False])
def test_requests_are_rejected_without_authenticator(module: bool, authenticators: bool) -> None:
    modules = ("http_auth_request_module",) if module else ()
    capabilities = nginx.NginxCapabilities.parse("1.31.3", modules, authenticators=authenticators)
    generated = nginx.NginxGenerator(capabilities).generate(GATEWAY)
    able = module and authenticators
    assert {item.origin for item in generated.unsupported} == (
        set() if able else {match_of("a/b/0/0")}
    )
    assert (config.AUTHENTICATORS_FILE in generated.file_set.files) is able
    (server,) = (
        file.content.decode()
        for path, file in generated.file_set.files.items()
        if "/servers/" in path and not path.endswith("default.conf")
    )
    assert ("auth_request " in server) is able
    assert ("return 302" in server) is able


def test_common_capabilities_require_authenticator_of_all_agents() -> None:
    able = nginx.NginxCapabilities.parse("1.31.3", authenticators=True)
    common = nginx.NginxCapabilities.common([able, nginx.NginxCapabilities.parse("1.31.3")])
    assert common is not None
    assert not common.authenticators


def two_logins(of_older: dict[str, Any], of_newer: dict[str, Any]) -> tuple[Oidc, Oidc]:
    """Return the logins of two namespaces, the older one first."""
    older = Origin("SecurityPolicy", "z", "users")
    newer = Origin("SecurityPolicy", "b", "users")
    return (
        msgspec.structs.replace(USERS, created="2026-01-01", origin=older, **of_older),
        msgspec.structs.replace(
            USERS, owner="b/users", created="2026-01-02", origin=newer, **of_newer
        ),
    )


def reported(newer: Oidc, why: str) -> Unsupported:
    return Unsupported(match_of("b/new/0/0"), why, setting=newer.origin)


def refused(proxy: str, older: Oidc, newer: Oidc) -> tuple[Unsupported, ...]:
    """Return the findings of a proxy about two logins on one hostname.

    The route of the newer one is the first, so that the order of routes does not decide.
    """
    routes = tuple(
        msgspec.structs.replace(
            ROUTE, name=name, match=ir.Match(path), authentication=users, origin=match_of(name)
        )
        for name, path, users in (
            ("b/new/0/0", ir.PathPrefix("/longer/path"), newer),
            ("z/old/0/0", ir.PathPrefix("/"), older),
        )
    )
    listener = ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost("a.example", routes),))
    secret = ir_gateway.SecretFile("s", ir_gateway.SecretBytes(b"secret"))
    gateway = ir_gateway.GatewayConfiguration("shop/web", listeners=(listener,), secrets=(secret,))
    if proxy == "Envoy":
        able = envoy.EnvoyCapabilities(authenticators=True)
        return envoy.EnvoyGenerator(able).generate(gateway).unsupported
    modules = ("http_auth_request_module",)
    capabilities = nginx.NginxCapabilities.parse("1.31.3", modules, authenticators=True)
    return nginx.NginxGenerator(capabilities).generate(gateway).unsupported


@pytest.mark.parametrize("proxy", ["NGINX", "Envoy"])
@pytest.mark.parametrize("own", ["/cb", "/logout", "/ended"])
@pytest.mark.parametrize("other", ["callback", "logout", "ended"])
def test_newer_login_does_not_take_a_path_of_an_older_one(proxy: str, own: str, other: str) -> None:
    logout = Logout(path="/logout", front_channel="/ended")
    paths: dict[str, dict[str, Any]] = {
        "callback": {"callback": own},
        "logout": {"callback": "/x", "logout": Logout(path=own)},
        "ended": {"callback": "/x", "logout": Logout(front_channel=own)},
    }
    older, newer = two_logins({"logout": logout}, paths[other])
    why = f"the path {own} is already used by an older filter or policy"
    assert refused(proxy, older, newer) == (reported(newer, why),)


@pytest.mark.parametrize("proxy", ["NGINX", "Envoy"])
@pytest.mark.parametrize("name", ["SHOP", "SHOP_1"])
def test_newer_login_does_not_take_the_cookie_of_another_namespace(proxy: str, name: str) -> None:
    older, newer = two_logins({"cookie": "SHOP"}, {"callback": "/x", "cookie": name})
    why = f"the cookie {name} is already used by an older filter or policy"
    assert refused(proxy, older, newer) == (reported(newer, why),)
    neighbour = msgspec.structs.replace(newer, origin=Origin("SecurityPolicy", "z", "others"))
    assert refused(proxy, older, neighbour) == ()


@pytest.mark.parametrize("proxy", ["NGINX", "Envoy"])
def test_filters_of_two_namespaces_may_have_the_default_cookie(proxy: str) -> None:
    older, newer = two_logins({}, {"callback": "/x"})
    assert refused(proxy, older, newer) == ()
