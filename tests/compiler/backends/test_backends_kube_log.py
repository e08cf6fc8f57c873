"""The access log of a real Envoy, for requests of logged policies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes.kube_serving import ALL, EVERYTHING, HOST, World, world
from gatehouse.compiler.ir import kube_apiserver as ir

pytestmark = pytest.mark.process

SECRETS = ir.DispatchRule(ir.ANY, ir.ANY, ir.ANY, ir.ANY, ir.Names(("secrets",)), ir.ANY, ir.NONE)
FIELDS = {
    "time", "cluster", "user", "groups", "impersonator", "verb", "group", "resource", "namespace",
    "name", "path", "policy", "schema", "client", "peer", "sni", "method", "protocol",
    "user_agent", "endpoint", "attempts",
    "grpc_status", "status", "details", "flags", "duration_ms",
    "bytes_received", "bytes_sent",
}  # fmt: skip


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as proxy:
        yield proxy


async def lines(one: World, count: int) -> list[dict[str, object]]:
    async def written() -> bool:
        return len(one.log()) >= count

    await one.served.until(written)
    assert len(one.log()) == count
    return one.log()


async def test_access_log_line_has_user_request_and_response(one: World) -> None:
    one.reviewer.allowed = lambda _: True
    schema = ir.FlowSchema("s", ir.InFlight(5))
    logged = ir.DispatchPolicy((SECRETS,), schema="s", logged=True)
    await one.serve(
        one.cluster(ir.DispatchPolicy((ir.DispatchRule(),)), logged, ALL, schemas=(schema,))
    )
    alice = one.client("alice", "dev")
    await one.ask(alice, "/api/v1/pods")
    sent = ("Impersonate-User", "bob"), ("Impersonate-Group", "ops"), ("User-Agent", "kubectl")
    await one.ask(alice, "/api/v1/namespaces/n/secrets/s?a=b", "PUT", *sent, body=b"12345")
    [line] = await lines(one, 1)
    expected = {
        "cluster": HOST, "user": "bob", "groups": ["ops", "system:authenticated"],
        "impersonator": "alice", "verb": "update", "group": "", "resource": "secrets",
        "namespace": "n", "name": "s", "path": "/api/v1/namespaces/n/secrets/s", "policy": 1,
        "schema": "s", "status": 200, "flags": "-", "details": "via_upstream",
        "user_agent": "kubectl", "endpoint": f"127.0.0.1:{one.upstream.port}",
        "client": "127.0.0.1", "peer": "127.0.0.1", "sni": HOST, "method": "PUT", "attempts": 1,
    }  # fmt: skip
    assert {key: line[key] for key in expected} == expected
    assert {*line} == FIELDS
    assert isinstance(line["duration_ms"], int)
    assert isinstance(line["bytes_sent"], int)
    assert isinstance(line["bytes_received"], int)
    assert line["bytes_received"] > 5


async def test_rejected_requests_are_logged(one: World) -> None:
    schema = ir.FlowSchema("s", ir.InFlight(0))
    logged = ir.DispatchPolicy((EVERYTHING,), schema="s", logged=True)
    await one.serve(one.cluster(logged, schemas=(schema,)))
    assert (await one.ask(one.client("alice"), "/api/v1/pods")).status == 429
    [line] = await lines(one, 1)
    assert (line["status"], line["flags"], line["schema"]) == (429, "UO", "s")
    assert "overflow" in str(line["details"])


HOSTILE = 'a"b\\c,d{}\u2028\u00e4%REQ(x)%<script>'


async def test_client_values_are_escaped_in_access_log(one: World) -> None:
    await one.serve(one.cluster(ir.DispatchPolicy((EVERYTHING,), logged=True)))
    named = "".join(f"%{byte:02X}" for byte in HOSTILE.encode())
    one.reviewer.users["t"] = {"x-user": named, "x-groups": f"{named},x%2Csystem:masters"}
    path = f"/api/v1/namespaces/{named}/pods/%0A%22%7D{named}"
    token = ("Authorization", "Bearer t"), ("User-Agent", 'x"}\\\x7f\xff')
    assert (await one.ask(one.client(), path, "GET", *token)).status in (200, 400)
    assert (await one.ask(one.client(), path, "GET", *token[:1])).status == 200
    line = (await lines(one, len(one.log()) or 1))[-1]
    expected = {
        "user": HOSTILE, "groups": [HOSTILE, "x,system:masters", "system:authenticated"],
        "namespace": HOSTILE, "name": f'\n"}}{HOSTILE}', "verb": "get", "resource": "pods",
    }  # fmt: skip
    assert {key: line[key] for key in expected} == expected
    assert {*line} == FIELDS
