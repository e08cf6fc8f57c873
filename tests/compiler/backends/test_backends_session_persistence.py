"""Session persistence of rules and of XBackendTrafficPolicies, served by real proxies."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp
import msgspec
import pytest

from differential.proxies import PORT, Runner, with_envoy
from fakes.authorized_traffic import NGINX, RUNNERS, Served
from fakes.envoy_serving import backend
from fakes.one_route import BACKEND, conditions, engine, routes
from fakes.specified_objects import (
    CLASS,
    compiled_gateway,
    route,
    service,
    serving_configuration,
    serving_objects,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration

RULES = """
- sessionPersistence:
    type: Cookie
    cookie: {name: shop, lifetimeType: Permanent}
    absoluteTimeout: 1h
  backendRefs: [{name: a, port: 80}, {name: b, port: 80}]
"""


async def _visit(proxy: Served, cookies: dict[str, str], path: str = "") -> tuple[str, list[str]]:
    """Return the endpoint that answers, and the cookies that it sets."""
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(f"http://{proxy.address}:{PORT}/{path}", cookies=cookies) as answer,
    ):
        return (await answer.json())["service"], answer.headers.getall("Set-Cookie", [])


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_session_keeps_its_endpoint_among_several_backends(
    runner: Runner, tmp_path: Path
) -> None:
    """Persistence is "through the use of a header or cookie" (SessionPersistence.type)."""
    async with contextlib.AsyncExitStack() as stack:
        services = []
        for name in "ab":
            endpoints = [
                await stack.enter_async_context(backend(f"{name}{number}")) for number in (1, 2)
            ]
            services.append(service(name, *endpoints))
        objects = [CLASS, *services, route(RULES)]
        proxy = await stack.enter_async_context(serving_objects(runner, tmp_path, *objects))
        first: Counter[str] = Counter()
        for _ in range(16):
            endpoint, lines = await _visit(proxy, {})
            first[endpoint] += 1
            for line in lines:
                assert line.lower().count("httponly") == 1
                assert "path=/;" in f"{line.lower()};".replace(" ", "")
                assert "max-age=3600" in line.lower()
            cookies = {
                name: morsel.value for line in lines for name, morsel in SimpleCookie(line).items()
            }
            again = [await _visit(proxy, cookies) for _ in range(4)]
            assert {name for name, _ in again} == {endpoint}
        assert {endpoint[0] for endpoint in first} == {"a", "b"}


def with_own_sessions(gateway: GatewayConfiguration, kind: str) -> GatewayConfiguration:
    """Return a configuration whose backends have sessions of their own, as XBackends have."""
    (listener,) = gateway.listeners
    (host,) = (one for one in listener.virtual_hosts if one.routes)
    (only,) = host.routes
    assert isinstance(only.action, ir.Forward)
    backends = tuple(
        msgspec.structs.replace(one, persistence=ir.Persistence(kind, f"X-Own-{number}"))  # type: ignore[arg-type]
        for number, one in enumerate(only.action.backends)
    )
    action = msgspec.structs.replace(only.action, backends=backends, persistence=None)
    hosts = (msgspec.structs.replace(host, routes=(msgspec.structs.replace(only, action=action),)),)
    changed = msgspec.structs.replace(listener, virtual_hosts=hosts)
    return msgspec.structs.replace(gateway, listeners=(changed,))


@pytest.mark.process
@pytest.mark.parametrize("kind", ["cookie", "header"])
@pytest.mark.parametrize("runner", RUNNERS)
async def test_session_of_a_backend_selects_its_endpoint_and_not_the_backend(
    runner: Runner, tmp_path: Path, kind: str
) -> None:
    """ "Traffic splitting selects which backend receives the request based on configured weights,
    and session persistence then pins the client to a specific endpoint within the selected
    backend." (GEP-1619)"""
    async with contextlib.AsyncExitStack() as stack:
        services = []
        for name in "ab":
            endpoints = [
                await stack.enter_async_context(backend(f"{name}{number}")) for number in (1, 2, 3)
            ]
            services.append(service(name, *endpoints))
        rules = "- backendRefs: [{name: a, port: 80}, {name: b, port: 80}]"
        gateway = with_own_sessions(compiled_gateway(CLASS, *services, route(rules)), kind)
        proxy = await stack.enter_async_context(serving_configuration(runner, tmp_path, gateway))
        known: dict[str, str] = {}
        visited: list[str] = []
        for _ in range(40):
            sent = known if kind == "header" else {"Cookie": _cookie_header(known)}
            status, headers, echo = await proxy.send("/", **sent)
            assert status == 200
            visited.append(echo["service"])
            if kind == "header":
                known |= {name: text for name, text in headers.items() if name[:6] == "x-own-"}
            else:
                line = SimpleCookie(headers.get("set-cookie", ""))
                known |= {name: morsel.value for name, morsel in line.items()}
        assert len(known) == 2
        assert sorted({endpoint[0] for endpoint in visited}) == ["a", "b"]
        assert len({*visited}) == 2
        changes = sum(one[0] != two[0] for one, two in itertools.pairwise(visited))
        assert changes > 5


def _cookie_header(cookies: dict[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


def _session(**fields: object) -> ir.Persistence | None:
    rule = {"backendRefs": [BACKEND], "sessionPersistence": fields}
    with engine("HTTPRoute", [rule]).compile() as ask:
        (translated,) = routes(ask)
    assert isinstance(translated.action, ir.Forward)
    return translated.action.persistence


def test_fields_of_earlier_versions_mean_the_same() -> None:
    """ "Cookie provides configuration settings that are specific to cookie-based session
    persistence", as ``header`` does; up to v1.6 there was ``sessionName``."""
    cookie = {"name": "shop", "path": "/cart", "lifetimeType": "Permanent"}
    assert _session(cookie=cookie, absoluteTimeout="1h") == ir.Persistence(
        "cookie", "shop", 3600, "/cart"
    )
    assert _session(type="Header", header={"name": "X-Shop"}) == ir.Persistence("header", "X-Shop")
    assert _session(sessionName="shop") == ir.Persistence("cookie", "shop")


def test_timeout_that_the_gateway_must_track_is_kept_in_the_ir() -> None:
    """With the type Session, it is "the absolute lifetime of the cookie tracked by the gateway"
    (CookieConfig.lifetimeType). Back ends report it: see the golden case
    ``mirrors-cors-retries-and-sessions``."""
    session = _session(sessionName="shop", absoluteTimeout="1h")
    assert session == ir.Persistence("cookie", "shop", absolute_timeout=3600)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cookie": {"name": "a b"}}, "cookie.name: must be a valid cookie or header name"),
        ({"cookie": {"path": "/; Domain=x"}}, "cookie.path: '/; Domain=x' must be a path"),
        ({"type": "Header", "header": {"name": "X-A b"}}, "header.name: must be a valid"),
        ({"sessionName": "a b"}, "sessionName: must be a valid cookie or header name"),
        ({"sessionName": "a;b"}, "sessionName: must be a valid cookie or header name"),
        ({"type": "Header", "sessionName": ":path"}, "sessionName: must be a valid cookie or"),
        ({"absoluteTimeout": "1x"}, "absoluteTimeout: '1x' must be a duration"),
    ],
)
def test_invalid_fields_are_named(fields: dict[str, object], message: str) -> None:
    rule = {"backendRefs": [BACKEND], "sessionPersistence": fields}
    with engine("HTTPRoute", [rule]).compile() as ask:
        assert f"rules[0].sessionPersistence.{message}" in conditions(ask, "HTTPRoute")


POLICY_RULES = """
- matches: [{path: {type: PathPrefix, value: /first}}]
  backendRefs: [{name: a, port: 80}]
- matches: [{path: {type: PathPrefix, value: /second}}]
  backendRefs: [{name: a, port: 80}, {name: b, port: 80}]
"""


def policy(session: str) -> str:
    """Return an XBackendTrafficPolicy of the Service ``a``."""
    return f"""
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackendTrafficPolicy
metadata: {{name: p}}
spec:
  targetRefs: [{{group: '', kind: Service, name: a}}]
  sessionPersistence: {session}
"""


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_sessions_of_a_policy_differ_by_rule_and_keep_their_endpoint(
    runner: Runner, tmp_path: Path
) -> None:
    """The policy of one Service applies to all backends of a rule."""
    async with contextlib.AsyncExitStack() as stack:
        services = []
        for name in "ab":
            endpoints = [
                await stack.enter_async_context(backend(f"{name}{number}")) for number in (1, 2)
            ]
            services.append(service(name, *endpoints))
        objects = [CLASS, *services, route(POLICY_RULES), policy("{cookie: {name: shop}}")]
        proxy = await stack.enter_async_context(serving_objects(runner, tmp_path, *objects))
        cookies: dict[str, set[str]] = {}
        for path in ("first", "second"):
            for _ in range(6):
                endpoint, lines = await _visit(proxy, {}, path)
                own = {
                    name: morsel.value
                    for line in lines
                    for name, morsel in SimpleCookie(line).items()
                }
                assert all(name.startswith("shop-") for name in own)
                cookies.setdefault(path, set()).update(own)
                again = [await _visit(proxy, own, path) for _ in range(4)]
                assert {name for name, _ in again} == {endpoint}
        assert cookies["first"].isdisjoint(cookies["second"])
        # The cookie of one rule means nothing to the other.
        (first,) = cookies["first"]
        assert (await _visit(proxy, {first: "x"}, "second"))[1]


TOO_LONG = (
    "sessionPersistence.cookie.path is longer than 4000 bytes with its escapes in NGINX's syntax"
)


@pytest.mark.process
@pytest.mark.parametrize(
    ("runner", "session", "path"),
    [
        pytest.param(with_envoy, "{type: Header, header: {name: X-Session}}", "second", id="envoy"),
        pytest.param(
            functools.partial(NGINX, unsupported=(TOO_LONG,) * 2),
            "{cookie: {name: '$a', path: '" + "/$" * 512 + "'}}",
            "first",
            id="nginx",
        ),
    ],
)
async def test_route_is_served_without_the_session_of_a_policy_that_the_proxy_lacks(
    runner: Runner, session: str, path: str, tmp_path: Path
) -> None:
    """Envoy has no session in a header for several backends, and NGINX no cookie of this length.

    A rule with such a session of its own answers 500, because its author has asked for it.
    """
    async with contextlib.AsyncExitStack() as stack:
        services = [service(name, await stack.enter_async_context(backend(name))) for name in "ab"]
        objects = [CLASS, *services, route(POLICY_RULES), policy(session)]
        proxy = await stack.enter_async_context(serving_objects(runner, tmp_path, *objects))
        endpoint, lines = await _visit(proxy, {}, path)
        assert endpoint in ("a", "b")
        assert not lines
