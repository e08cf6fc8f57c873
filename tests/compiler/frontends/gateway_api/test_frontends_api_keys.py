"""Keys of clients in SecurityPolicies: which routes need them, and that none is ever left out."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from fakes.admission import admitted_objects
from fakes.compiled_objects import engine_with
from fakes.hostile_objects import is_admitted
from gatehouse.apis import security_policies as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions.api_keys import (
    MAX_CLIENT_KEYS,
    MAX_KEY_CHARACTERS,
)
from gatehouse.compiler.frontends.gateway_api.extensions.security_policies import security_policy
from gatehouse.compiler.ir.authentication import ApiKeys, KeySource
from gatehouse.compiler.ir.gateway import ApiKeyFile
from gatehouse.compiler.ir.http import Respond, Route
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine

Object = dict[str, Any]

GROUP = "gateway.networking.k8s.io"
PLACE = [{"headers": ["X-Key"]}]
PLACES = [{"params": ["key"], "headers": ["X-Key", "Authorization"]}, {"cookies": ["sess"]}]


def keys(*secrets: str, places: list[Object] = PLACE, **more: Any) -> Object:
    """Return the field ``apiKeys``."""
    references = [{"name": name} for name in secrets]
    return {"apiKeys": {"secretRefs": references, "extractFrom": places, **more}}


def manifest(version: str, kind: str, name: str, **fields: Any) -> str:
    namespace, _, own = name.rpartition("/")
    metadata = {"name": own, "namespace": namespace} if namespace else {"name": own}
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, **fields})


def secret(name: str, **clients: str | bytes) -> str:
    data = {
        client.replace("__", "."): base64.b64encode(
            key.encode() if isinstance(key, str) else key
        ).decode()
        for client, key in clients.items()
    }
    return manifest("v1", "Secret", name, data=data)


def policy(name: str, kind: str = "HTTPRoute", target: str = "r", **spec: Any) -> str:
    reference = {"group": GROUP, "kind": kind, "name": target}
    whole = {"targetRefs": [reference], **spec}
    return manifest("gatehouse.dev/v1alpha1", "SecurityPolicy", name, spec=whole)


def route(name: str) -> str:
    spec: Object = {
        "parentRefs": [{"name": "gw", "namespace": "gh"}],
        "rules": [{"backendRefs": [{"name": "s", "port": 80}]}],
    }
    return manifest(f"{GROUP}/v1", "HTTPRoute", name, spec=spec)


def world(*objects: str) -> Engine:
    """Return the compiler of a Gateway with routes of two namespaces."""
    everyone = {"namespaces": {"from": "All"}}
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": everyone}
    gateway = {"gatewayClassName": "c", "listeners": [listener]}
    controller = {"controllerName": "gatehouse.dev/nginx"}
    ports = {"ports": [{"name": "p", "port": 80}]}
    texts = (
        manifest(f"{GROUP}/v1", "GatewayClass", "c", spec=controller),
        manifest(f"{GROUP}/v1", "Gateway", "gh/gw", spec=gateway),
        *(route(name) for name in ("n/r", "n/open", "other/open")),
        *(manifest("v1", "Service", f"{namespace}/s", spec=ports) for namespace in ("n", "other")),
        *objects,
    )
    return engine_with(
        admitted_objects("\n---\n".join(texts)), gateway_api.ControllerSettings(bind="any")
    )


def served(engine: Engine, name: str = "n/r") -> tuple[Route, tuple[ApiKeyFile, ...]]:
    """Return a route, and the files of all keys."""
    with engine.compile() as ask:
        compiled = ask(gateway_api.compile_gateway, ("Gateway", "gh", "gw"))
        assert compiled is not None
        hosts = [host for listener in compiled.listeners for host in listener.virtual_hosts]
        [own] = [one for host in hosts for one in host.routes if one.name == f"{name}/0/0"]
        files = tuple(one for one in compiled.secrets if isinstance(one, ApiKeyFile))
        return own, files


def condition(engine: Engine, kind: str, name: str, of_type: str) -> tuple[str, str]:
    """Return reason and message of a condition."""
    with engine.compile() as ask:
        status = gateway_api.gateway_api_status(ask, (kind, *name.split("/")))
    entries = getattr(status, "ancestors", ()) or getattr(status, "parents", ())
    conditions = [one for entry in entries for one in entry.conditions]
    [result] = [(one.reason, one.message) for one in conditions if one.type == of_type]
    return result


def test_route_needs_a_key_of_its_policy() -> None:
    engine = world(
        secret("n/a", alice="first\n", bob="second"),
        secret("n/b", bob="third", carol__dev="fourth"),
        policy("n/p", **keys("a", "b", places=PLACES, clientHeader="X-Client")),
    )
    own, [file] = served(engine)
    assert own.authentication == ApiKeys(
        keys=file.name,
        sources=(
            KeySource("header", "X-Key"),
            KeySource("header", "Authorization"),
            KeySource("query", "key"),
            KeySource("cookie", "sess"),
        ),
        client_header="X-Client",
        origin=Origin("SecurityPolicy", "n", "p", "apiKeys"),
    )
    assert file.clients == (
        ("alice", "first"), ("bob", "second"), ("bob", "third"), ("carol.dev", "fourth")
    )  # fmt: skip
    assert condition(engine, "SecurityPolicy", "n/p", "Accepted")[0] == "Accepted"
    assert "first" not in repr(file)


def test_backend_gets_the_key_only_if_the_policy_says_so() -> None:
    assert keys_of(policy("n/p", **keys("a"))).sanitize
    assert not keys_of(policy("n/p", **keys("a", sanitize=False))).sanitize


def keys_of(text: str) -> ApiKeys:
    own, _ = served(world(secret("n/a", alice="first"), text))
    assert isinstance(own.authentication, ApiKeys)
    return own.authentication


def test_changed_secret_changes_the_keys() -> None:
    engine = world(secret("n/a", alice="first"), policy("n/p", **keys("a")))
    _, [before] = served(engine)
    renewed = json.loads(secret("n/a", alice="second"))
    engine.commit({("Secret", "n", "a"): gateway_api.decode_gateway_api_object("Secret", renewed)})
    own, [after] = served(engine)
    assert after.clients == (("alice", "second"),)
    assert isinstance(own.authentication, ApiKeys)
    assert own.authentication.keys == after.name != before.name


FAILING: dict[str, tuple[tuple[str, ...], Object, str]] = {
    "no Secret": ((), keys("a"), "secretRefs[0]: Secret n/a not found"),
    "Secret of another namespace": (
        (secret("other/a", alice="first"),),
        keys("a"),
        "secretRefs[0]: Secret n/a not found",
    ),
    "second Secret is missing": (
        (secret("n/a", alice="first"),),
        keys("a", "b"),
        "secretRefs[1]: Secret n/b not found",
    ),
    "no entries": (
        (secret("n/a"),),
        keys("a"),
        "secretRefs[0]: Secret n/a: must have an entry for each client",
    ),
    "empty key": (
        (secret("n/a", alice="\n"),),
        keys("a"),
        "secretRefs[0]: Secret n/a: data[alice]: must not be empty",
    ),
    "key that is too long": (
        (secret("n/a", alice="x" * (MAX_KEY_CHARACTERS + 1)),),
        keys("a"),
        "secretRefs[0]: Secret n/a: data[alice]: longer than 128 characters",
    ),
    "key of two lines": (
        (secret("n/a", alice="first\nsecond"),),
        keys("a"),
        "secretRefs[0]: Secret n/a: data[alice]: must have only letters, digits and . _ ~ + / = -",
    ),
    "key of bytes": (
        (secret("n/a", alice=b"\xff\x00"),),
        keys("a"),
        "secretRefs[0]: Secret n/a: data[alice]: must have only letters, digits and . _ ~ + / = -",
    ),
    "key with a space": (
        (secret("n/a", alice="Bearer first"),),
        keys("a"),
        "secretRefs[0]: Secret n/a: data[alice]: must have only letters, digits and . _ ~ + / = -",
    ),
    "two clients with one key": (
        (secret("n/a", alice="first", bob="first"),),
        keys("a"),
        "secretRefs[0]: Secret n/a: data[bob]: has the same key as data[alice] of Secret n/a",
    ),
    "two clients with one key in two Secrets": (
        (secret("n/a", bob="first"), secret("n/b", alice="first")),
        keys("a", "b"),
        "secretRefs[1]: Secret n/b: data[alice]: has the same key as data[bob] of Secret n/a",
    ),
    "too many keys": (
        (secret("n/a", **{f"c{number}": f"key{number}" for number in range(MAX_CLIENT_KEYS + 1)}),),
        keys("a"),
        "secretRefs: more than 256 keys",
    ),
}


@pytest.mark.parametrize("case", FAILING)
def test_routes_answer_500_without_keys_that_they_need(case: str) -> None:
    objects, spec, problem = FAILING[case]
    engine = world(*objects, policy("n/p", **spec))
    message = f"spec.apiKeys.{problem}"
    assert condition(engine, "SecurityPolicy", "n/p", "Accepted") == ("Invalid", message)
    why = ("InvalidFilter", f"SecurityPolicy n/p: {message}")
    assert condition(engine, "HTTPRoute", "n/r", "ResolvedRefs") == why
    own, files = served(engine)
    assert own.action == Respond(500)
    assert not files


def test_one_client_may_have_the_same_key_in_two_secrets() -> None:
    engine = world(
        secret("n/a", alice="first"), secret("n/b", alice="first"), policy("n/p", **keys("a", "b"))
    )
    _, [file] = served(engine)
    assert file.clients == (("alice", "first"),)


def test_most_keys_of_the_greatest_length_are_served() -> None:
    clients = {f"c{number}": f"{number:0{MAX_KEY_CHARACTERS}}" for number in range(MAX_CLIENT_KEYS)}
    _, [file] = served(world(secret("n/a", **clients), policy("n/p", **keys("a"))))
    assert len(file.clients) == MAX_CLIENT_KEYS


def test_name_of_the_client_comes_from_no_client_on_other_routes() -> None:
    engine = world(
        secret("n/a", alice="first"), policy("n/p", **keys("a", clientHeader="X-Client"))
    )
    removed = {
        name: served(engine, name)[0].request_headers.remove
        for name in ("n/r", "n/open", "other/open")
    }
    # Only the namespace of a Service decides which headers it trusts.
    assert removed == {"n/r": (), "n/open": ("x-client",), "other/open": ()}


def test_own_keys_of_a_route_replace_the_passwords_of_its_gateway() -> None:
    engine = world(
        secret("n/a", alice="first"),
        secret("gh/users", auth="alice:{PLAIN}a"),
        policy("gh/outer", "Gateway", "gw", basicAuth={"secretRef": {"name": "users"}}),
        policy("n/inner", **keys("a")),
    )
    own, _ = served(engine)
    assert isinstance(own.authentication, ApiKeys)


def test_keys_and_passwords_of_two_policies_are_in_conflict() -> None:
    engine = world(
        secret("n/a", alice="first"),
        secret("n/users", auth="alice:{PLAIN}a"),
        policy("n/p", **keys("a")),
        policy("n/q", basicAuth={"secretRef": {"name": "users"}}),
    )
    assert condition(engine, "SecurityPolicy", "n/q", "Accepted") == (
        "Conflicted",
        "spec: basicAuth, jwt, apiKeys or oidc: already set for HTTPRoute r by SecurityPolicy n/p, "
        "which is older or first by name",
    )


TOO_MANY = [{"headers": [f"X-{number}" for number in range(8)]}, {"cookies": ["a"]}]
NAME = "must have up to 64 letters, digits and . _ ~ -"
HEADER = "must have up to 46 letters, digits and hyphens"
INVALID: dict[str, tuple[Object, bool, str]] = {
    "no Secrets": (keys(), False, "secretRefs: must name a Secret"),
    "no places": (keys("a", places=[]), False, "extractFrom: must have from 1 to 8 names"),
    "place without names": (
        keys("a", places=[{}]),
        False,
        "extractFrom: must have from 1 to 8 names",
    ),
    "too many places": (
        keys("a", places=TOO_MANY),
        True,
        "extractFrom: must have from 1 to 8 names",
    ),
    "name twice": (
        keys("a", places=[{"headers": ["X-Key"]}, {"headers": ["x-key"]}]),
        True,
        "extractFrom: a name is there twice",
    ),
    "header with an underscore": (
        keys("a", places=[{"headers": ["X_Key"]}]),
        False,
        f"extractFrom[0].headers[0]: invalid value 'X_Key': {HEADER}",
    ),
    "header of another purpose": (
        keys("a", places=[{"headers": ["X-Key", "Cookie"]}]),
        True,
        "extractFrom[0].headers[1]: invalid value 'Cookie': requests have this header for another "
        "purpose",
    ),
    "header of the connection": (
        keys("a", places=[{"headers": ["Upgrade"]}]),
        True,
        "extractFrom[0].headers[0]: header Upgrade belongs to the connection and must not be "
        "changed",
    ),
    "parameter with a sign": (
        keys("a", places=[{"params": ["a&b"]}]),
        False,
        f"extractFrom[0].params[0]: invalid value 'a&b': {NAME}",
    ),
    "cookie with a space": (
        keys("a", places=[{"cookies": ["a", "b c"]}]),
        False,
        f"extractFrom[0].cookies[1]: invalid value 'b c': {NAME}",
    ),
    "client header with a line end": (
        keys("a", clientHeader="X\n"),
        False,
        f"clientHeader: invalid value 'X\\n': {HEADER}",
    ),
    "client header that has the key": (
        keys("a", clientHeader="x-key"),
        True,
        "clientHeader: must not be a header with a key",
    ),
    "client header of the proxy": (
        keys("a", clientHeader="X-Envoy-A"),
        True,
        "clientHeader: header X-Envoy-A controls the proxy and must not be changed",
    ),
    "with tokens": (
        keys("a") | {"jwt": {"secretRef": {"name": "a"}}},
        False,
        "may not be set with jwt",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_field_is_named_and_routes_answer_500(case: str) -> None:
    """The CRD rejects what it can express. Neither way leaves a route without its check."""
    spec, by_crd, expected = INVALID[case]
    text = policy("n/p", **spec)
    view = msgspec.convert(json.loads(text), api.SecurityPolicy)
    [problem] = security_policy(view, ResourceLimits()).problems
    separator = ": " if case == "with tokens" else "."
    assert problem == f"spec.apiKeys{separator}{expected}"
    assert is_admitted(json.loads(text)) == by_crd
    if by_crd:
        engine = world(secret("n/a", alice="first"), text)
        assert condition(engine, "SecurityPolicy", "n/p", "Accepted") == ("Invalid", problem)
        assert served(engine)[0].action == Respond(500)
