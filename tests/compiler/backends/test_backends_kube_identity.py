"""Authentication on Envoy before kube-apiservers: certificates, reviewer, hostile headers."""

from __future__ import annotations

import asyncio
import base64
import itertools
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes.kube_serving import ALL, EVERYTHING, HOST, PORT, ProxyResponse, World, world
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir

pytestmark = pytest.mark.process

BEARER = "Authorization", "Bearer one"


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as proxy:
        yield proxy


def who(answer: ProxyResponse) -> tuple[str, list[str]]:
    assert answer.status == 200, answer.body
    [name] = answer.values("impersonate-user")
    return name, answer.values("impersonate-group")


def status(answer: ProxyResponse) -> tuple[int, str]:
    """Return the code and reason of a Status, which must agree with the response."""
    document = answer.document
    assert (document["kind"], document["apiVersion"], document["status"]) == (
        "Status",
        "v1",
        "Failure",
    )
    assert document["code"] == answer.status
    assert answer.headers["content-type"] == "application/json"
    return document["code"], document["reason"]


async def test_validated_certificate_names_user_and_groups(one: World) -> None:
    await one.serve(one.cluster())
    alice = one.client("alice", "dev", "ops, and: more=+\\", "Größe")
    groups = ["dev", "ops, and: more=+\\", "Größe".encode().decode("latin-1")]
    assert who(await one.ask(alice)) == ("alice", [*groups, "system:authenticated"])
    mallory = one.client("mallory", "system:masters", authority=one.strangers)
    assert status(await one.ask(mallory)) == (401, "Unauthorized")
    assert who(await one.ask(one.client())) == ("system:anonymous", ["system:unauthenticated"])


async def test_certificates_are_ignored_without_client_ca(one: World) -> None:
    await one.serve(one.cluster(client_trust=""))
    for context in (one.client("alice"), one.client("m", authority=one.strangers), one.client()):
        assert who(await one.ask(context)) == ("system:anonymous", ["system:unauthenticated"])
    changed = await one.serve(one.cluster())
    names = {name for _, name in changed if not name.startswith(("certificate/", "shown/"))}
    assert names == {f"clients/{PORT}/{HOST}", f"api/{PORT}/{HOST}"}

    async def believed() -> bool:
        return who(await one.ask(one.client("alice")))[0] == "alice"

    await one.served.until(believed)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_resumed_tls_session_keeps_the_user(one: World, newest: ssl.TLSVersion) -> None:
    await one.serve(one.cluster())
    context = one.client("alice")
    context.maximum_version = newest

    def resume() -> list[tuple[str, bool]]:
        import http.client
        import socket

        connections, session = [], None
        for _ in range(3):
            raw = socket.create_connection((one.served.address, PORT))
            with context.wrap_socket(raw, server_hostname=HOST, session=session) as tls:
                connection = http.client.HTTPConnection(HOST)
                connection.sock = tls
                connection.request("GET", "/api/v1/pods")
                body = connection.getresponse().read().decode()
                session = tls.session or session
                connections.append((body, bool(tls.session_reused)))
        return connections

    for body, _ in await asyncio.to_thread(resume):
        assert '["impersonate-user", "alice"]' in body


async def test_requests_of_one_client_are_authenticated_separately(one: World) -> None:
    await one.serve(one.cluster())
    alice, bob = one.client("alice", "dev"), one.client("bob")
    connections = [await one.connect(client) for client in (alice, bob, alice, bob)]
    for _ in range(3):
        responses = await asyncio.gather(
            *(connection.ask("/api/v1/pods") for connection in connections)
        )
        assert [who(response)[0] for response in responses] == ["alice", "bob"] * 2
    for connection in connections:
        connection.close()


async def test_clients_cannot_forge_connection_ids(one: World) -> None:
    await one.serve(one.cluster())
    others = [await one.connect(one.client(name)) for name in ("alice", "root")]
    for other in others:
        await other.ask("/api/v1/pods")
    bob, nobody = await one.connect(one.client("bob")), await one.connect(one.client())
    for number in range(64):
        # As Envoy passes it to the script, with every connection ID used so far.
        forged = ("X-Gh-Scope", f":api/{PORT}/{HOST}:{number}")
        assert who(await bob.ask("/api/v1/pods", "GET", forged, forged))[0] == "bob"
        assert who(await nobody.ask("/api/v1/pods", "GET", forged))[0] == "system:anonymous"


@pytest.mark.parametrize(
    "name", [" alice", "alice ", "alice\r\nX-Remote-User: root", "al\tice", "\x01"]
)
async def test_user_name_that_servers_would_change_is_rejected(one: World, name: str) -> None:
    await one.serve(one.cluster())
    assert status(await one.ask(one.client(name)))[0] == 401
    assert status(await one.ask(one.client("alice", name)))[0] == 401
    assert one.upstream.seen == []


async def test_accepted_and_rejected_tokens_are_cached(one: World) -> None:
    one.reviewer.users["one"] = {
        "x-user": "system%3Aserviceaccount%3Ans%3Ame", "x-uid": "u%201", "x-groups": "a%2Cb,c",
        "x-extra": "example.org%2FKey=v%3D1,example.org%2FKey=v2,plain=",
    }  # fmt: skip
    await one.serve(one.cluster())
    plain = one.client()
    for _ in range(3):
        response = await one.ask(plain, "/api/v1/pods", "GET", BEARER)
        assert who(response) == (
            "system:serviceaccount:ns:me", ["a,b", "c", "system:authenticated"]
        )  # fmt: skip
        assert response.values("impersonate-uid") == ["u 1"]
        assert response.values("impersonate-extra-example.org%2fkey") == ["v=1", "v2"]
        assert response.values("impersonate-extra-plain") == [""]
        assert response.values("authorization") == []
    for _ in range(3):
        bad = await one.ask(plain, "/api/v1/pods", "GET", ("Authorization", "bearer  two"))
        assert who(bad)[0] == "system:anonymous"
        bad = await one.ask(plain, "/api/v1/pods", "GET", ("Authorization", "bearer two"))
        assert status(bad) == (401, "Unauthorized")
    assert [path for path, _ in one.reviewer.asked] == ["/token", "/token"]
    first = one.reviewer.asked[0][1]
    assert (first["x-cluster"], first["x-good-for"], first["x-bad-for"]) == (HOST, "600", "10")


async def test_reviewer_sets_lifetime_of_cached_tokens(one: World) -> None:
    one.reviewer.users["one"] = {"x-user": "me", "x-keep": "0"}
    await one.serve(one.cluster())
    for _ in range(3):
        assert who(await one.ask(one.client(), "/api/v1/pods", "GET", BEARER))[0] == "me"
    assert len(one.reviewer.asked) == 3
    one.reviewer.broken = True
    response = await one.ask(one.client(), "/api/v1/pods", "GET", BEARER)
    assert status(response) == (503, "ServiceUnavailable")
    assert "nobody answers" in response.document["message"]


async def test_changed_lifetime_applies_to_cached_answers(one: World) -> None:
    one.reviewer.users["one"] = {"x-user": "me"}
    one.reviewer.allowed = lambda review: review["x-as-user"] == "bob"
    alice = one.client("alice")
    hour = ir.AuthCacheTTLs(good_for=3600, bad_for=3600, allowed_for=3600, denied_for=3600)
    questions = [
        (one.client(), BEARER, 200),
        (one.client(), ("Authorization", "Bearer two"), 401),
        (alice, ("Impersonate-User", "bob"), 200),
        (alice, ("Impersonate-User", "carol"), 403),
    ]

    async def asked() -> list[tuple[str, str, str]]:
        """Return the requests to the reviewer while each client request is sent twice."""
        one.reviewer.asked.clear()
        for context, header, code in (*questions, *questions):
            assert (await one.ask(context, "/api/v1/pods", "GET", header)).status == code
        reviews = [
            (path, review["x-good-for"], review["x-bad-for"]) for path, review in one.reviewer.asked
        ]
        return sorted(reviews)

    paths = ["/impersonation", "/impersonation", "/token", "/token"]
    fresh = (f"Bearer {number}" for number in itertools.count())

    async def shortened() -> bool:
        await one.ask(one.client(), "/api/v1/pods", "GET", ("Authorization", next(fresh)))
        return one.reviewer.asked[-1][1]["x-good-for"] == "60"

    await one.serve(one.cluster(identity=hour))
    assert await asked() == [(path, "3600", "3600") for path in paths]
    assert await asked() == []
    minute = ir.AuthCacheTTLs(good_for=60, bad_for=3600, allowed_for=60, denied_for=3600)
    await one.serve(one.cluster(identity=minute))
    await one.served.until(shortened)
    assert await asked() == [(path, "60", "3600") for path in paths]
    assert await asked() == []


async def test_anonymous_access_requires_permission(one: World) -> None:
    one.reviewer.users["one"] = {"x-user": "me"}
    await one.serve(one.cluster(identity=ir.AuthCacheTTLs(anonymous=False)))
    assert status(await one.ask(one.client())) == (401, "Unauthorized")
    basic = ("Authorization", "Basic " + base64.b64encode(b"a:b").decode())
    assert status(await one.ask(one.client(), "/version", "GET", basic))[0] == 401
    assert who(await one.ask(one.client("alice")))[0] == "alice"
    # A certificate that is not verified does not prevent authentication by token.
    doubtful = one.client("m", authority=one.strangers)
    assert who(await one.ask(doubtful, "/version", "GET", BEARER))[0] == "me"


async def test_client_identity_headers_do_not_reach_servers(one: World) -> None:
    await one.serve(one.cluster())
    sent = [
        ("X-Remote-User", "root"), ("x-remote-group", "system:masters"), ("X-Remote-Extra-A", "b"),
        ("X-Remote-Uid", "0"), ("Impersonate_User", "root"), ("impersonate_group", "x"),
        ("X-Gh-Scope", f"flow/{HOST}/"), ("x-gh-way", "lu"), ("X-Envoy-Original-Path", "/x"),
        ("Connection", "Impersonate-User, close"), ("X_Remote_User", "root"),
        ("X-Envoy-Upstream-Rq-Timeout-Ms", "1"), ("X-Envoy-Expected-Rq-Timeout-Ms", "1"),
    ]  # fmt: skip
    alice = one.client("alice")
    for turn in range(2):
        response = await one.ask(alice, "/api/v1/pods", "GET", *sent, *sent)
        assert who(response) == ("alice", ["system:authenticated"])
        names_received = {key for key, _ in response.document["headers"]}
        assert names_received == {
            "impersonate-user", "impersonate-group", "host", "x-forwarded-for", "x-forwarded-proto"
        }  # fmt: skip
        # Relevant headers are still recognised, however many header names clients use.
        for start in (0, 400):
            names = [(f"X-{turn}-{n}", "v") for n in range(start, start + 400)]
            response = await one.ask(alice, "/api/v1/pods", "GET", *names)
            assert set(dict(names)) <= {key.title() for key, _ in response.document["headers"]}


async def test_impersonation_is_reviewed_and_headers_replaced(one: World) -> None:
    one.reviewer.allowed = lambda review: (
        review["x-user"] == "alice" and review["x-as-user"] == "bob"
    )
    await one.serve(one.cluster())
    alice, carol = one.client("alice", "dev"), one.client("carol")
    wish = [
        ("Impersonate-User", "bob"), ("impersonate-GROUP", "g 1"), ("Impersonate-Group", "g,2"),
        ("Impersonate-Uid", "7"), ("Impersonate-Extra-Ex%2FA", "v"),
        ("Impersonate-Extra-Ex%2FA", "w"),
    ]  # fmt: skip
    for _ in range(2):
        response = await one.ask(alice, "/api/v1/pods", "GET", *wish)
        assert who(response) == ("bob", ["g 1", "g,2", "system:authenticated"])
        assert response.values("impersonate-uid") == ["7"]
        assert response.values("impersonate-extra-ex%2fa") == ["v", "w"]
        refused = await one.ask(carol, "/api/v1/pods", "GET", *wish)
        assert status(refused) == (403, "Forbidden")
        assert refused.document["message"] == "not you"
    assert len(one.reviewer.asked) == 2
    review = one.reviewer.asked[0][1]
    assert (review["x-groups"], review["x-as-groups"]) == (
        "dev,system%3Aauthenticated", "g%201,g%2C2"
    )  # fmt: skip
    assert (review["x-as-extra"], review["x-as-uid"]) == ("ex%2Fa=v,ex%2Fa=w", "7")
    assert (review["x-good-for"], review["x-bad-for"]) == ("300", "30")


async def test_malformed_escape_of_extra_key_is_literal(one: World) -> None:
    one.reviewer.allowed = lambda _: True
    await one.serve(one.cluster())
    sent = ("Impersonate-User", "bob"), ("Impersonate-Extra-A%2fB%zz", "v")
    response = await one.ask(one.client("alice"), "/version", "GET", *sent)
    assert response.values("impersonate-extra-a%252fb%25zz") == ["v"]
    assert one.reviewer.asked[-1][1]["x-as-extra"] == "a%252fb%25zz=v"


@pytest.mark.parametrize(
    "headers",
    [
        [("Impersonate-Group", "system:masters")],
        [("Impersonate-Uid", "0")],
        [("Impersonate-Extra-Scopes", "x")],
        [("Impersonate-User", "")],
        [("Impersonate-User", "a"), ("Impersonate-Else", "b")],
        [("Impersonate-User", "a"), ("Impersonate-User", "b")],
    ],
)
async def test_incomplete_impersonation_is_rejected(
    one: World, headers: list[tuple[str, str]]
) -> None:
    one.reviewer.allowed = lambda _: True
    await one.serve(one.cluster())
    response = await one.ask(one.client("alice"), "/api/v1/pods", "GET", *headers)
    assert status(response) == (400, "BadRequest")
    assert one.reviewer.asked == []
    assert one.upstream.seen == []


async def test_impersonated_users_have_groups_of_kubernetes(
    one: World,
) -> None:
    one.reviewer.allowed = lambda _: True
    await one.serve(one.cluster())
    expected = {
        "system:serviceaccount:ns:me": [
            "system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"
        ],
        "system:anonymous": ["system:unauthenticated"],
    }  # fmt: skip
    for name, groups in expected.items():
        response = await one.ask(one.client("a"), "/version", "GET", ("Impersonate-User", name))
        assert who(response) == (name, groups)


async def test_policies_match_the_impersonated_user(one: World) -> None:
    one.reviewer.allowed = lambda _: True
    everything = EVERYTHING
    bob = ir.DispatchRule(
        everything.verbs, ir.Names(("bob",)), ir.ANY, ir.ANY, ir.ANY, ir.ANY, everything.paths
    )
    await one.serve(one.cluster(ir.DispatchPolicy((bob,))))
    alice = one.client("alice")
    assert status(await one.ask(alice)) == (403, "Forbidden")
    assert who(await one.ask(alice, "/version", "GET", ("Impersonate-User", "bob")))[0] == "bob"


async def test_sni_selects_cluster_and_connections_are_not_shared(one: World) -> None:
    other = one.cluster(ALL, name="b.kube.test", hosts=("b.kube.test", "c.kube.test"))
    await one.serve(one.cluster(), other)
    alice = one.client("alice")
    for name in (HOST, f"{HOST}:6443", HOST.upper(), f"{HOST.upper()}:1"):
        assert (await one.ask(alice, host=name)).status == 200
    for sni, host in ((HOST, "b.kube.test"), ("b.kube.test", HOST), (HOST, "unknown.test")):
        assert (await one.ask(alice, sni=sni, host=host)).status == 421
    assert (await one.ask(alice, sni="c.kube.test", host="b.kube.test")).status == 200
    unknown = await one.ask(alice, sni="unknown.test", host="who.test")
    assert status(unknown) == (503, "ServiceUnavailable")
    assert unknown.headers["retry-after"] == "60"
    assert "who.test" in unknown.document["message"]
    assert (await one.ask(alice, sni="unknown.test", host=HOST)).status == 421


async def test_sni_selects_cluster_when_host_is_an_address(one: World) -> None:
    """``server: https://10.0.0.1`` of a kubeconfig, with ``tls-server-name``."""
    strangers = one.strangers.pem
    other = one.cluster(
        ALL, name="b.kube.test", hosts=("b.kube.test",), client_trust="strangers",
    )  # fmt: skip
    clients = ir_gateway.TrustBundle("clients", one.clients.pem)
    servers = ir_gateway.TrustBundle("servers", one.servers.pem)
    trust = (clients, servers, ir_gateway.TrustBundle("strangers", strangers))
    await one.serve(one.cluster(), other, trust_bundles=trust)
    alice, eve = one.client("alice"), one.client("eve", authority=one.strangers)
    addresses = ("10.0.0.1", "10.0.0.1:6443", "[2001:db8::1]", "[::ffff:10.0.0.1]:6443")
    for host in addresses:
        response = await one.ask(alice, "/version", host=host)
        assert who(response) == ("alice", ["system:authenticated"])
        assert response.values("host") == [host]
        # Each cluster has its own client CAs, regardless of Host.
        assert (await one.ask(eve, "/version", host=host)).status == 401
        assert (await one.ask(alice, "/version", sni="b.kube.test", host=host)).status == 401
        assert who(await one.ask(eve, "/version", sni="b.kube.test", host=host))[0] == "eve"
        assert (await one.ask(alice, sni="unknown.test", host=host)).status == 503
    for host in ("10.0.0.1.b.kube.test", "10.0.0.1:x", "b.kube.test:10.0.0.1", "1.2.3", "[b]"):
        assert (await one.ask(alice, host=host)).status in (400, 421)


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [
        ("v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.b25l", (200, "me")),
        ("base64url.bearer.authorization.k8s.io.b25l,a,b", (200, "me")),
        ("base64url.bearer.authorization.k8s.io.b25l", (401, "")),
        ("a, base64url.bearer.authorization.k8s.io.", (401, "")),
        ("a, base64url.bearer.authorization.k8s.io.b25!", (401, "")),
        ("a, base64url.bearer.authorization.k8s.io.b25s", (401, "")),
        ("a, b", (200, "system:anonymous")),
    ],
)
async def test_websocket_subprotocol_can_carry_token(
    one: World, protocols: str, expected: tuple[int, str]
) -> None:
    one.reviewer.users["one"] = {"x-user": "me"}
    await one.serve(one.cluster())
    response = await one.ask(
        one.client(), "/api/v1/namespaces/n/pods/p/log", "GET", ("Connection", "Upgrade"),
        ("Upgrade", "websocket"), ("Sec-WebSocket-Protocol", protocols),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="), ("Sec-WebSocket-Version", "13"),
    )  # fmt: skip
    assert response.status == expected[0]
    if response.status == 200:
        # Envoy removes the body of a response that answers an upgrade with 200.
        [(_, _, headers)] = one.upstream.seen
        assert [v for k, v in headers if k == "impersonate-user"] == [expected[1]]
        assert "bearer" not in dict(headers)["sec-websocket-protocol"]
