"""The fake of NGINX Plus is as its documentation says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.agent_control_plane import write_certificate
from fakes.nginx_plus import FakePlus, Fault, Keyval, Plus, Upstream

SERVERS = "/9/http/upstreams/u/servers"


class Client:
    """Requests to one API."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session, self._base = session, base

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self._session.request(method, self._base + path, json=body) as answer:
            json = answer.content_type == "application/json" and answer.status != 204
            return answer.status, await answer.json() if json else await answer.text()

    async def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        status, answer = await self.ask(method, path, body)
        assert answer.keys() == {"error", "request_id", "href"}
        assert answer["error"].keys() == {"status", "text", "code"}
        assert answer["error"]["status"] == status
        return status, answer["error"]["code"]


@pytest.fixture
def fake(tmp_path: Path) -> FakePlus:
    return FakePlus(
        Plus(
            Upstream("http", "u", zone="u", state=tmp_path / "u.conf"),
            Upstream("http", "hashed", zone="h", backup=False, room=2),
            Upstream("http", "static"),
            Upstream("stream", "s", zone="s"),
            keyvals=(
                Keyval("http", "kv", state=tmp_path / "kv.json"),
                Keyval("stream", "timed", timeout=60.0),
            ),
        )
    )


@pytest.fixture
async def client(fake: FakePlus) -> AsyncIterator[Client]:
    async with fake.serving() as base, aiohttp.ClientSession() as session:
        yield Client(session, base)


async def test_api_versions_are_listed_and_unknown_versions_rejected(client: Client) -> None:
    assert await client.ask("GET", "") == (200, list(range(1, 10)))
    assert await client.ask("GET", "/") == (200, list(range(1, 10)))
    assert await client.refused("GET", "/10/nginx") == (404, "UnknownVersion")
    assert await client.refused("GET", "/x") == (404, "UnknownVersion")
    assert "stream" in (await client.ask("GET", "/9/"))[1]
    assert (await client.ask("GET", "/9/nginx?fields=build"))[1] == {"build": "nginx-plus-r36"}
    assert await client.refused("GET", "/4/resolvers") == (404, "PathNotFound")
    assert (await client.ask("GET", "/5/resolvers"))[0] == 200


async def test_fake_api_has_no_stream_without_stream_block(fake: FakePlus, client: Client) -> None:
    fake.plus.stream = False
    assert "stream" not in (await client.ask("GET", "/9/"))[1]
    assert await client.refused("GET", "/9/stream/upstreams") == (404, "PathNotFound")


async def test_errors_of_first_api_versions_repeat_request(client: Client) -> None:
    status, answer = await client.ask("GET", "/3/http/upstreams/none/")
    assert (status, answer["error"]["method"]) == (404, "GET")
    assert answer["error"]["path"].endswith("/3/http/upstreams/none/")


async def test_created_server_is_returned_with_defaults(client: Client) -> None:
    status, created = await client.ask("POST", f"{SERVERS}/", {"server": "127.0.0.1:2000"})
    assert (status, created) == (201, {
        "id": 0, "server": "127.0.0.1:2000", "service": "", "weight": 1, "max_conns": 0,
        "max_fails": 1, "fail_timeout": "10s", "slow_start": "0s", "route": "",
        "backup": False, "down": False,
    })  # fmt: skip
    assert await client.ask("GET", SERVERS) == (200, [created])
    assert await client.ask("GET", f"{SERVERS}/0") == (200, created)
    _, created = await client.ask("POST", "/9/stream/upstreams/s/servers", {"server": "[::1]:53"})
    assert "route" not in created


async def test_ids_are_not_used_again_and_addresses_need_not_differ(client: Client) -> None:
    for number in (0, 1):
        _, created = await client.ask("POST", SERVERS, {"server": "10.0.0.1"})
        assert (created["id"], created["server"]) == (number, "10.0.0.1:80")
    status, left = await client.ask("DELETE", f"{SERVERS}/1/")
    assert (status, [server["id"] for server in left]) == (200, [0])
    assert (await client.ask("POST", SERVERS, {"server": "10.0.0.1"}))[1]["id"] == 2


async def test_changes_are_written_to_state_file_and_loaded_again(
    client: Client, tmp_path: Path
) -> None:
    await client.ask("POST", SERVERS, {"server": "10.0.0.1:80", "max_fails": 0, "weight": 3})
    await client.ask("POST", SERVERS, {"server": "10.0.0.2:80", "backup": True})
    await client.ask("PATCH", f"{SERVERS}/0", {"drain": True})
    text = "server 10.0.0.1:80 weight=3 max_fails=0 drain;\nserver 10.0.0.2:80 backup;\n"
    assert (tmp_path / "u.conf").read_text() == text
    again = Upstream("http", "u", zone="u", state=tmp_path / "u.conf")
    servers = [server.to_api("http") for server in again.servers.values()]
    assert servers == (await client.ask("GET", SERVERS))[1]
    await client.ask("DELETE", f"{SERVERS}/0")
    await client.ask("DELETE", f"{SERVERS}/1")
    assert (tmp_path / "u.conf").read_text() == ""


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"weight": 1}, "UpstreamConfFormatError"),
        ({"server": "10.0.0.1", "wait": 1}, "UpstreamConfFormatError"),
        ({"server": "10.0.0.1", "id": 1}, "UpstreamConfFormatError"),
        ({"server": ["10.0.0.1"]}, "UpstreamConfFormatError"),
        ([{"server": "10.0.0.1"}], "UpstreamConfFormatError"),
        ({"server": "10.0.0.1", "weight": "heavy"}, "UpstreamConfFormatError"),
        ({"server": "10.0.0.1:0"}, "UpstreamBadAddress"),
        ({"server": "unix:"}, "UpstreamBadAddress"),
        ({"server": "a.example:80", "service": "http"}, "UpstreamBadAddress"),
        ({"server": "10.0.0.1", "weight": 0}, "UpstreamBadWeight"),
        ({"server": "10.0.0.1", "max_conns": -1}, "UpstreamBadMaxConns"),
        ({"server": "10.0.0.1", "max_fails": -1}, "UpstreamBadMaxFails"),
        ({"server": "10.0.0.1", "fail_timeout": "soon"}, "UpstreamBadFailTimeout"),
        ({"server": "10.0.0.1", "slow_start": ""}, "UpstreamBadSlowStart"),
        ({"server": "10.0.0.1", "route": "r" * 33}, "UpstreamBadRoute"),
        ({"server": "a.example:80"}, "UpstreamConfNoResolver"),
    ],
)
async def test_invalid_server_body_is_rejected(client: Client, body: Any, code: str) -> None:
    assert await client.refused("POST", SERVERS, body) == (400, code)
    assert await client.ask("GET", SERVERS) == (200, [])


async def test_stream_server_requires_port_and_has_no_route(client: Client) -> None:
    servers = "/9/stream/upstreams/s/servers"
    bad = {"server": "10.0.0.1"}
    assert await client.refused("POST", servers, bad) == (400, "UpstreamBadAddress")
    for parameter in ({"route": "a"}, {"drain": True}):
        body = {"server": "10.0.0.1:1", **parameter}
        assert await client.refused("POST", servers, body) == (400, "UpstreamConfFormatError")


async def test_fake_api_rejects_backup_of_hashed_upstream_and_server_beyond_zone(
    client: Client,
) -> None:
    servers = "/9/http/upstreams/hashed/servers"
    body: dict[str, Any] = {"server": "10.0.0.1", "backup": True}
    assert await client.refused("POST", servers, body) == (400, "UpstreamNoBackup")
    for _ in range(2):
        await client.ask("POST", servers, {"server": "10.0.0.1"})
    body = {"server": "10.0.0.2"}
    assert await client.refused("POST", servers, body) == (400, "UpstreamOutOfMemory")


async def test_fake_api_rejects_unknown_paths_upstreams_and_servers(client: Client) -> None:
    assert await client.refused("GET", "/9/http/upstreams/x/servers") == (404, "UpstreamNotFound")
    static = "/9/http/upstreams/static/servers"
    assert await client.refused("GET", static) == (400, "UpstreamStatic")
    assert "static" not in (await client.ask("GET", "/9/http/upstreams"))[1]
    for method in ("GET", "PATCH", "DELETE"):
        body: Any = {} if method == "PATCH" else None
        rejection = await client.refused(method, f"{SERVERS}/7", body)
        assert rejection == (404, "UpstreamServerNotFound")
        rejection = await client.refused(method, f"{SERVERS}/a", body)
        assert rejection == (400, "UpstreamBadServerId")
    assert await client.refused("GET", "/9/http/nothing") == (404, "PathNotFound")
    assert await client.refused("PUT", SERVERS) == (405, "MethodNotSupported")
    assert (await client.ask("GET", "x"))[0] == 404


async def test_malformed_or_oversized_body_is_rejected(fake: FakePlus) -> None:
    async with fake.serving() as base, aiohttp.ClientSession() as session:
        async with session.post(base + SERVERS, data=b"{") as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (415, "JsonError")
        async with session.post(base + SERVERS, data=b" " * 20_000) as answer:
            assert (answer.status, answer.content_type) == (413, "text/html")


async def test_patch_changes_only_named_parameters(client: Client) -> None:
    await client.ask("POST", SERVERS, {"server": "10.0.0.1", "weight": 5})
    status, changed = await client.ask("PATCH", f"{SERVERS}/0/", {"down": True})
    assert (status, changed["down"], changed["weight"]) == (200, True, 5)
    _, changed = await client.ask("PATCH", f"{SERVERS}/0", {"server": "10.0.0.2", "down": False})
    assert (changed["server"], changed["down"]) == ("10.0.0.2:80", False)
    for body in ({"id": 3}, {"backup": True}, {"service": "a"}):
        rejection = await client.refused("PATCH", f"{SERVERS}/0", body)
        assert rejection == (400, "UpstreamConfFormatError")


async def test_draining_server_is_reported_in_status(client: Client) -> None:
    await client.ask("POST", SERVERS, {"server": "10.0.0.1"})
    assert (await client.ask("PATCH", f"{SERVERS}/0", {"drain": True}))[1]["drain"] is True
    _, status = await client.ask("GET", "/9/http/upstreams/u?fields=peers")
    assert [peer["state"] for peer in status["peers"]] == ["draining"]
    assert status.keys() == {"peers"}
    await client.ask("PATCH", f"{SERVERS}/0", {"down": False})
    assert "drain" not in (await client.ask("GET", f"{SERVERS}/0"))[1]
    status, _ = await client.ask("PATCH", "/1/http/upstreams/u/servers/0", {"drain": True})
    assert status == 400


async def test_hostname_server_includes_its_addresses(fake: FakePlus, client: Client) -> None:
    fake.plus.names = {"a.example": ["10.0.0.1", "10.0.0.2"]}
    await client.ask("POST", SERVERS, {"server": "a.example:8080"})
    _, servers = await client.ask("GET", SERVERS)
    assert [(s["server"], s.get("parent"), s.get("host")) for s in servers] == [
        ("a.example:8080", None, None),
        ("10.0.0.1:8080", 0, "a.example"),
        ("10.0.0.2:8080", 0, "a.example"),
    ]
    assert await client.refused("DELETE", f"{SERVERS}/1") == (400, "UpstreamServerImmutable")
    body = {"server": "10.0.0.9"}
    assert await client.refused("PATCH", f"{SERVERS}/1", body) == (400, "UpstreamServerImmutable")
    assert await client.ask("DELETE", f"{SERVERS}/0") == (200, [])


async def test_read_only_api_rejects_writes(fake: FakePlus, client: Client) -> None:
    fake.plus.write = False
    assert await client.refused("POST", SERVERS, {"server": "a"}) == (405, "MethodDisabled")
    assert await client.refused("DELETE", "/9/http/keyvals/kv") == (405, "MethodDisabled")
    assert (await client.ask("GET", SERVERS))[0] == 200


async def test_pairs_are_added_changed_and_removed(client: Client, tmp_path: Path) -> None:
    zone = "/9/http/keyvals/kv"
    assert (await client.ask("POST", zone, {"a": "1", "b": 2}))[0] == 201
    assert await client.ask("GET", zone) == (200, {"a": "1", "b": "2"})
    assert await client.ask("GET", f"{zone}?key=b") == (200, {"b": "2"})
    assert await client.refused("GET", f"{zone}?key=c") == (404, "KeyvalKeyNotFound")
    assert await client.refused("POST", zone, {"a": "2"}) == (409, "KeyvalKeyExists")
    rejection = await client.refused("POST", zone, {"c": "1", "d": "1"})
    assert rejection == (400, "KeyvalFormatError")
    assert (await client.ask("PATCH", zone, {"a": "3"}))[0] == 204
    assert (await client.ask("PATCH", zone, {"b": None}))[0] == 204
    assert await client.refused("PATCH", zone, {"b": "1"}) == (404, "KeyvalKeyNotFound")
    assert await client.ask("GET", "/9/http/keyvals/") == (200, {"kv": {"a": "3"}})
    assert Keyval("http", "kv", state=tmp_path / "kv.json").pairs() == {"a": "3"}
    assert (await client.ask("DELETE", zone))[0] == 204
    assert await client.ask("GET", zone) == (200, {})
    assert await client.refused("GET", "/9/http/keyvals/no") == (404, "KeyvalNotFound")


async def test_pairs_expire_in_zone_with_timeout(fake: FakePlus, client: Client) -> None:
    zone = "/9/stream/keyvals/timed"
    assert (await client.ask("POST", zone, {"a": {"value": "1", "expire": 1000}}))[0] == 201
    held = fake.plus.keyvals["stream", "timed"]
    now = asyncio.get_running_loop().time()
    assert held.pairs(now) == {"a": "1"}
    assert held.pairs(now + 2) == {}
    body = {"a": {"value": "1", "expire": 1}}
    assert await client.refused("POST", "/9/http/keyvals/kv", body) == (400, "KeyvalFormatError")


async def test_configured_faults_affect_requests(fake: FakePlus, client: Client) -> None:
    path = "/http/upstreams/*/servers"
    fake.faults.append(Fault("POST", path, status=500, times=1))
    fake.faults.append(Fault("POST", path, cut=True, after=True))
    fake.faults.append(Fault("POST", path, status=502, garbage="<html>"))
    body = {"server": "10.0.0.1"}
    assert await client.refused("POST", SERVERS, body) == (500, "InternalError")
    with pytest.raises(aiohttp.ClientError):
        await client.ask("POST", SERVERS, body)
    assert await client.ask("POST", SERVERS, body) == (502, "<html>")
    assert [server["id"] for server in (await client.ask("GET", SERVERS))[1]] == [0]
    assert [call.status for call in fake.change_calls()] == [500, 0, 502]
    assert fake.calls[0].body == body


async def test_fake_api_is_served_on_unix_socket_and_mutual_tls(
    fake: FakePlus, tmp_path: Path
) -> None:
    socket = tmp_path / "api.sock"
    connector = aiohttp.UnixConnector(str(socket))
    async with fake.serving(socket) as base, aiohttp.ClientSession(connector=connector) as session:
        assert (await Client(session, base).ask("GET", "/9/nginx"))[0] == 200
    cert, key = write_certificate(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(cert))
    server.load_cert_chain(cert, key)
    server.verify_mode = ssl.CERT_REQUIRED
    trusting = ssl.create_default_context(cafile=str(cert))
    known = ssl.create_default_context(cafile=str(cert))
    known.load_cert_chain(cert, key)
    async with fake.serving(tls=server) as base:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=known)) as session:
            assert (await Client(session, base).ask("GET", "/9/nginx"))[0] == 200
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session:
            with pytest.raises(aiohttp.ClientError):
                await Client(session, base).ask("GET", "/9/nginx")


async def test_fake_api_requires_configured_authorization(fake: FakePlus) -> None:
    closed = FakePlus(fake.plus, authorization="ApiKey abc")
    async with closed.serving() as base, aiohttp.ClientSession() as session:
        assert (await Client(session, base).ask("GET", "/9/nginx"))[0] == 401
        async with session.get(f"{base}/9/nginx", headers={"Authorization": "ApiKey abc"}) as ok:
            assert ok.status == 200
