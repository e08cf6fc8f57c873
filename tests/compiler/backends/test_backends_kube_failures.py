"""Responses to requests that a kube-apiserver received and did not answer, or never received."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes.kube_serving import HOST, World, world
from fakes.loopback import free_port
from fakes.patience import until, until_equal
from gatehouse.compiler.ir import kube_apiserver as ir

pytestmark = pytest.mark.process

OBJECTS = "/api/v1/namespaces/n/configmaps"
LOST = (
    "the connection to the server was lost before it responded; it may have processed the request"
)


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as running:
        yield running


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_write_lost_after_it_was_sent_gets_502_once(one: World, method: str) -> None:
    await one.serve(one.cluster())
    answer = await one.ask(one.client("alice"), f"{OBJECTS}/lost", method, body=b"{}")
    assert answer.status == 502
    document = answer.document
    assert (document["kind"], document["code"], document["reason"]) == (
        "Status", 502, "InternalError",
    )  # fmt: skip
    assert document["message"] == LOST
    # The hint to try again would repeat the write.
    assert "retry-after" not in answer.headers
    assert "details" not in document
    assert len(one.upstream.seen) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_read_lost_after_it_was_sent_is_repeated(one: World, method: str) -> None:
    await one.serve(one.cluster())
    answer = await one.ask(one.client("alice"), f"{OBJECTS}/lost", method)
    assert answer.status == 502
    assert len(one.upstream.seen) > 1


async def test_request_that_no_server_received_gets_503(one: World) -> None:
    server = ir.KubeApiServer("https://one", "127.0.0.1", free_port())
    await one.serve(one.cluster(servers=(server,)))
    answer = await one.ask(one.client("alice"), OBJECTS, "POST", body=b"{}")
    assert (answer.status, answer.document["reason"]) == (503, "ServiceUnavailable")
    assert int(answer.headers["retry-after"]) > 0


REASON = r"127.0.0.1:1: \"no\" route to\n\u0001 100% %1"
"""Inside of a JSON string with characters that JSON and Lua treat specially."""


async def without_server(one: World) -> None:
    """Serve a cluster whose server is not ready, and wait until Envoy knows that."""
    one.upstream.ready = False
    one.reviewer.unready = {HOST: REASON.encode()}
    await one.serve(one.cluster())

    async def unready() -> bool:
        answer = await one.ask(one.client("alice"))
        return "no ready endpoints" in str(answer.document["message"])

    await one.served.until(unready)


async def test_authenticated_clients_see_why_no_server_is_ready(one: World) -> None:
    await without_server(one)
    one.reviewer.users = {"good": {"x-user": "carol"}}
    bearer = ("Authorization", "Bearer good")
    expected = json.loads(f'"no ready endpoints: {REASON}"')
    for context, headers in ((one.client("alice"), ()), (one.client(), (bearer,))):
        answer = await one.ask(context, OBJECTS, "GET", *headers)
        assert answer.status == 503
        assert answer.document == {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": expected, "reason": "ServiceUnavailable", "code": 503,
            "details": {"retryAfterSeconds": 60},
        }  # fmt: skip
        assert answer.headers["retry-after"] == "60"
        assert "x-gh-unready" not in answer.headers
    # HEAD has no body.
    assert (await one.ask(one.client("alice"), OBJECTS, "HEAD")).status == 503


async def test_anonymous_clients_do_not_see_why_no_server_is_ready(one: World) -> None:
    await without_server(one)
    sent = [("Impersonate-User", "alice"), ("X-Gh-Unready", "alice"), ("X-Forwarded-User", "a")]
    for header in [None, *sent]:
        answer = await one.ask(one.client(), OBJECTS, "GET", *([header] if header else []))
        assert "127.0.0.1" not in answer.body.decode()
        assert "x-gh-unready" not in answer.headers
        if not header or header[0] != "Impersonate-User":
            assert (answer.status, answer.document["message"]) == (503, "no ready endpoints")


async def test_reasons_are_omitted_without_a_reviewer(one: World) -> None:
    await without_server(one)

    async def answer() -> tuple[int, str]:
        response = await one.ask(one.client("alice"))
        return response.status, response.document["message"]

    one.reviewer.unready = {}
    await until_equal(answer, (503, "no ready endpoints"))
    one.reviewer.broken = True
    count = len(one.reviewer.asked)

    async def is_asked_again() -> bool:
        assert await answer() == (503, "no ready endpoints")
        return len(one.reviewer.asked) > count

    await until(is_asked_again)  # What is cached expires.
    assert await answer() == (503, "no ready endpoints")


@pytest.mark.parametrize("key", ["a%zz", "a%2", "%", "%4"])
async def test_malformed_escape_in_an_extra_key_is_literal(one: World, key: str) -> None:
    one.reviewer.allowed = lambda _: True
    await one.serve(one.cluster())
    header = (f"Impersonate-Extra-{key}", "v")
    answer = await one.ask(one.client("alice"), OBJECTS, "GET", ("Impersonate-User", "bob"), header)
    assert answer.status == 200
    escaped = key.lower().replace("%", "%25")
    assert answer.values(f"impersonate-extra-{escaped}") == ["v"]
