"""Keys of clients, as requests meet them on each proxy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from differential.proxies import PORT, Runner
from fakes import authorization_servers, patience
from fakes.authorized_traffic import RUNNERS, Served, values
from fakes.envoy_serving import backend, host, listening, plain, route_to
from fakes.kinds_of_answers import KINDS_OF_ANSWERS, gateway_of_kinds
from fakes.logged_gateways import PROXIES, logged
from fakes.loopback import loopback_network
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.backends.nginx.api_keys import client_rows
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import ApiKeys, ExternalAuth, KeySource
from gatehouse.compiler.ir.gateway import ApiKeyFile, SecretBytes

MODULE = "http_auth_request_module"
FILE = ApiKeyFile("keys", SecretBytes(b"alice:aB+/=c\nbob:plain\nbob:~Default.1\n"))
HEADER = KeySource("header", "X-Key")
PARAM = KeySource("query", "api-key")
COOKIE = KeySource("cookie", "sess")
KEYS = ApiKeys(keys="keys", sources=(HEADER, PARAM, COOKIE), client_header="X-Client")


@contextlib.asynccontextmanager
async def serving(
    runner: Runner,
    directory: Path,
    keys: ApiKeys = KEYS,
    clusters: tuple[ir.Cluster, ...] = (),
    **more: Any,
) -> AsyncIterator[Served]:
    """Serve a route whose requests need a key. ``more``: fields of the route and its action."""
    async with backend("s") as endpoint:
        address = f"{loopback_network()}.1"
        route = route_to("s", authentication=keys, **more)
        cluster = ir.Cluster("s", (endpoint,))
        gateway = plain(
            [host("a.example", route)], [*clusters, cluster], bind_address=address, secrets=(FILE,)
        )
        async with runner(gateway, directory):
            yield Served(address)


async def refused(proxy: Served, target: str = "/a", **headers: str) -> bool:
    return (await proxy.send(target, **headers))[0] == 401


async def client(proxy: Served, target: str = "/a", **headers: str) -> str:
    """Return the client that the backend learns."""
    status, _, echo = await proxy.send(target, **headers)
    assert status == 200, (target, headers)
    [name] = values(echo, "x-client")
    return str(name)


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_key_of_each_place_belongs_to_a_client(runner: Runner, tmp_path: Path) -> None:
    async with serving(runner, tmp_path) as proxy:
        for sent, name in (
            ({"X-Key": "aB+/=c"}, "alice"),
            ({"X-Key": "Bearer aB+/=c"}, "alice"),
            ({"X-Key": "plain", "X-Client": "alice"}, "bob"),
            ({"X-Key": "~Default.1"}, "bob"),
            ({"Cookie": "a=1;sess=plain; b=2"}, "bob"),
            ({"Cookie": 'sess="aB+/=c"'}, "alice"),
        ):
            assert await client(proxy, **sent) == name
        for query, name in (
            ("api-key=plain", "bob"),
            ("a=1&api-key=aB+/=c", "alice"),
            ("api-key=aB%2B%2f%3Dc&b", "alice"),
            ("api-key=~Default.1", "bob"),
        ):
            assert await client(proxy, f"/a?{query}") == name


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_other_requests_get_401(runner: Runner, tmp_path: Path) -> None:
    async with serving(runner, tmp_path) as proxy:
        status, headers, _ = await proxy.send("/a")
        assert (status, headers["www-authenticate"]) == (401, "ApiKey")
        long = "p" * 5000
        for key in (
            "",
            "bad",
            "Plain",
            "plain2",
            "xplain",
            "plai.",
            "bob",
            "bob:plain",
            "=plain",
            "?plain",
            "default",
            "Bearer",
            "bearer plain",
            "~^.*",
            "plain plain",
            long,
        ):
            assert await refused(proxy, **{"X-Key": key}), key
            assert await refused(proxy, Cookie=f"sess={key}"), key
        for query in (
            "api-key=",
            "api-key",
            "API-KEY=plain",
            "xapi-key=plain",
            "api-key=Plain",
            "api-key=plain+",
            "api-key=%",
            "api-key=%70",
            f"api-key={long}",
        ):
            assert await refused(proxy, f"/a?{query}"), query
        for cookies in (
            "SESS=plain",
            "%73ess=plain",
            "xsess=plain",
            "sess=Bearer plain",
            "a=sess=plain",
        ):
            assert await refused(proxy, Cookie=cookies), cookies
        assert await refused(proxy, "/api-key=plain")


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_first_place_with_a_key_decides(runner: Runner, tmp_path: Path) -> None:
    async with serving(runner, tmp_path) as proxy:
        assert await client(proxy, "/a?api-key=bad", **{"X-Key": "plain"}) == "bob"
        assert await refused(proxy, "/a?api-key=plain", **{"X-Key": "bad"})
        assert await client(proxy, "/a?api-key=plain", Cookie="sess=bad") == "bob"
        assert await refused(proxy, "/a?api-key=bad", Cookie="sess=plain")


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_backend_gets_no_key_and_the_rest_as_the_client_sent_it(
    runner: Runner, tmp_path: Path
) -> None:
    async with serving(runner, tmp_path) as proxy:
        sent = {"X-Key": "plain", "Cookie": "a=1; sess=bad; b=x=y"}
        status, _, echo = await proxy.send("/a%20b?x=%0d%0aX:%20y&api-key=bad&y=%2B+1&z", **sent)
        assert status == 200
        assert echo["target"] == "/a%20b?x=%0d%0aX:%20y&y=%2B+1&z"
        assert values(echo, "x-key") == []
        assert values(echo, "cookie") == ["a=1; b=x=y"]
        for query, rest in (
            ("api-key=plain", ""),
            ("a=1&api-key=plain", "?a=1"),
            ("api-key=plain&a=%26api-key=2", "?a=%26api-key=2"),
            ("apixkey=1&api-key=plain&xapi-key=2&api-key2=3", "?apixkey=1&xapi-key=2&api-key2=3"),
        ):
            _, _, echo = await proxy.send(f"/a?{query}")
            assert echo["target"] == f"/a{rest}"
        _, _, echo = await proxy.send("/a%20b", Cookie="sess=plain")
        assert (echo["target"], values(echo, "cookie")) == ("/a%20b", [])


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_copy_of_a_request_has_no_key_either(runner: Runner, tmp_path: Path) -> None:
    received: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        received.put_nowait((target.split(" ")[1], [line.lower() for line in headers]))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with listening(answer) as copies:
        cluster = ir.Cluster("copies", (copies,))
        mirrors = (ir.Mirror("copies"),)
        async with serving(runner, tmp_path, clusters=(cluster,), mirrors=mirrors) as proxy:
            sent = {"Cookie": "sess=bad; a=1", "X-Client": "forged"}
            assert (await proxy.send("/a%20b?x=%26&api-key=plain", **sent))[0] == 200
            async with patience.limit():
                target, headers = await received.get()
    assert target == "/a%20b?x=%26"
    assert sorted(line for line in headers if "cookie" in line or "client" in line) == [
        "cookie: a=1",
        "x-client: bob",
    ]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_places_may_have_long_names(runner: Runner, tmp_path: Path) -> None:
    names = [f"{number}{'~.-' * 21}" for number in range(4)]
    sources = (
        *(KeySource("query", name) for name in names),
        *(KeySource("cookie", name) for name in names),
    )
    async with serving(runner, tmp_path, msgspec.structs.replace(KEYS, sources=sources)) as proxy:
        for name in names:
            status, _, echo = await proxy.send(f"/a?{name}=plain&b", Cookie=f"{name}=x; a=1")
            assert (status, echo["target"], values(echo, "cookie")) == (200, "/a?b", ["a=1"])
            assert await client(proxy, Cookie=f"{name}=plain") == "bob"


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_request_stays_on_its_route_without_its_key_and_with_its_client(
    runner: Runner, tmp_path: Path
) -> None:
    def to(service: str, *headers: tuple[str, str]) -> ir.Route:
        match = ir.Match(headers=tuple(ir.ValueMatch(*header) for header in headers))
        route = route_to(service, f"ns/{service}/0/0", authentication=KEYS)
        return msgspec.structs.replace(route, match=match)

    routes = (
        to("guest", ("x-client", "guest"), ("x-key", "plain")),
        to("bob", ("x-client", "bob")),
        to("other"),
    )
    async with backend("guests") as guests, backend("others") as others:
        endpoints = {"bob": others, "guest": guests, "other": others}
        clusters = [ir.Cluster(name, (endpoint,)) for name, endpoint in endpoints.items()]
        address = f"{loopback_network()}.1"
        gateway = plain(
            [host("a.example", *routes)], clusters, bind_address=address, secrets=(FILE,)
        )
        async with runner(gateway, tmp_path):
            sent = {"X-Client": "guest", "X-Key": "plain"}
            status, _, echo = await Served(address).send("/a", **sent)
            assert (status, echo["service"]) == (200, "guests")
            assert (values(echo, "x-client"), values(echo, "x-key")) == (["bob"], [])


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_no_second_key_reaches_the_backend(runner: Runner, tmp_path: Path) -> None:
    async with serving(runner, tmp_path) as proxy:
        for target, cookies in (
            ("/a?api-key=plain&api-key=second", "a=1"),
            ("/a?api%2Dkey=second&api-key=plain&api-key=third", "a=1"),
            ("/a?api-key=plain", "sess=second; sess=third; a=1"),
        ):
            # Envoy removes each, NGINX rejects the request.
            status, _, echo = await proxy.send(target, Cookie=cookies)
            assert status in (200, 401)
            if status == 200:
                assert echo["target"] == "/a"
                assert values(echo, "cookie") == ["a=1"]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_rejection_of_a_second_key_names_the_scheme(runner: Runner, tmp_path: Path) -> None:
    async with serving(runner, tmp_path) as proxy:
        for target, sent in (
            ("/a?api-key=bad&api-key=plain", {}),
            ("/a?api-key=plain&api-key=second", {"X-Key": "plain"}),
        ):
            status, headers, _ = await proxy.send(target, **sent)
            assert headers.get("www-authenticate") == ("ApiKey" if status == 401 else None)


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_denial_by_a_server_has_its_own_challenge_only(
    runner: Runner, tmp_path: Path
) -> None:
    auth = ExternalAuth(cluster="auth", protocol="http", response_headers=("x-user",))
    async with authorization_servers.http_server() as server:
        cluster = ir.Cluster("auth", (ir.Endpoint("127.0.0.1", server.port),))
        async with (
            serving(runner, tmp_path, clusters=(cluster,), external_auth=auth) as proxy,
            aiohttp.ClientSession(f"http://{proxy.address}:{PORT}") as session,
        ):
            for path, challenge in (("/a?status=401", "Bearer realm=x"), ("/a", "ApiKey")):
                async with session.get(path, headers={"Host": "a.example"}) as response:
                    challenges = {*response.headers.getall("WWW-Authenticate")}
                    assert (response.status, challenges) == (401, {challenge})


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_challenge_of_a_backend_stays(runner: Runner, tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1]
        challenge = 'WWW-Authenticate: Digest realm="own"\r\n' if target == "/own" else ""
        end = "Connection: close\r\nContent-Length: 0\r\n\r\n"
        writer.write(f"HTTP/1.1 401 Unauthorized\r\n{challenge}{end}".encode())
        writer.close()

    async with listening(answer) as endpoint:
        address = f"{loopback_network()}.1"
        hosts = [host("a.example", route_to("s", authentication=KEYS))]
        clusters = [ir.Cluster("s", (endpoint,))]
        gateway = plain(hosts, clusters, bind_address=address, secrets=(FILE,))
        async with runner(gateway, tmp_path):
            for path, challenge in (("/own", 'Digest realm="own"'), ("/none", None)):
                status, headers, _ = await Served(address).send(path, **{"X-Key": "plain"})
                assert (status, headers.get("www-authenticate")) == (401, challenge)


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_backend_gets_the_key_if_the_policy_says_so(runner: Runner, tmp_path: Path) -> None:
    unchanged = msgspec.structs.replace(KEYS, sanitize=False, client_header="")
    async with serving(runner, tmp_path, unchanged) as proxy:
        sent = {"X-Key": "plain", "Cookie": "sess=a; b=2", "X-Client": "own"}
        _, _, echo = await proxy.send("/a?api-key=1&b=2", **sent)
        assert echo["target"] == "/a?api-key=1&b=2"
        assert {name: values(echo, name) for name in ("x-key", "cookie", "x-client")} == {
            "x-key": ["plain"],
            "cookie": ["sess=a; b=2"],
            "x-client": ["own"],
        }


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_backend_may_have_a_key_of_its_own(runner: Runner, tmp_path: Path) -> None:
    own = ir.HeaderEdit(set=(ir.HeaderValue("X-Key", "own"),))
    rewrite = ir.Rewrite(path=ir.PrefixPath("/new"))
    async with serving(runner, tmp_path, request_headers=own, rewrite=rewrite) as proxy:
        _, _, echo = await proxy.send("/a?api-key=plain&b", **{"X-Client": "forged"})
        assert echo["target"] == "/new/a?b"
        assert values(echo, "x-key") == ["own"]
        assert values(echo, "x-client") == ["bob"]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_every_kind_of_answer_needs_a_key(runner: Runner, tmp_path: Path) -> None:
    def change(route: ir.Route) -> ir.Route:
        return msgspec.structs.replace(route, authentication=KEYS)

    async with backend("s") as endpoint:
        address = f"{loopback_network()}.1"
        gateway = gateway_of_kinds(endpoint, change, bind_address=address, secrets=(FILE,))
        async with runner(gateway, tmp_path):
            proxy = Served(address)
            for name, kind in KINDS_OF_ANSWERS.items():
                status, headers, _ = await proxy.send(f"/{name}/x")
                assert status == 401, name
                if not kind.is_call:
                    assert headers["www-authenticate"] == "ApiKey", name
                for target, sent in (
                    (f"/{name}/x", {"X-Key": "plain"}),
                    (f"/{name}/x?api-key=plain", {}),
                ):
                    assert (await proxy.send(target, **sent))[0] in kind.statuses, name
                if kind.is_call:
                    call = {"Content-Type": "application/grpc"}
                    status, headers, _ = await proxy.send(f"/{name}/x", **call)
                    assert (status, headers["grpc-status"]) == (200, "16"), name


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_rejection_has_the_headers_of_the_route_whatever_would_answer(
    runner: Runner, tmp_path: Path
) -> None:
    edit = ir.HeaderEdit(set=(ir.HeaderValue("X-Frame-Options", "DENY"),))
    kinds = {name: kind for name, kind in KINDS_OF_ANSWERS.items() if not kind.is_call}

    def change(route: ir.Route) -> ir.Route:
        return msgspec.structs.replace(route, authentication=KEYS, response_headers=edit)

    async with backend("s") as endpoint:
        address = f"{loopback_network()}.1"
        gateway = gateway_of_kinds(endpoint, change, bind_address=address, secrets=(FILE,))
        async with runner(gateway, tmp_path):
            proxy = Served(address)
            for name, kind in kinds.items():
                for sent, answers in (({}, (401,)), ({"X-Key": "plain"}, kind.statuses)):
                    status, headers, _ = await proxy.send(f"/{name}/x", **sent)
                    assert status in answers, name
                    assert headers.get("x-frame-options") == "DENY", name


@pytest.mark.process
@pytest.mark.parametrize("proxy", PROXIES)
async def test_log_says_that_the_key_is_the_reason_and_has_no_key(proxy: str) -> None:
    def change(route: ir.Route) -> ir.Route:
        return msgspec.structs.replace(route, authentication=KEYS)

    async with (
        backend("s") as endpoint,
        logged(
            proxy, gateway_of_kinds(endpoint, change, secrets=(FILE,)), modules=(MODULE,)
        ) as log,
    ):
        await Served(log.address).send("/forwarded/once?api-key=hidden")
        entry = await log.entry(path="/forwarded/once")
        assert (entry["status"], entry["reason"]) == (401, "authentication")
        assert "hidden" not in str(entry)


def test_keys_are_patterns_of_whole_texts_in_a_secret_file() -> None:
    rows = client_rows(FILE).splitlines()
    assert rows[1] == r'"~^(?:=(?:Bearer )?plain|\\?plain)\\z" "bob";'
    gateway = plain(
        [host("a.example", route_to("s", authentication=KEYS))],
        [ir.Cluster("s", (ir.Endpoint("127.0.0.1", 9),))],
        secrets=(FILE,),
    )
    capabilities = nginx.NginxCapabilities.parse("1.31.3", (MODULE,))
    files = nginx.NginxGenerator(capabilities).generate(gateway).file_set.files
    assert {path for path, file in files.items() if b"plain" in file.content} == {
        "gatehouse/secrets/keys"
    }
    assert files["gatehouse/secrets/keys"].secret


def test_nginx_without_the_module_serves_no_request_without_a_check() -> None:
    gateway = plain(
        [host("a.example", route_to("s", authentication=KEYS))],
        [ir.Cluster("s", (ir.Endpoint("127.0.0.1", 9),))],
        secrets=(FILE,),
    )
    generated = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3", ())).generate(gateway)
    [reason] = [one.reason for one in generated.unsupported]
    assert f"apiKeys: requires an NGINX with {MODULE}" in reason
    [server] = [
        file.content
        for path, file in generated.file_set.files.items()
        if path.startswith("gatehouse/servers/80") and b"a.example" in file.content
    ]
    assert b"proxy_pass" not in server
    assert b"return 500" in server
