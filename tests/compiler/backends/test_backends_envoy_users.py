"""Routes on Envoy that require an authenticator: its configuration, and agents without one."""

from __future__ import annotations

import msgspec
import pytest

from fakes.origins import match_of
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import (
    Authorization,
    Basic,
    Claim,
    Logout,
    Oidc,
    Requirement,
)
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    LISTENER_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
    ResourceSet,
)
from gatehouse.sidecars.authenticator.config import AUTHENTICATORS_FILE, PASSWORDS, Party, Realm
from gatehouse.sidecars.authenticator.sessions import LoginSession, SessionCodec

ABLE = envoy.EnvoyCapabilities(authenticators=True)


def users(name: str = "users", **fields: object) -> Oidc:
    claim = Claim("groups", ("staff",), header="X-Groups")
    party = Oidc(
        owner=f"ns/{name}", issuer="https://id", metadata_url="https://id/m", client_id="web",
        secret="auth-1", callback=f"/callback-{name}",
        authorization=Authorization((Requirement((claim,)),)),
    )  # fmt: skip
    return msgspec.structs.replace(party, **fields)


def gateway(*routes: ir.Route, host: str = "a.example") -> ir_gateway.GatewayConfiguration:
    listener = ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost(host, routes),))
    contents = {
        "auth-1": b"one",
        "auth-2": b"two",
        "weak": b"me:{PLAIN}secret\n",
        "strong": b"me:{PLAIN}secret\nyou:$2y$05$x\n",
    }
    secrets = tuple(
        ir_gateway.SecretFile(name, ir_gateway.SecretBytes(content))
        for name, content in contents.items()
    )
    return ir_gateway.GatewayConfiguration("ns/gw", listeners=(listener,), secrets=secrets)


def guarded(
    authentication: Basic | Oidc | None, name: str = "ns/r/0/0", path: str = "/"
) -> ir.Route:
    match = ir.Match(ir.PathPrefix(path))
    return ir.Route(
        name, match, ir.Respond(204), authentication=authentication, origin=match_of(name)
    )


def parties(resources: ResourceSet) -> list[Party]:
    return [
        party
        for resource in resources.by_type.get(SIDECAR_CONFIG_TYPE_URL, {}).values()
        for party in msgspec.json.decode(
            sidecar_configs.sidecar_files(resource)[AUTHENTICATORS_FILE], type=list[Party]
        )
    ]


def test_requests_are_rejected_without_authenticator() -> None:
    generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(gateway(guarded(users())))
    (unsupported,) = generated.unsupported
    why = "OpenID Connect requires an agent with an authenticator"
    assert unsupported == Unsupported(match_of("ns/r/0/0"), why)
    assert SIDECAR_CONFIG_TYPE_URL not in generated.resources.by_type
    assert CLUSTER_TYPE_URL not in generated.resources.by_type


def test_listener_does_not_depend_on_authentication() -> None:
    generator = envoy.EnvoyGenerator(ABLE)
    before = generator.generate(gateway(guarded(None))).resources
    after = generator.generate(gateway(guarded(users()))).resources
    assert before.by_type[LISTENER_TYPE_URL] == after.by_type[LISTENER_TYPE_URL]
    assert {kind for kind, _ in after.differing(before)} == set(after.by_type) - {LISTENER_TYPE_URL}


def test_rotated_secret_replaces_relying_party() -> None:
    generator = envoy.EnvoyGenerator(ABLE)
    (first,) = parties(generator.generate(gateway(guarded(users()))).resources)
    rotated = gateway(guarded(users(secret="auth-2")))
    (second,) = parties(generator.generate(rotated).resources)
    assert first.name != second.name
    assert (
        generator.generate(rotated).resources
        == envoy.EnvoyGenerator(ABLE).generate(rotated).resources
    )
    gone = generator.generate(gateway(guarded(None))).resources
    assert not gone.by_type.get(SIDECAR_CONFIG_TYPE_URL)
    assert not gone.by_type.get(CLUSTER_TYPE_URL)


def test_relying_party_exists_while_a_route_uses_it() -> None:
    generator = envoy.EnvoyGenerator(ABLE)
    one, two = guarded(users(), "ns/one/0/0", "/one"), guarded(users(), "ns/two/0/0", "/two")
    (resource,) = (
        generator.generate(gateway(one, two)).resources.by_type[SIDECAR_CONFIG_TYPE_URL].values()
    )
    assert resource.origins == (match_of("ns/one/0/0").whole, match_of("ns/two/0/0").whole)
    (resource,) = (
        generator.generate(gateway(two)).resources.by_type[SIDECAR_CONFIG_TYPE_URL].values()
    )
    assert resource.origins == (match_of("ns/two/0/0").whole,)


@pytest.mark.parametrize("field", ["callback", "logout", "front_channel"])
def test_path_used_by_another_filter_is_reported(field: str) -> None:
    paths = {
        "callback": users("other", callback="/callback-users"),
        "logout": users("other", logout=Logout(path="/callback-users")),
        "front_channel": users("other", logout=Logout(front_channel="/callback-users")),
    }
    routes = (guarded(users(), "ns/r/0/0"), guarded(paths[field], "ns/r/1/0", "/other"))
    generated = envoy.EnvoyGenerator(ABLE).generate(gateway(*routes))
    why = "the path /callback-users is already used by an older filter or policy"
    assert generated.unsupported == (Unsupported(match_of("ns/r/1/0"), why),)


def test_unsupported_claim_header_rejects_requests() -> None:
    claim = Claim("groups", ("staff",), header="Host")
    authentication = users(authorization=Authorization((Requirement((claim,)),)))
    generated = envoy.EnvoyGenerator(ABLE).generate(gateway(guarded(authentication)))
    why = "Envoy does not permit routes to change the header host"
    assert generated.unsupported == (Unsupported(match_of("ns/r/0/0"), why),)
    assert parties(generated.resources) == []


def test_session_is_valid_on_both_proxies() -> None:
    configuration = gateway(guarded(users()))
    (here,) = parties(envoy.EnvoyGenerator(ABLE).generate(configuration).resources)
    able = nginx.NginxCapabilities.parse(
        "1.31.3", ("http_auth_request_module",), authenticators=True
    )
    text = (
        nginx.NginxGenerator(able)
        .generate(configuration)
        .file_set.files[AUTHENTICATORS_FILE]
        .content
    )
    (there,) = msgspec.json.decode(text, type=list[Party])
    assert here.headers == ("x-groups",)
    assert there.headers == ()
    session = LoginSession("alice", 0.0, 1.0, 1.0, {"groups": ["staff"]})
    cookie = SessionCodec(there, b"one").encode_session(session)
    assert SessionCodec(here, b"one").session(cookie) == session
    assert SessionCodec(here, b"two").session(cookie) is None


MEMBERS = Origin("AuthenticationFilter", "ns", "members", "basic.secretRef")


@pytest.mark.parametrize("users", ["weak", "strong"])
@pytest.mark.parametrize("able", [True, False])
def test_authenticator_checks_passwords_that_envoy_does_not_support(users: str, able: bool) -> None:
    authentication = Basic("members", users, MEMBERS)
    generator = envoy.EnvoyGenerator(envoy.EnvoyCapabilities(authenticators=able))
    generated = generator.generate(gateway(guarded(authentication)))
    described = generated.resources.by_type.get(SIDECAR_CONFIG_TYPE_URL, {})
    has_authenticator = able and users == "strong"
    assert bool(described) is has_authenticator
    assert bool(generated.unsupported) is (users == "strong" and not able)
    for resource in described.values():
        files = sidecar_configs.sidecar_files(resource)
        (realm,) = msgspec.json.decode(files[PASSWORDS], type=list[Realm])
        assert (realm.filter, realm.realm) == ("ns/members", "members")
        assert files[realm.users].startswith(b"me:")
        assert resource.name == f"authenticator/{realm.name}"
        assert resource.origins == (match_of("ns/r/0/0").whole,)
