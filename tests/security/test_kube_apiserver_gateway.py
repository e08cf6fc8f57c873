"""Attacks on kube-apiservers behind Envoy: credentials after their end, and doubled requests."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cryptography import x509

from fakes import kube_upstream, patience
from fakes.kube_serving import World, world
from fakes.patience import until
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir

pytestmark = pytest.mark.process


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as kube_world:
        yield kube_world


async def test_expired_certificate_is_denied_on_an_open_connection(one: World) -> None:
    """A user whose certificate expired, on a connection that was opened before: as with a
    kube-apiserver, each request is denied from then on. Other users go on."""
    await one.serve(one.cluster())
    context = ssl.create_default_context(cafile=str(one.servers.file))
    lifetime = datetime.timedelta(seconds=5 * patience.FACTOR)
    context.load_cert_chain(*one.clients.issue_to("alice", ends=lifetime))
    expired, other = await one.connect(context), await one.connect(one.client("bob"))
    assert (await expired.ask("/api/v1/pods")).status == 200
    assert (await other.ask("/api/v1/pods")).status == 200

    async def denied() -> bool:
        return (await expired.ask("/api/v1/pods")).status == 401

    await until(denied)
    request_count = len(one.upstream.seen)
    assert await denied()
    assert len(one.upstream.seen) == request_count
    assert (await other.ask("/api/v1/pods")).status == 200


async def test_deleted_token_is_denied_after_its_time_in_the_cache(one: World) -> None:
    """A user with a token that the servers no longer accept: it is denied after the documented
    time, on open connections too, however often it was used meanwhile."""
    token = "deleted-soon"
    one.reviewer.users[token] = {"x-user": "alice", "x-keep": "2"}
    await one.serve(one.cluster())
    connection = await one.connect(one.client())
    header = ("Authorization", f"Bearer {token}")
    assert (await connection.ask("/api/v1/pods", "GET", header)).status == 200
    one.reviewer.users.clear()

    async def denied() -> bool:
        return bool((await connection.ask("/api/v1/pods", "GET", header)).status != 200)

    # Its use all the time does not keep it in the cache.
    await until(denied)


@pytest.mark.parametrize("ending", ["goaway", "abort"])
async def test_request_that_a_server_received_is_not_sent_twice(one: World, ending: str) -> None:
    """A server that ends while it handles a write, with another server beside it: the write may
    have happened, so that the client gets an error and decides itself. A read is repeated."""
    context = one.servers.server("kube", x509.DNSName("kube.test"))
    async with kube_upstream.serving("two", context) as second:
        servers = (
            ir.KubeApiServer("https://one", "127.0.0.1", one.upstream.port),
            ir.KubeApiServer("https://two", "127.0.0.1", second.port),
        )
        await one.serve(one.cluster(servers=servers))
        alice = one.client("alice")
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            one.upstream.refusals = second.refusals = 1
            target = f"/api/v1/namespaces/n/pods/{ending}-{method}"
            # A response may end in the middle.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
                answer = await one.ask(
                    alice, target, method, body=b"{}" if method != "DELETE" else b""
                )
                assert answer.status != 200 or ending == "abort"
            received = [
                request for request in (*one.upstream.seen, *second.seen) if request[1] == target
            ]
            assert len(received) == 1, method
        if ending == "goaway":
            one.upstream.refusals = second.refusals = 1
            assert (await one.ask(alice, "/api/v1/namespaces/n/pods/goaway")).status == 200


async def test_refused_write_is_sent_to_another_server(one: World) -> None:
    """A server that says that it did not handle a write (REFUSED_STREAM): the write is repeated,
    and happens once."""
    await one.serve(one.cluster())
    one.upstream.refusals = 1
    target = "/api/v1/namespaces/n/pods/refuse"
    assert (await one.ask(one.client("alice"), target, "POST", body=b"{}")).status == 200
    assert one.upstream.refusals == 0


@pytest.mark.parametrize("token", ["", "t"])
async def test_response_does_not_make_a_server_unhealthy(one: World, token: str) -> None:
    """A tenant whose Pod answers through a kube-apiserver (``services/proxy``, an extension API),
    with a header by which Envoy takes a server out of service: all users reach it as before."""
    one.upstream.more_headers = [
        ("x-envoy-immediate-health-check-fail", "true"),
        ("x-envoy-degraded", "true"),
        ("x-gh-unready", "alice"),
    ]
    secrets = (ir_gateway.SecretFile("t", ir_gateway.SecretBytes(b"x")),) if token else ()
    await one.serve(one.cluster(token=token), secrets=secrets)
    alice, bob = one.client("alice"), one.client("bob")
    upgrade = (("Connection", "upgrade"), ("Upgrade", "websocket"))
    path = "/api/v1/namespaces/a/services/b/proxy/"
    for _ in range(5):
        response = await one.ask(alice, path)
        assert response.status == 200
        removed = ("x-envoy-", "x-gh-")
        assert not [name for name in response.headers if name.startswith(removed)]
        assert (await one.ask(alice, f"{path}refused", "GET", *upgrade)).status == 403
        assert (await one.ask(bob)).status == 200
        assert (await one.ask(bob, "/api/v1/refused", "GET", *upgrade)).status == 403
    if token:
        assert ("authorization", "Bearer x") in one.upstream.seen[-1][2]
