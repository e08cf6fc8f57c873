"""Fields of ``spec.oidc`` of an AuthenticationFilter: translation and validation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gatehouse.apis import nginx_authentication as api
from gatehouse.compiler.frontends.gateway_api.extensions import oidc
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir.authentication import Logout, Oidc
from gatehouse.dataplane.origin import Origin


def relying(**fields: Any) -> Oidc:
    known = {"issuer": "https://id.example", "clientID": "web", "clientSecretRef": {"name": "c"}}
    spec = msgspec.convert(known | fields, api.OidcAuth)
    oidc.check_patterns(spec.authorization)
    return oidc.relying(Origin("AuthenticationFilter", "ns", "users", "oidc"), spec)


def test_oidc_fields_have_defaults() -> None:
    assert relying() == Oidc(
        owner="ns/users",
        origin=Origin("AuthenticationFilter", "ns", "users", "oidc"),
        issuer="https://id.example",
        metadata_url="https://id.example/.well-known/openid-configuration",
        client_id="web",
        secret="",
        callback="/oidc_callback_ns_users",
        pkce=True,
        scopes=("openid",),
        cookie="NGX_OIDC_SESSION",
        timeout=8 * 3600.0,
    )


def test_oidc_fields_are_translated() -> None:
    party = relying(
        issuer="https://id.example/realms/a/",
        redirectURI="https://shop.example:8443/back",
        pkce=False,
        scopes=["email", "openid"],
        extraAuthArgs={"b": "2", "a": "1"},
        session={"cookieName": "SHOP", "timeout": "30m"},
        logout={
            "uri": "https://shop.example/logout", "postLogoutURI": "https://www.example/?bye",
            "frontChannelLogoutURI": "/ended", "tokenHint": True,
        },
    )  # fmt: skip
    assert party.metadata_url == "https://id.example/realms/a/.well-known/openid-configuration"
    assert (party.callback, party.callback_origin) == ("/back", "https://shop.example:8443")
    assert (party.scopes, party.pkce) == (("openid", "email"), False)
    assert party.extra == (("a", "1"), ("b", "2"))
    assert (party.cookie, party.timeout) == ("SHOP", 1800.0)
    assert party.logout == Logout("/logout", "https://www.example/?bye", "/ended", True)
    assert relying(configURL="https://id.internal/x?y=z").metadata_url.endswith("/x?y=z")


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("issuer", "http://id.example", "issuer"),
        ("issuer", "https://", "issuer"),
        ("issuer", "https://user@id.example", "issuer"),
        ("issuer", "https://id.example/\n", "issuer"),
        ("configURL", "file:///etc/passwd", "configURL"),
        ("clientID", "", "clientID"),
        ("clientID", "a\r\nb", "clientID"),
        ("redirectURI", "callback", "redirectURI"),
        ("redirectURI", "//evil.example/x", "redirectURI"),
        ("redirectURI", "/", "redirectURI"),
        ("redirectURI", "https://shop.example", "redirectURI"),
        ("redirectURI", "/a?b=c", "redirectURI"),
        ("redirectURI", "/a#b", "redirectURI"),
        ("redirectURI", "/a//b", "redirectURI"),
        ("redirectURI", "/a/../b", "redirectURI"),
        ("redirectURI", "/%2e", "redirectURI"),
        ("redirectURI", '/a"; } server {', "redirectURI"),
        ("redirectURI", "/$request_uri", ""),
        ("redirectURI", "/oidc_callback_ns_users", ""),
        ("redirectURI", "/oidc_callback_shop_users", "redirectURI: paths that begin with"),
        ("logout", {"uri": "/oidc_callback_shop_users"}, "logout.uri: paths that begin with"),
        ("scopes", ["a b"], "scopes"),
        ("scopes", [""], "scopes"),
        ("extraAuthArgs", {"state": "x", "nonce": "y"}, "must not contain nonce, state"),
        ("session", {"cookieName": "a b"}, "cookieName"),
        ("session", {"cookieName": "a=b; Path=/"}, "cookieName"),
        ("session", {"timeout": "0"}, "timeout"),
        ("session", {"timeout": "1d"}, "1d"),
        ("logout", {"uri": "/oidc_callback_ns_users"}, "must be different"),
        ("logout", {"uri": "/a", "frontChannelLogoutURI": "/a"}, "must be different"),
        ("logout", {"postLogoutURI": "javascript:alert(1)"}, "postLogoutURI"),
        ("logout", {"postLogoutURI": "/a\r\nb"}, "postLogoutURI"),
        (
            "authorization",
            {"rules": [{"claims": [{"name": "a", "match": "Regex", "values": ["(?=x)"]}]}]},
            "regular expression",
        ),
    ],
)
def test_invalid_oidc_field_is_rejected(field: str, value: Any, why: str) -> None:
    if not why:
        relying(**{field: value})
        return
    with pytest.raises(ValueProblem, match=why):
        relying(**{field: value})
