"""Session persistence of rules and of XBackendTrafficPolicies, served by real proxies."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import AsyncIterator
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
from gatehouse.compiler.backends.nginx import session_persistence
from gatehouse.compiler.backends.sessions import unsupported_session
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.sessions import sessions_of
from gatehouse.dataplane.origin import Origin

COOKIE = "{type: Cookie, cookie: {name: shop, lifetimeType: Permanent}, absoluteTimeout: 1h}"
HEADER = "{type: Header, header: {name: X-Shop}}"
SPLIT = "backendRefs: [{name: a, port: 80, weight: 7}, {name: b, port: 80, weight: 3}]"
REPEATED = """backendRefs:
  - {name: a, port: 80, weight: 3}
  - {name: b, port: 80, weight: 3}
  - name: a
    port: 80
    weight: 4
    filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [X-A]}}]"""

VISITS = 300
EXPECTED = range(162, 259)
"""Visits of ``a``: 210 on average. Six standard deviations: a wrong result in 10^8 runs."""


class Client:
    """A client that returns the cookies and the headers of sessions as it got them last."""

    def __init__(self, proxy: Served) -> None:
        self._proxy = proxy
        self.cookies: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.lines: list[str] = []
        """All ``Set-Cookie`` of responses."""

    async def visit(self, path: str = "/") -> str:
        """Return the endpoint that answers."""
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(
                f"http://{self._proxy.address}:{PORT}{path}",
                cookies=self.cookies,
                headers=self.headers,
            ) as answer,
        ):
            assert answer.status == 200
            lines = answer.headers.getall("Set-Cookie", [])
            self.lines += lines
            for line in lines:
                self.cookies |= {name: one.value for name, one in SimpleCookie(line).items()}
            self.headers |= {
                name: text for name, text in answer.headers.items() if name.lower()[:6] == "x-shop"
            }
            return str((await answer.json())["service"])

    async def visits(self, path: str = "/", number: int = VISITS) -> list[str]:
        """Return the endpoints that answer."""
        return [await self.visit(path) for _ in range(number)]


@contextlib.asynccontextmanager
async def _services(endpoints: int = 3) -> AsyncIterator[list[str]]:
    """Yield the Services ``a`` and ``b`` with endpoints ``a0``, ``a1``, …, ``b0``, …."""
    async with contextlib.AsyncExitStack() as stack:
        result = []
        for name in "ab":
            own = [
                await stack.enter_async_context(backend(f"{name}{number}"))
                for number in range(endpoints)
            ]
            result.append(service(name, *own))
        yield result


def with_own_sessions(gateway: GatewayConfiguration, kind: str) -> GatewayConfiguration:
    """Return a configuration whose backends have sessions of their own, as XBackends have."""
    (listener,) = gateway.listeners
    (host,) = (one for one in listener.virtual_hosts if one.routes)
    (only,) = host.routes
    assert isinstance(only.action, ir.Forward)
    backends = tuple(
        msgspec.structs.replace(one, persistence=ir.Persistence(kind, f"X-Shop-{number}"))  # type: ignore[arg-type]
        for number, one in enumerate(only.action.backends)
    )
    action = msgspec.structs.replace(only.action, backends=backends)
    hosts = (msgspec.structs.replace(host, routes=(msgspec.structs.replace(only, action=action),)),)
    changed = msgspec.structs.replace(listener, virtual_hosts=hosts)
    return msgspec.structs.replace(gateway, listeners=(changed,))


def _of_rule(session: str, services: list[str], backends: str = SPLIT) -> GatewayConfiguration:
    rule = f"- {backends}\n  sessionPersistence: {session}"
    return compiled_gateway(CLASS, *services, route(rule))


def _of_policy(session: str, services: list[str]) -> GatewayConfiguration:
    return compiled_gateway(CLASS, *services, route(f"- {SPLIT}"), policy(session, "a", "b"))


def _of_backends(kind: str, services: list[str]) -> GatewayConfiguration:
    return with_own_sessions(compiled_gateway(CLASS, *services, route(f"- {SPLIT}")), kind)


SESSIONS = {
    "cookie-of-rule": functools.partial(_of_rule, COOKIE),
    "cookie-of-rule-with-repeated-backend": functools.partial(_of_rule, COOKIE, backends=REPEATED),
    "header-of-rule": functools.partial(_of_rule, HEADER),
    "cookie-of-policy": functools.partial(_of_policy, COOKIE),
    "cookies-of-backends": functools.partial(_of_backends, "cookie"),
    "headers-of-backends": functools.partial(_of_backends, "header"),
}


@pytest.mark.process
@pytest.mark.parametrize(
    ("runner", "sessions"),
    [
        pytest.param(*runner.values, sessions, id=f"{runner.id}-{sessions}")
        for runner in RUNNERS
        for sessions in SESSIONS
        if (runner.id, sessions) != ("envoy", "header-of-rule")
    ],
)
async def test_session_selects_an_endpoint_of_each_backend_and_weights_the_backend(
    runner: Runner, sessions: str, tmp_path: Path
) -> None:
    """ "Requests MUST respect weight distribution (~70/30 within statistical tolerance). Session
    persistence MUST NOT override backend selection." (GEP-1619, conformance tests)

    "If the same backend is selected, the session cookie routes the client to the same endpoint."
    """
    async with _services() as services:
        gateway = SESSIONS[sessions](services)
        async with serving_configuration(runner, tmp_path, gateway) as proxy:
            client = Client(proxy)
            visited = await client.visits()
            assert sum(endpoint[0] == "a" for endpoint in visited) in EXPECTED
            assert sorted(endpoint[0] for endpoint in {*visited}) == ["a", "b"]
            others = {await Client(proxy).visit() for _ in range(40)}
            assert len(others) > 2


@pytest.mark.process
async def test_envoy_knows_one_endpoint_of_a_session_in_a_header(tmp_path: Path) -> None:
    """A header contains one endpoint. The response of another backend replaces it: "If a different
    backend is selected, a new session is established within that backend." (GEP-1619)"""
    async with _services() as services:
        gateway = SESSIONS["header-of-rule"](services)
        async with serving_configuration(with_envoy, tmp_path, gateway) as proxy:
            visited = await Client(proxy).visits()
            assert sum(endpoint[0] == "a" for endpoint in visited) in EXPECTED
            changes = [(one, two) for one, two in itertools.pairwise(visited) if one != two]
            assert {(one[0], two[0]) for one, two in changes} == {("a", "b"), ("b", "a")}
            assert len({*visited}) > 2


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_session_of_an_only_backend_keeps_its_endpoint(
    runner: Runner, tmp_path: Path
) -> None:
    """Persistence is "through the use of a header or cookie" (SessionPersistence.type)."""
    rule = f"- backendRefs: [{{name: a, port: 80}}]\n  sessionPersistence: {COOKIE}"
    async with (
        _services() as services,
        serving_objects(runner, tmp_path, CLASS, *services, route(rule)) as proxy,
    ):
        first = set()
        for _ in range(16):
            client = Client(proxy)
            (endpoint,) = {*await client.visits(number=5)}
            first.add(endpoint)
            assert [*client.cookies] == ["shop"]
            (line,) = client.lines
            assert line.lower().count("httponly") == 1
            assert "path=/;" in f"{line.lower()};".replace(" ", "")
            assert "max-age=3600" in line.lower()
        assert len(first) > 1


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_second_backend_of_a_rule_ends_no_session_of_the_first(
    runner: Runner, tmp_path: Path
) -> None:
    """The first backend has the cookie of the name that the rule sets, alone or not: at the begin
    of a canary no client changes its endpoint."""
    only = f"""
- matches: [{{path: {{type: PathPrefix, value: /before}}}}]
  backendRefs: [{{name: a, port: 80}}]
  sessionPersistence: {COOKIE}
"""
    objects = f"{only}- {SPLIT}\n  sessionPersistence: {COOKIE}"
    async with (
        _services(endpoints=8) as services,
        serving_objects(runner, tmp_path, CLASS, *services, route(objects)) as proxy,
    ):
        client = Client(proxy)
        before = await client.visit("/before")
        visited = await client.visits(number=100)
        assert len({*visited}) == 2
        assert before in visited


def _session(**fields: object) -> ir.Persistence | None:
    rule = {"backendRefs": [BACKEND], "sessionPersistence": fields}
    with engine("HTTPRoute", [rule]).compile() as ask:
        (translated,) = routes(ask)
    assert isinstance(translated.action, ir.Forward)
    return translated.action.backends[0].persistence


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


def policy(session: str, *services: str) -> str:
    """Return an XBackendTrafficPolicy of Services, by default ``a``."""
    targets = ", ".join(f"{{group: '', kind: Service, name: {one}}}" for one in services or "a")
    return f"""
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackendTrafficPolicy
metadata: {{name: p}}
spec:
  targetRefs: [{targets}]
  sessionPersistence: {session}
"""


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_sessions_of_a_policy_differ_by_rule_and_keep_their_endpoint(
    runner: Runner, tmp_path: Path
) -> None:
    objects = (CLASS, route(POLICY_RULES), policy("{cookie: {name: shop}}", "a", "b"))
    async with (
        _services() as services,
        serving_objects(runner, tmp_path, *objects, *services) as proxy,
    ):
        first, second = Client(proxy), Client(proxy)
        assert len({*await first.visits("/first", 20)}) == 1
        assert sorted(one[0] for one in {*await second.visits("/second", 40)}) == ["a", "b"]
        assert all(name.startswith("shop-") for name in (*first.cookies, *second.cookies))
        # The cookie of one rule means nothing to the other.
        assert first.cookies.keys().isdisjoint(second.cookies)
        (own,) = first.cookies
        second.cookies, second.lines = {own: "x"}, []
        await second.visit("/second")
        assert second.lines


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("session", ["{cookie: {name: shop}}", HEADER], ids=["cookie", "header"])
async def test_policy_of_one_service_keeps_no_endpoint_of_another(
    runner: Runner, session: str, tmp_path: Path
) -> None:
    objects = (CLASS, route(POLICY_RULES), policy(session))
    async with (
        _services() as services,
        serving_objects(runner, tmp_path, *objects, *services) as proxy,
    ):
        clients = [Client(proxy) for _ in range(20)]
        for client in clients:
            first = await client.visit("/second")
            begun = bool(client.lines or client.headers)
            assert begun == (first[0] == "a"), "only the Service of the policy begins a session"
        visited = {*await clients[0].visits("/second", 100)}
        assert len([endpoint for endpoint in visited if endpoint[0] == "a"]) == 1
        assert len([endpoint for endpoint in visited if endpoint[0] == "b"]) == 3


FIRST = Origin("XBackendTrafficPolicy", "ns", "p", "sessionPersistence")
SECOND = Origin("XBackendTrafficPolicy", "ns", "q", "sessionPersistence")


def _route_with(*sessions: ir.Persistence | None) -> ir.Route:
    """Return a route with a backend for each session persistence."""
    backends = [ir.Backend(f"c{n}", persistence=session) for n, session in enumerate(sessions)]
    return ir.Route("r", action=ir.Forward(tuple(backends)))


def test_nginx_serves_the_other_sessions_of_a_route_if_it_lacks_one() -> None:
    own = ir.Persistence("cookie", "own")
    good = ir.Persistence("cookie", "shop", origin=FIRST)
    bad = ir.Persistence("header", "X_Shop", origin=SECOND)
    host = ir.VirtualHost("a.example", (_route_with(own, bad, good, bad),))
    served, unsupported = session_persistence.served_host(host)
    assert sessions_of(served.routes[0].action) == (own, None, good, None)
    assert [one.setting for one in unsupported] == [SECOND]


def test_timeout_that_a_proxy_must_track_is_reported_for_each_policy() -> None:
    timeouts = [
        ir.Persistence("cookie", "shop", absolute_timeout=9, origin=origin)
        for origin in (FIRST, SECOND, FIRST)
    ]
    settings = unsupported_session(_route_with(*timeouts, None).action)
    assert [one.setting for one in settings] == [
        origin.field("absoluteTimeout") for origin in (FIRST, SECOND)
    ]


TOO_LONG = (
    "sessionPersistence.cookie.path is longer than 4000 bytes with its escapes in NGINX's syntax"
)


@pytest.mark.process
async def test_route_is_served_without_the_session_of_a_policy_that_nginx_lacks(
    tmp_path: Path,
) -> None:
    """NGINX has no cookie of this length, and Envoy has every session of a policy.

    A rule with such a session of its own answers 500, because its author has asked for it.
    """
    runner = functools.partial(NGINX, unsupported=(TOO_LONG,) * 2)
    session = "{cookie: {name: '$a', path: '" + "/$" * 512 + "'}}"
    async with (
        _services() as services,
        serving_objects(
            runner, tmp_path, CLASS, *services, route(POLICY_RULES), policy(session)
        ) as proxy,
    ):
        client = Client(proxy)
        for path in ("/first", "/second"):
            assert (await client.visit(path))[0] in "ab"
        assert not client.lines
