"""Long-running requests, upgrades, credentials and changes, on Envoy before kube-apiservers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator

import aiohttp
import httpx
import pytest
import pytest_asyncio
from cryptography import x509

from fakes import kube_upstream, patience
from fakes.kube_serving import ALL, EVERYTHING, HOST, PORT, Connection, World, world
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, LISTENER_TYPE_URL, SCOPE_TYPE_URL

pytestmark = pytest.mark.process


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as proxy:
        yield proxy


async def watch(one: World, user: str = "alice", host: str = HOST) -> Connection:
    connection = await one.connect(one.client(user), host)
    connection.send("/api/v1/pods?watch=true", "GET", host=host)
    assert (await connection.head())[0] == 200
    assert await connection.chunk() == b"one\n"
    return connection


@pytest.mark.parametrize("kind", ["websocket, h2c", "h2c, spdy/3.1", "SPDY/3.1,websocket"])
async def test_upgrade_to_a_list_of_protocols_is_denied(one: World, kind: str) -> None:
    """The server would choose a protocol, and could open a tunnel past all policies."""
    await one.serve(one.cluster(ir.DispatchPolicy((EVERYTHING,))))
    answer = await one.ask(
        one.client("alice"), "/api/v1/namespaces/n/pods/p/exec?command=sh", "GET",
        ("Connection", "Upgrade"), ("Upgrade", kind),
    )  # fmt: skip
    assert answer.status == 403
    assert one.upstream.seen == []


@pytest.mark.parametrize("kind", ["websocket", "SPDY/3.1"])
@pytest.mark.parametrize("schema", ["", "s"])
async def test_upgraded_connections_relay_bytes(one: World, kind: str, schema: str) -> None:
    limits = (ir.FlowSchema("s", ir.InFlight(1)),) if schema else ()
    await one.serve(one.cluster(ir.DispatchPolicy((EVERYTHING,), schema=schema), schemas=limits))
    session = await one.connect(one.client("alice"))
    session.send(
        "/api/v1/namespaces/n/pods/p/exec?command=sh", "POST" if kind != "websocket" else "GET",
        ("Connection", "Upgrade, X-Forwarded-For"), ("Upgrade", kind),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="), ("Sec-WebSocket-Version", "13"),
    )  # fmt: skip
    status, headers = await session.head()
    assert (status, headers["upgrade"].lower()) == (101, kind.lower())
    assert await session.reader.readline() == b"one\n"
    for size in (1, 1000, 100_000):
        data = bytes(range(256)) * (size // 256) + b"\0" * (size % 256)
        session.writer.write(data)
        assert await session.reader.readexactly(size) == data
    [(_, _, request_headers)] = one.upstream.seen
    assert ("impersonate-user", "alice") in request_headers
    assert one.upstream.connections == {"h2": 0, "http/1.1": 1}
    # It continues while everything about its cluster changes.
    await one.serve(one.cluster(denied=True, servers=(), token="t"), secrets=token("x"))
    session.writer.write(b"still there")
    assert await session.reader.readexactly(11) == b"still there"


async def test_aborted_requests_do_not_eject_the_server(one: World) -> None:
    """A finished command or a cut log must not eject a server."""
    await one.serve(one.cluster())
    alice = one.client("alice")
    exec_ = "/api/v1/namespaces/n/pods/p/exec?command=ls"
    for _ in range(4):
        connection = await one.connect(alice)
        connection.send(exec_, "GET", ("Connection", "Upgrade"), ("Upgrade", "spdy/3.1"))
        status, _ = await connection.head()
        assert status == 101
        connection.writer.write(b"abort")
        await connection.reader.read()
        connection.close()
    for _ in range(3):
        connection = await one.connect(alice)
        connection.send("/api/v1/namespaces/n/pods/abort/log?follow=true", "GET")
        status, _ = await connection.head()
        assert status == 200
        connection.close()
        assert (await one.ask(alice)).status == 200


async def test_last_server_is_never_ejected_by_connection_failures(one: World) -> None:
    """No other server could answer; only health checks can make it unhealthy."""
    cut, writers = False, list[asyncio.StreamWriter]()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while not cut and (data := await reader.read(65536)):
                writer.write(data)

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if cut:
            writer.transport.abort()
            return
        inner, onward = await asyncio.open_connection("127.0.0.1", one.upstream.port)
        await asyncio.gather(pass_on(reader, onward), pass_on(inner, writer))

    async with await asyncio.start_server(taken, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        server = ir.KubeApiServer("https://one", "127.0.0.1", port)
        await one.serve(one.cluster(servers=(server,)))
        alice = one.client("alice")
        assert (await one.ask(alice)).status == 200
        checks = len(one.upstream.probes)
        await patience.until(lambda: len(one.upstream.probes) != checks)
        cut = True
        for connection_writer in writers:
            connection_writer.transport.abort()
        assert [(await one.ask(alice, method="POST")).status for _ in range(3)] == [503] * 3
        cut = False
        assert (await one.ask(alice)).status == 200
        for connection_writer in writers:
            connection_writer.transport.abort()


async def test_response_without_upgrade_is_forwarded(one: World) -> None:
    await one.serve(one.cluster())
    response = await one.ask(
        one.client("alice"), "/api/v1/namespaces/n/pods/refused/attach", "GET",
        ("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"),
    )  # fmt: skip
    assert response.status == 403
    assert response.values("impersonate-user") == ["alice"]


def token(value: str) -> tuple[ir_gateway.SecretFile, ...]:
    return (ir_gateway.SecretFile("t", ir_gateway.SecretBytes(f"{value}\n".encode())),)


async def test_watch_survives_fifty_changes(one: World) -> None:
    other = one.cluster(name="b.kube.test", hosts=("b.kube.test",))
    await one.serve(one.cluster(), other)
    watches = [await watch(one, user) for user in ("alice", "bob")]
    watches.append(await watch(one, host="b.kube.test"))
    here = one.upstream.port
    away = ir.KubeApiServer("https://away", "127.0.0.1", 1)
    for number in range(50):
        names = ir.Names((f"pod-{number}",), others=True)
        rules = ir.DispatchRule(ir.ANY, ir.ANY, ir.ANY, ir.ANY, ir.ANY, names, ir.ANY)
        schema = ir.FlowSchema("s", ir.InFlight(number))
        servers = (ir.KubeApiServer("https://one", "127.0.0.1", here), away)
        changing = one.cluster(
            *(ir.DispatchPolicy((rules,), schema="s"),) * (1 + number % 3), schemas=(schema,),
            servers=servers[number % 3 == 2 :], denied=number % 5 == 4,
            client_trust="clients" if number % 7 else "", token="t" if number % 2 else "",
            identity=ir.AuthCacheTTLs(anonymous=bool(number % 2), good_for=number),
        )  # fmt: skip
        changed = await one.serve(changing, other, secrets=token(str(number)))
        assert not [name for kind, name in changed if kind == LISTENER_TYPE_URL]
        assert not [
            name for kind, name in changed if "b.kube.test" in name and kind == CLUSTER_TYPE_URL
        ]
        assert not [
            name for kind, name in changed if "b.kube.test" in name and kind == SCOPE_TYPE_URL
        ]
        one.upstream.emit(b"%d\n" % number)
        for connection in watches:
            assert await asyncio.wait_for(connection.chunk(), patience.SECONDS) == b"%d\n" % number
    assert one.upstream.watches == 3


async def test_watch_ends_at_server_when_client_closes_it(one: World) -> None:
    await one.serve(one.cluster())
    connection = await watch(one)
    connection.close()

    async def ended() -> bool:
        return one.upstream.watches == 0

    await one.served.until(ended)


async def test_servers_receive_only_the_gateway_token(one: World) -> None:
    cluster = one.cluster(token="t")
    await one.serve(cluster, secrets=token("100% %REQ(x)% gateway"))
    sent = ("Authorization", "Basic abc")
    response = await one.ask(one.client("alice"), "/version", "GET", sent)
    assert response.values("authorization") == ["Bearer 100% %REQ(x)% gateway"]
    probes = [dict(probe) for probe in one.upstream.probes]
    assert probes[-1]["authorization"] == "Bearer 100% %REQ(x)% gateway"
    assert all(not name.startswith("impersonate") for name in probes[-1])
    await one.serve(cluster, secrets=token("new"))

    async def renewed() -> bool:
        answer = await one.ask(one.client("alice"), "/version")
        return answer.values("authorization") == ["Bearer new"]

    await one.served.until(renewed)


async def test_reviewer_socket_permits_only_reviews(one: World) -> None:
    other = one.cluster(name="b.kube.test", hosts=("b.kube.test",), servers=())
    await one.serve(one.cluster(token="t"), other, secrets=token("gateway"))
    connector = aiohttp.UnixConnector(str(one.directory / "upstream.sock"))
    async with aiohttp.ClientSession(connector=connector) as session:

        async def ask(path: str, host: str = HOST, method: str = "POST") -> tuple[int, str]:
            headers = {"Host": host, "Impersonate-User": "root", "Authorization": "Bearer x"}
            async with session.request(
                method, f"http://upstream{path}", headers=headers, data=b"{}"
            ) as answer:
                return answer.status, await answer.text()

        review = "/apis/authentication.k8s.io/v1/tokenreviews"
        for path in (review, "/apis/authorization.k8s.io/v1/subjectaccessreviews"):
            status, text = await ask(path)
            assert status == 200
            request_headers = dict(json.loads(text)["headers"])
            assert (request_headers["authorization"], request_headers["host"]) == (
                "Bearer gateway",
                HOST,
            )
            assert not [
                name for name in request_headers if name.startswith(("impersonate", "x-gh"))
            ]
        assert (await ask(review, method="GET"))[0] == 403
        assert (await ask(review + "/x"))[0] == 403
        assert (await ask("/api/v1/secrets"))[0] == 403
        assert (await ask(review, "b.kube.test"))[0] == 503
        assert (await ask(review, "nobody"))[0] == 404
        assert (await ask(review, f"x.{HOST}"))[0] == 404


async def test_servers_are_reached_by_hostname_with_path_and_plain_text(one: World) -> None:
    async with kube_upstream.serving("plain", None) as plain:
        server = ir.KubeApiServer("http://localhost/under", "localhost", plain.port, "/un der")
        cluster = one.cluster(servers=(server,), tls=None, token="t")
        await one.serve(cluster, secrets=token("x"))

        async def reached() -> bool:
            return (await one.ask(one.client("alice"), "/version")).status == 200

        await one.served.until(reached)
        response = await one.ask(one.client("alice"), "/api/v1/pods?limit=1&x=%2F")
        assert response.document["target"] == "/un%20der/api/v1/pods?limit=1&x=%2F"
        assert response.values("impersonate-user") == ["alice"]
        connector = aiohttp.UnixConnector(str(one.directory / "upstream.sock"))
        review = "/apis/authentication.k8s.io/v1/tokenreviews"
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"http://upstream{review}", headers={"Host": HOST}) as answer,
        ):
            assert (await answer.json(content_type=None))["target"] == "/un%20der" + review


async def test_unsupported_servers_are_reported(one: World) -> None:
    here = ir.KubeApiServer("https://one", "127.0.0.1", one.upstream.port)
    other = ir.KubeApiServer("https://two/x", "127.0.0.1", one.upstream.port, "/x")
    await one.serve(one.cluster(servers=(here, other), token="lost"))
    path = "servers: https://two/x: path must be the same as that of the first server"
    token = "clientConfig.bearerToken: secret not found"
    origin = Origin("UpstreamCluster", "", HOST)
    assert one.served.generated.unsupported == tuple(
        Unsupported(origin, reason, served=True) for reason in (path, token)
    )
    assert (await one.ask(one.client("alice"))).status == 200


async def test_server_with_wrong_certificate_gets_no_requests(one: World) -> None:
    wrong = ir.UpstreamTls("other.test", trust="servers", certificate="gateway")
    await one.serve(one.cluster(tls=wrong))
    assert (await one.ask(one.client("alice"))).status == 503
    careless = ir.UpstreamTls("other.test", certificate="gateway")
    await one.serve(one.cluster(tls=careless))

    async def reached() -> bool:
        return (await one.ask(one.client("alice"))).status == 200

    await one.served.until(reached)


async def test_only_logged_policies_are_logged(one: World) -> None:
    secret = ir.DispatchRule(
        ir.ANY, ir.ANY, ir.ANY, ir.ANY, ir.Names(("secrets",)), ir.ANY, ir.NONE
    )  # fmt: skip
    one.reviewer.allowed = lambda _: True
    await one.serve(one.cluster(ir.DispatchPolicy((secret,), logged=True), ALL))
    await one.ask(one.client("alice"), "/api/v1/pods")
    sent = ("Impersonate-User", 'b"ob'), ("User-Agent", "k\\ubectl")
    await one.ask(one.client("alice"), "/api/v1/namespaces/n/secrets/s", "DELETE", *sent)

    async def written() -> bool:
        return bool(one.log())

    await one.served.until(written)
    [line] = one.log()
    expected = {
        "cluster": HOST, "user": 'b"ob', "groups": ["system:authenticated"],
        "impersonator": "alice", "verb": "delete", "resource": "secrets", "namespace": "n",
        "name": "s", "policy": 0, "schema": "", "status": 200, "flags": "-",
        "user_agent": "k\\ubectl", "endpoint": f"127.0.0.1:{one.upstream.port}",
    }  # fmt: skip
    assert {key: line[key] for key in expected} == expected
    assert line["duration_ms"] >= 0


async def test_failing_script_permits_nothing(one: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from gatehouse.compiler.backends.envoy.kube_apiserver import script

    broken = re.sub(r"local function sender\(", "local function sender_of(", script.TEXT)
    monkeypatch.setattr(script, "TEXT", broken)
    await one.serve(one.cluster())
    response = await one.ask(one.client("alice"))
    assert (response.status, response.document["reason"]) == (500, "InternalError")
    assert one.upstream.seen == []


async def test_certificates_work_without_reviewer(one: World) -> None:
    (one.directory / "reviewer.sock").unlink()
    await one.serve(one.cluster())
    assert (await one.ask(one.client("alice"))).status == 200
    response = await one.ask(one.client(), "/version", "GET", ("Authorization", "Bearer a"))
    assert response.status == 503
    assert one.served.generated.resources.get(LISTENER_TYPE_URL, f"tcp/{PORT}") is not None


async def test_http2_requests_are_independent(one: World) -> None:
    one.reviewer.users["one"] = {"x-user": "me"}
    other = one.cluster(name="b.kube.test", hosts=("b.kube.test",))
    await one.serve(one.cluster(), other)
    base = f"https://{one.served.address}:{PORT}"
    extensions = {"sni_hostname": HOST}

    async def ask(
        client: httpx.AsyncClient, path: str, host: str = HOST, **headers: str
    ) -> httpx.Response:
        sent = {"host": host, **headers}
        response = await client.get(base + path, headers=sent, extensions=extensions)
        assert response.http_version == "HTTP/2"
        return response

    def user(answer: httpx.Response) -> object:
        return dict(answer.json()["headers"])["impersonate-user"]

    async with httpx.AsyncClient(http2=True, verify=one.client("alice")) as client:
        responses = await asyncio.gather(*(ask(client, f"/api/v1/pods/{n}") for n in range(40)))
        assert {user(response) for response in responses} == {"alice"}
        assert [response.json()["target"] for response in responses] == [
            f"/api/v1/pods/{n}" for n in range(40)
        ]
        assert (await ask(client, "/version", "b.kube.test")).status_code == 421
    async with httpx.AsyncClient(http2=True, verify=one.client()) as client:
        requests = [
            ask(client, "/version", authorization="Bearer one"), ask(client, "/version"),
            ask(client, "/version", authorization="Bearer two"),
        ]  # fmt: skip
        token, nobody, bad = await asyncio.gather(*requests)
        assert (user(token), user(nobody)) == ("me", "system:anonymous")
        assert (bad.status_code, bad.json()["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize("name", ["x-gh-scope", "x-gh-way", "impersonate-user", "authorization"])
async def test_connection_header_cannot_remove_identity_headers(one: World, name: str) -> None:
    await one.serve(one.cluster())
    for more in ([], [("Upgrade", "websocket")]):
        connection = ("Connection", f"{name}, upgrade" if more else name)
        response = await one.ask(one.client("alice"), "/version", "GET", connection, *more)
        # At worst there is no response: never as another user, never as anonymous.
        assert response.status in (200, 400, 403, 503)
    for _, _, headers in one.upstream.seen:
        assert [value for key, value in headers if key == "impersonate-user"] == ["alice"]


async def test_stopped_server_fails_no_request(one: World) -> None:
    context = one.servers.server("kube", x509.DNSName("kube.test"))
    async with kube_upstream.serving("two", context) as second:
        servers = (
            ir.KubeApiServer("https://one", "127.0.0.1", one.upstream.port),
            ir.KubeApiServer("https://two", "127.0.0.1", second.port),
        )
        await one.serve(one.cluster(servers=servers))
        connection = await one.connect(one.client("alice"))

        async def both() -> bool:
            responses = [await connection.ask("/version") for _ in range(20)]
            return {response.document["service"] for response in responses} == {"one", "two"}

        await one.served.until(both)
    responses = [await connection.ask("/version") for _ in range(60)]
    assert {response.status for response in responses} == {200}
    assert {response.document["service"] for response in responses} == {"one"}
    posted = await connection.ask("/version", "POST")
    assert "x-envoy-retry-on" not in dict(posted.document["headers"])
    assert "x-envoy-retry-on" not in dict(responses[0].document["headers"])


@pytest.mark.parametrize(("streams", "connections"), [(100, 3), (1000, 1)])
async def test_connections_match_the_stream_limit_of_servers(
    one: World, streams: int, connections: int
) -> None:
    one.upstream.streams = streams
    await one.serve(one.cluster(streams=streams))
    alice = one.client("alice")
    clients = [await one.connect(alice) for _ in range(300)]
    # All at once, while no connection has received the server's limit.
    asking = [asyncio.create_task(client.ask("/slow")) for client in clients]
    await patience.until(
        lambda: (
            not (one.upstream.busy < len(clients) and not any(request.done() for request in asking))
        )
    )
    one.upstream.release()
    assert {(await request).status for request in asking} == {200}
    assert one.upstream.connections == {"h2": connections, "http/1.1": 0}


async def test_lower_stream_limit_of_server_is_respected(one: World) -> None:
    one.upstream.streams = 10
    await one.serve(one.cluster())
    alice = one.client("alice")
    watching = [await watch(one) for _ in range(12)]
    assert one.upstream.connections == {"h2": 2, "http/1.1": 0}
    assert (await one.ask(alice)).status == 200
    assert one.upstream.connections == {"h2": 2, "http/1.1": 0}
    for connection in watching:
        connection.close()
