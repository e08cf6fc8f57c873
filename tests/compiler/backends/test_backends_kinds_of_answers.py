"""Features of routes hold for every kind of answer: none can skip a check."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from differential.proxies import Runner
from fakes import authorization_servers
from fakes.authorized_traffic import NGINX, RUNNERS, Served, values
from fakes.envoy_serving import backend, host, plain
from fakes.kinds_of_answers import KINDS_OF_ANSWERS, gateway_of_kinds
from fakes.logged_gateways import PROXIES, logged
from fakes.loopback import loopback_network
from gatehouse.compiler.backends.nginx import features
from gatehouse.compiler.backends.nginx.directives import block, simple_directive
from gatehouse.compiler.backends.nginx.features import NGINX_ROUTE_FEATURES
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.backends.route_features import Phase, RouteFeature, RouteFeatures
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic, ClientNetworks, ExternalAuth
from gatehouse.compiler.ir.settings import (
    Attribute,
    ClientSettings,
    RateLimit,
    RateLimits,
    Settings,
)

replace = msgspec.structs.replace

USERS = ir_gateway.SecretFile(
    "users", ir_gateway.SecretBytes(b"me:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n")
)
AUTHORIZATION = {"Authorization": "Basic bWU6dGVzdA=="}


@contextlib.asynccontextmanager
async def answering(
    runner: Runner,
    directory: Path,
    change: Callable[[ir.Route], ir.Route] = lambda route: route,
    **more: Any,
) -> AsyncIterator[Served]:
    """Serve a route of each kind."""
    async with backend("s") as endpoint:
        address = f"{loopback_network()}.1"
        gateway = gateway_of_kinds(endpoint, change, bind_address=address, **more)
        async with runner(gateway, directory):
            yield Served(address)


async def statuses(proxy: Served, *arguments: Any, **headers: str) -> dict[str, int]:
    """Return the status of the second request to each kind."""
    result = {}
    for name in KINDS_OF_ANSWERS:
        for _ in range(2):
            result[name] = (await proxy.send(f"/{name}/x", *arguments, **headers))[0]
    return result


def each(status: int) -> dict[str, int]:
    """Return the same status for each kind."""
    return dict.fromkeys(KINDS_OF_ANSWERS, status)


def test_features_of_nginx_are_in_the_order_of_their_phases() -> None:
    phases = [feature.phase for feature in NGINX_ROUTE_FEATURES.records]
    assert phases == sorted(phases)
    names = [feature.name for feature in NGINX_ROUTE_FEATURES.records]
    assert len(set(names)) == len(names) > 10


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_each_kind_has_its_status_without_checks(runner: Runner, tmp_path: Path) -> None:
    async with answering(runner, tmp_path) as proxy:
        for name, status in (await statuses(proxy)).items():
            assert status in KINDS_OF_ANSWERS[name].statuses, name


_DENIED = "/.test-denied"
_CHECK = (simple_directive("auth_request", _DENIED),)
_DENIAL = block(
    "location",
    ("=", _DENIED),
    (simple_directive("internal"), simple_directive("return", "403")),
)

REJECTIONS = {
    "return": (Phase.LIMITS, RoutePiece(rejections=(simple_directive("return", "451"),)), 451),
    "access": (Phase.AUTHENTICATION, RoutePiece(checks=(simple_directive("deny", "all"),)), 403),
    "login": (Phase.AUTHENTICATION, RoutePiece(login=_CHECK, subrequests=(_DENIAL,)), 403),
    "server": (Phase.AUTHORIZATION, RoutePiece(authorization=_CHECK, subrequests=(_DENIAL,)), 403),
    "snippet": (Phase.BACKEND, RoutePiece(snippets=(simple_directive("deny", "all"),)), 403),
}
"""Pieces that reject all requests, by the way in which they do: phase, piece and status."""


@pytest.mark.process
@pytest.mark.parametrize("way", REJECTIONS)
@pytest.mark.parametrize("name", ["alone", "with authentication"])
async def test_feature_that_rejects_everything_rejects_every_kind_of_answer(
    way: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase, piece, status = REJECTIONS[way]
    feature: RouteFeature[NginxRouteContext, RoutePiece] = RouteFeature(
        "rejection", phase, lambda _context, _route: piece
    )
    listed = sorted((*NGINX_ROUTE_FEATURES.records, feature), key=lambda feature: feature.phase)
    monkeypatch.setattr(features, "NGINX_ROUTE_FEATURES", RouteFeatures(listed))
    authentication = None if name == "alone" else Basic("realm", "users")

    def change(route: ir.Route) -> ir.Route:
        return replace(route, authentication=authentication)

    async with answering(NGINX, tmp_path, change, secrets=(USERS,)) as proxy:
        assert await statuses(proxy, **AUTHORIZATION) == each(status)


LIMIT = RateLimit("ns/p/0", (Attribute("binary_remote_addr"),), 1, "minute", 1 << 20)
LIMITED = Settings(rates=RateLimits((LIMIT,), status=429))
SHORT = Settings(client=ClientSettings(body_size=10))
CORS = ir.Cors(("https://app.example",), methods=("GET",))
CALL, UNAUTHENTICATED, DENIED = "application/grpc", "16", "7"
PREFLIGHT = {"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_every_kind_of_answer_is_for_clients_with_permitted_addresses(
    runner: Runner, tmp_path: Path
) -> None:
    own = ("127.0.0.0/8",)
    for number, (networks, is_served) in enumerate(
        (
            (ClientNetworks(allow=own), True),
            (ClientNetworks(allow=own, deny=own), False),
            (ClientNetworks(allow=("2001:db8::/32",)), False),
        )
    ):

        def change(route: ir.Route, networks: ClientNetworks = networks) -> ir.Route:
            return replace(route, client_addresses=networks)

        directory = tmp_path / str(number)
        directory.mkdir()
        async with answering(runner, directory, change) as proxy:
            for name, status in (await statuses(proxy)).items():
                permitted = KINDS_OF_ANSWERS[name].statuses
                assert status in (permitted if is_served else {403}), (networks, name)


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_every_kind_of_answer_needs_credentials(runner: Runner, tmp_path: Path) -> None:
    def change(route: ir.Route) -> ir.Route:
        return replace(route, authentication=Basic("realm", "users"), cors=CORS)

    async with answering(runner, tmp_path, change, secrets=(USERS,)) as proxy:
        assert await statuses(proxy) == each(401)
        for name, status in (await statuses(proxy, **AUTHORIZATION)).items():
            assert status in KINDS_OF_ANSWERS[name].statuses, name
        for name in KINDS_OF_ANSWERS:
            status, headers, _ = await proxy.send(f"/{name}", "OPTIONS", **PREFLIGHT)
            assert status in (200, 204), name
            assert headers["access-control-allow-origin"] == "https://app.example", name


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_every_kind_of_answer_to_calls_has_a_status_of_grpc_without_credentials(
    runner: Runner, tmp_path: Path
) -> None:
    def change(route: ir.Route) -> ir.Route:
        return replace(route, authentication=Basic("realm", "users"))

    async with answering(runner, tmp_path, change, secrets=(USERS,)) as proxy:
        for name in (name for name, kind in KINDS_OF_ANSWERS.items() if kind.is_call):
            status, headers, _ = await proxy.send(f"/{name}", **{"Content-Type": CALL})
            assert (status, headers["grpc-status"]) == (200, UNAUTHENTICATED), name


@pytest.mark.process
@pytest.mark.parametrize("proxy", PROXIES)
async def test_log_has_the_reason_of_the_check_for_every_kind_of_answer(proxy: str) -> None:
    def change(route: ir.Route) -> ir.Route:
        return replace(route, authentication=Basic("realm", "users"))

    async with backend("s") as endpoint:
        gateway = gateway_of_kinds(endpoint, change, secrets=(USERS,))
        async with logged(proxy, gateway) as log:
            for name in KINDS_OF_ANSWERS:
                await Served(log.address).send(f"/{name}/once")
                entry = await log.entry(path=f"/{name}/once")
                expected = (f"ns/{name}/0", "authentication")
                assert (entry["route"], entry["reason"]) == expected


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    ("settings", "status"), [(LIMITED, 429), (SHORT, 413)], ids=["rate", "body"]
)
async def test_every_kind_of_answer_is_limited(
    runner: Runner, settings: Settings, status: int, tmp_path: Path
) -> None:
    def change(route: ir.Route) -> ir.Route:
        return replace(route, settings=settings)

    async with answering(runner, tmp_path, change) as proxy:
        assert await statuses(proxy, "POST", b"x" * 11) == each(status)


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_every_kind_of_answer_needs_the_permission_of_the_authorization_server(
    runner: Runner, tmp_path: Path
) -> None:
    auth = ExternalAuth(cluster="auth", protocol="http", response_headers=("x-user",))

    def change(route: ir.Route) -> ir.Route:
        return replace(route, external_auth=auth)

    async with authorization_servers.http_server() as server:
        cluster = ir.Cluster("auth", (ir.Endpoint("127.0.0.1", server.port),))
        async with answering(runner, tmp_path, change, clusters=(cluster,)) as proxy:
            for name in KINDS_OF_ANSWERS:
                assert (await proxy.send(f"/{name}?status=403"))[0] == 403, name
                permitted = (await proxy.send(f"/{name}"))[0]
                assert permitted in KINDS_OF_ANSWERS[name].statuses, name
        assert len(server.checks) == 2 * len(KINDS_OF_ANSWERS)


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_addresses_are_checked_before_the_server_and_this_before_credentials(
    runner: Runner, tmp_path: Path
) -> None:
    auth = ExternalAuth(cluster="auth", protocol="http", response_headers=("x-user",))
    basic, edit = Basic("realm", "users"), ir.HeaderEdit(set=(ir.HeaderValue("x-own", "a"),))
    own = ("127.0.0.0/8",)
    async with authorization_servers.http_server() as server:
        cluster = ir.Cluster("auth", (ir.Endpoint("127.0.0.1", server.port),))

        def behind(networks: ClientNetworks) -> AbstractAsyncContextManager[Served]:
            def change(route: ir.Route) -> ir.Route:
                checked = replace(route, external_auth=auth, client_addresses=networks)
                return replace(checked, authentication=basic, response_headers=edit)

            directory = tmp_path / ("denied" if networks.deny else "permitted")
            directory.mkdir()
            return answering(runner, directory, change, clusters=(cluster,), secrets=(USERS,))

        async with behind(ClientNetworks(deny=own)) as proxy:
            assert await statuses(proxy, **AUTHORIZATION) == each(403)
            _, headers, _ = await proxy.send("/forwarded")
            assert headers["x-own"] == "a"
            # The server does not learn of clients with other addresses.
            assert not server.checks
        async with behind(ClientNetworks(allow=own)) as proxy:
            for name, kind in KINDS_OF_ANSWERS.items():
                assert (await proxy.send(f"/{name}?status=404"))[0] == 404, name
                assert (await proxy.send(f"/{name}"))[0] == 401, name
                assert (await proxy.send(f"/{name}", **AUTHORIZATION))[0] in kind.statuses, name
            assert len(server.checks) == 3 * len(KINDS_OF_ANSWERS)


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_calls_from_other_addresses_have_a_status_of_grpc_before_the_server(
    runner: Runner, tmp_path: Path
) -> None:
    auth = ExternalAuth(cluster="auth", protocol="http", response_headers=("x-user",))
    other = ClientNetworks(deny=("127.0.0.0/8",))

    def change(route: ir.Route) -> ir.Route:
        return replace(route, external_auth=auth, client_addresses=other)

    cluster = ir.Cluster("auth", ())
    async with answering(runner, tmp_path, change, clusters=(cluster,)) as proxy:
        for name in (name for name, kind in KINDS_OF_ANSWERS.items() if kind.is_call):
            status, headers, _ = await proxy.send(f"/{name}", **{"Content-Type": CALL})
            assert (status, headers["grpc-status"]) == (200, DENIED), name


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_shares_of_one_backend_keep_their_own_headers_after_a_check(
    runner: Runner, tmp_path: Path
) -> None:
    def tagged(value: str) -> ir.Backend:
        return ir.Backend("s", request_headers=ir.HeaderEdit(set=(ir.HeaderValue("x-tag", value),)))

    auth = ExternalAuth(cluster="auth", protocol="http", response_headers=("x-user",))
    action = ir.Forward((tagged("a"), tagged("b")))
    route = ir.Route("ns/r/0/0", ir.Match(), action, external_auth=auth)
    async with authorization_servers.http_server() as server, backend("s") as endpoint:
        authority = ir.Cluster("auth", (ir.Endpoint("127.0.0.1", server.port),))
        clusters = [authority, ir.Cluster("s", (endpoint,))]
        address = f"{loopback_network()}.1"
        gateway = plain([host("a.example", route)], clusters, bind_address=address)
        async with runner(gateway, tmp_path):
            proxy = Served(address)
            echoes = [(await proxy.send("/"))[2] for _ in range(64)]
    assert {value for echo in echoes for value in values(echo, "x-tag")} == {"a", "b"}
