"""Logins of SecurityPolicies: their fields, their Secrets, and what becomes of routes."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.policy_manifests import GATEWAY, GROUP, ROUTE, Object, manifest
from fakes.security_policy_world import (
    ACCEPTED,
    BASIC,
    SERVED,
    TOKENS,
    World,
    assert_invalid,
    assert_refused,
    http_route,
    policy,
)
from gatehouse.compiler.frontends.gateway_api.extensions import oidc
from gatehouse.compiler.ir.authentication import Authorization, Basic, Claim, Oidc, Requirement
from gatehouse.compiler.ir.http import Forward
from gatehouse.dataplane.origin import Origin

SECRET = "c2VjcmV0"


def login(**fields: Any) -> Object:
    known = {"issuer": "https://id.example", "clientID": "web", "clientSecretRef": {"name": "c"}}
    return {"oidc": known | fields}


def client_secret(name: str, **data: str) -> str:
    return manifest("v1", "Secret", name, data=data or {"client-secret": SECRET})


def users_of(world: World, route: str = "n/r/0/0") -> Oidc:
    users = world.route(route).authentication
    assert isinstance(users, Oidc)
    return users


def test_fields_have_the_meaning_of_an_authentication_filter() -> None:
    """One parser serves both: only owner, cookie and required claims are those of a policy."""
    fields = {
        "configURL": "https://id.internal/config",
        "redirectURI": "https://shop.example/back",
        "pkce": False,
        "scopes": ["email"],
        "extraAuthArgs": {"prompt": "consent"},
        "session": {"cookieName": "SHOP", "timeout": "30m"},
        "logout": {
            "uri": "/logout",
            "postLogoutURI": "/bye",
            "frontChannelLogoutURI": "/ended",
            "tokenHint": True,
        },
    }
    spec = {"type": "OIDC", **login(**fields)}
    reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "p"}
    filters = [{"type": "ExtensionRef", "extensionRef": reference}]
    path = {"matches": [{"path": {"value": "/filter"}}]}
    world = World(
        client_secret("n/c"),
        policy("n/p", ROUTE, **login(**fields)),
        manifest("gateway.nginx.org/v1alpha1", "AuthenticationFilter", "n/p", spec=spec),
        http_route("n/filter", {**SERVED, "filters": filters, **path}),
    )
    own, other = users_of(world), users_of(world, "n/filter/0/0")
    assert own.owner == "SecurityPolicy n/p"
    assert own.origin == Origin("SecurityPolicy", "n", "p", "oidc")
    names = set(Oidc.__struct_fields__) - {"owner", "origin"}
    assert {name: getattr(own, name) for name in names} == {
        name: getattr(other, name) for name in names
    }


def test_each_policy_has_a_callback_and_a_cookie_of_its_own_by_default() -> None:
    world = World(
        *(client_secret(f"{namespace}/c") for namespace in ("n", "gh")),
        policy("gh/p", GATEWAY, **login()),
        policy("n/p", ROUTE, **login()),
        http_route("n/other", SERVED),
    )
    own, outer = users_of(world), users_of(world, "n/other/0/0")
    assert (own.callback, outer.callback) == ("/oidc_callback_n_p", "/oidc_callback_gh_p")
    assert own.cookie != outer.cookie
    assert own.cookie.startswith("GATEHOUSE_")
    assert own.created == "2026-01-01T00:00:00Z"


def test_required_claims_must_all_hold_and_may_be_passed_in_headers() -> None:
    claims = [
        {"name": "groups", "values": ["staff", "admins"], "header": "X-Groups"},
        {"name": "email", "header": "X-Email"},
    ]
    world = World(
        client_secret("n/c"),
        policy("n/p", ROUTE, **login(requiredClaims=claims)),
        http_route("n/open", SERVED),
        http_route("other/open", {"backendRefs": [{"name": "s", "port": 80}]}),
    )
    required = (
        Claim("groups", ("staff", "admins"), header="X-Groups"),
        Claim("email", (), header="X-Email"),
    )
    assert users_of(world).authorization == Authorization((Requirement(required),))
    # Backends trust these headers. Only the namespace of a Service decides which.
    removed = {
        name: world.route(f"{name}/0/0").request_headers.remove
        for name in ("n/r", "n/open", "other/open")
    }
    assert removed == {"n/r": (), "n/open": ("x-email", "x-groups"), "other/open": ()}


def test_claims_of_tokens_may_be_passed_in_headers() -> None:
    claims = [{"name": "sub", "values": ["web"], "header": "X-Subject"}]
    world = World(
        policy("n/p", ROUTE, jwt=TOKENS | {"requiredClaims": claims}), http_route("n/open", SERVED)
    )
    assert world.accepted("p") == ACCEPTED
    assert world.route("n/open/0/0").request_headers.remove == ("x-subject",)


def where(name: str) -> str:
    return f"spec.oidc.clientSecretRef: Secret n/{name}"


@pytest.mark.parametrize(
    ("objects", "fields", "problem"),
    [
        pytest.param((), {}, f"{where('c')} not found", id="no Secret"),
        pytest.param(
            (client_secret("gh/c"),), {}, f"{where('c')} not found", id="Secret of the Gateway"
        ),
        pytest.param(
            (client_secret("n/c", secret=SECRET),),
            {},
            f"{where('c')}: data[client-secret] not found",
            id="other key",
        ),
        pytest.param(
            (client_secret("n/c", **{"client-secret": "Cg=="}),),
            {},
            f"{where('c')}: data[client-secret] must not be empty",
            id="line end",
        ),
        pytest.param(
            (client_secret("n/c"),),
            {"caCertificateRefs": [{"name": "ca"}]},
            "spec.oidc.caCertificateRefs: Secret n/ca not found",
            id="no CA",
        ),
        pytest.param(
            (client_secret("n/c"),),
            {"crlSecretRef": {"name": "c"}},
            "spec.oidc.crlSecretRef: Secret n/c: data[ca.crl] not found",
            id="no list of revoked certificates",
        ),
        pytest.param(
            (client_secret("n/c"),),
            {"logout": {"uri": "/oidc_callback_n_p"}},
            "spec.oidc.logout: its URIs and redirectURI must be different",
            id="logout at the callback",
        ),
        pytest.param(
            (client_secret("n/c"),),
            {"redirectURI": "/oidc_callback_shop_users"},
            "spec.oidc.redirectURI: paths that begin with /oidc_callback_ are those of other "
            "logins, except for /oidc_callback_n_p",
            id="callback of another login",
        ),
        pytest.param(
            (client_secret("n/c"),),
            {"logout": {"frontChannelLogoutURI": "https://x.example/oidc_callback_shop_users"}},
            "spec.oidc.logout.frontChannelLogoutURI: paths that begin with /oidc_callback_ are "
            "those of other logins, except for /oidc_callback_n_p",
            id="logout at the callback of another login",
        ),
        pytest.param(
            (client_secret("n/c"),),
            {"redirectURI": "/a/../b"},
            "spec.oidc.redirectURI: must not have the segments . or ..",
            id="dots",
        ),
        pytest.param(
            (client_secret("n/c"),),
            {"session": {"timeout": "0s"}},
            "spec.oidc.session.timeout: must be at least 1s",
            id="no time",
        ),
        pytest.param(
            (client_secret("n/c"),),
            {"requiredClaims": [{"name": "a", "header": "Cookie"}]},
            "spec.oidc.requiredClaims[0].header: invalid value 'Cookie': requests have this header "
            "for another purpose",
            id="header of another purpose",
        ),
        pytest.param(
            (client_secret("n/c"),),
            {"requiredClaims": [{"name": name, "header": "X-A"} for name in ("a", "b")]},
            "spec.oidc.requiredClaims[1].header: another claim has this header",
            id="header twice",
        ),
    ],
)
def test_routes_answer_500_while_users_cannot_log_in(
    objects: tuple[str, ...], fields: Object, problem: str
) -> None:
    world = World(*objects, policy("n/p", ROUTE, **login(**fields)))
    assert world.conditions["p", "Accepted"] == ("Invalid", problem)
    assert world.of_routes["r", "ResolvedRefs"] == (
        "InvalidFilter",
        f"SecurityPolicy n/p: {problem}",
    )
    assert_refused(world)


def test_other_namespaces_learn_no_names_of_a_failing_policy() -> None:
    world = World(policy("gh/p", GATEWAY, **login()))
    _, message = world.of_routes["r", "ResolvedRefs"]
    assert message == "SecurityPolicy gh/p: is not served: see its status"
    assert_refused(world)


CALLS = {"group": GROUP, "kind": "GRPCRoute", "name": "r"}


@pytest.mark.parametrize(
    ("target", "spec", "problem"),
    [
        pytest.param(
            CALLS,
            login(),
            "spec.targetRefs[0]: kind GRPCRoute is not supported with oidc: clients follow no "
            "redirects",
            id="calls",
        ),
        pytest.param(
            ROUTE, login() | {"basicAuth": BASIC}, "spec.oidc: may not be set with basicAuth",
            id="passwords",
        ),
        pytest.param(
            ROUTE, login() | {"jwt": TOKENS}, "spec.oidc: may not be set with jwt", id="tokens"
        ),
        pytest.param(
            ROUTE,
            login(issuer="http://id.example"),
            "spec.oidc.issuer: must be an https URL",
            id="issuer without TLS",
        ),
        pytest.param(
            ROUTE,
            login(configURL="https://user@id.example"),
            "spec.oidc.configURL: must be an https URL",
            id="metadata with a password",
        ),
        pytest.param(
            ROUTE,
            login(clientID="a\nb"),
            "spec.oidc.clientID: must be a non-empty text without control characters",
            id="client of two lines",
        ),
        pytest.param(
            ROUTE,
            login(redirectURI="/back; } server {"),
            "spec.oidc.redirectURI: must be a path such as /callback, or a URL with a path",
            id="directives",
        ),
        pytest.param(
            ROUTE,
            login(scopes=["a b"]),
            "spec.oidc.scopes: must be a list of valid scopes",
            id="two scopes in one",
        ),
        pytest.param(
            ROUTE,
            login(extraAuthArgs={"state": "x"}),
            "spec.oidc.extraAuthArgs: must not contain state",
            id="parameter of the login",
        ),
        pytest.param(
            ROUTE,
            login(session={"cookieName": "__Host-a"}),
            "spec.oidc.session.cookieName: must be a name of at most 64 letters, digits, - and _",
            id="cookie with a prefix",
        ),
        pytest.param(
            ROUTE,
            login(session={"timeout": "30"}),
            "spec.oidc.session.timeout: invalid value '30': must be a duration such as 500ms or "
            "10s",
            id="timeout without a unit",
        ),
        pytest.param(
            ROUTE,
            login(logout={"postLogoutURI": "javascript:alert(1)"}),
            "spec.oidc.logout.postLogoutURI: must be a path or URL",
            id="script after the logout",
        ),
        pytest.param(
            ROUTE,
            login(requiredClaims=[{"name": "groups"}]),
            "spec.oidc.requiredClaims[0]: needs a name, and values or a header",
            id="claim without a purpose",
        ),
    ],
)  # fmt: skip
def test_invalid_login_is_rejected_by_the_crd_and_without_it(
    target: Object, spec: Object, problem: str
) -> None:
    assert_invalid(target, spec, problem)


def test_arguments_of_a_login_are_reserved_in_the_crd_as_without_it() -> None:
    for name in oidc.RESERVED_ARGUMENTS:
        problem = f"spec.oidc.extraAuthArgs: must not contain {name}"
        assert_invalid(ROUTE, login(extraAuthArgs={name: "x"}), problem)


def test_passwords_of_a_route_replace_the_login_of_its_gateway() -> None:
    world = World(
        client_secret("gh/c"),
        policy("gh/p", GATEWAY, **login()),
        policy("n/p", ROUTE, basicAuth=BASIC),
        http_route("n/other", SERVED),
    )
    assert isinstance(world.route().authentication, Basic)
    assert users_of(world, "n/other/0/0").owner == "SecurityPolicy gh/p"


def test_older_of_two_logins_of_a_route_applies() -> None:
    world = World(
        client_secret("n/c"),
        policy("n/a", ROUTE, 2, **login()),
        policy("n/b", ROUTE, 1, **login()),
    )
    assert users_of(world).owner == "SecurityPolicy n/b"
    assert world.conditions["a", "Accepted"] == (
        "Conflicted",
        "spec: basicAuth, jwt, apiKeys or oidc: already set for HTTPRoute r by SecurityPolicy n/b, "
        "which is older or first by name",
    )


def test_login_does_not_replace_other_checks() -> None:
    world = World(
        client_secret("n/c"),
        policy("n/p", ROUTE, clientAddresses={"allow": ["10.0.0.0/8"]}, **login()),
    )
    route = world.route()
    assert users_of(world)
    assert route.client_addresses is not None
    assert isinstance(route.action, Forward)
