"""Attacks by requests: a user without rights, or with rights in one namespace, sends hostile
bodies, queries and headers to the embedded API server. It rejects them with a Status and serves
others.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from fakes.inprocess import Server
from fakes.loop_stalls import no_stalls
from fakes.patience import limit, until
from gatehouse.standalone.state_directory import State
from kube_api_server.http import body_reader, requests, selectors
from kube_base.types.document_limits import MAX_NODES

MAPS = "/api/v1/namespaces/default/configmaps"
ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON, YAML, APPLY = "application/json", "application/yaml", "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
MEGABYTE = 1024 * 1024
MAX_CPU_SECONDS = 2.0
"""CPU time of one of these requests. Each took 5 s to minutes, and takes less than 0.3 s."""

LARGE_KEYS = MAX_NODES // 2 - 100
HUGE = "9" * 5000


async def send(
    http: aiohttp.ClientSession, method: str, path: str, data: bytes, kind: str = JSON
) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": kind}
    async with http.request(method, path, data=io.BytesIO(data), headers=headers) as response:
        assert response.content_type == JSON, await response.text()
        return response.status, await response.json()


def data_fields(value: str) -> str:
    return ",".join(f'"k{number}":"{value}"' for number in range(LARGE_KEYS))


def config_map(name: str, value: str) -> bytes:
    head = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}'
    return f'{head},"data":{{{data_fields(value)}}}}}'.encode()


def field(number: int, data: bytes) -> bytes:
    size, length = bytearray(), len(data)
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + data


def protobuf(kind: str, obj: bytes) -> bytes:
    head = field(1, field(1, b"v1") + field(2, kind.encode()))
    return b"k8s\0" + head + field(2, obj)


def protobuf_config_map(name: str) -> bytes:
    entries = (field(2, field(1, b"k%d" % n) + field(2, b"v")) for n in range(LARGE_KEYS))
    return protobuf("ConfigMap", field(1, field(1, name.encode())) + b"".join(entries))


async def test_large_objects_of_every_format_do_not_stall_the_event_loop(server: Server) -> None:
    """A user with the right to ConfigMaps of one namespace sends objects of the maximum size."""
    yaml = "metadata: {name: y}\ndata:\n" + "".join(f"  k{n}: v\n" for n in range(LARGE_KEYS))
    requests = (
        ("POST", MAPS, JSON, config_map("j", "v")),
        ("PUT", f"{MAPS}/j?fieldValidation=Strict", JSON, config_map("j", "w")),
        ("PATCH", f"{MAPS}/j", MERGE, f'{{"data":{{{data_fields("x")}}}}}'.encode()),
        ("POST", MAPS, YAML, yaml.encode()),
        ("POST", MAPS, PROTOBUF, protobuf_config_map("p")),
        ("PATCH", f"{MAPS}/a?fieldManager=a", APPLY, config_map("a", "v")),
        ("PATCH", f"{MAPS}/a?fieldManager=b&force=1", APPLY, config_map("a", "w")),
    )
    async with server.raw() as http, no_stalls():
        for method, path, kind, data in requests:
            code, status = await send(http, method, path, data, kind)
            assert code in (200, 201), status


async def test_large_objects_are_processed_outside_of_the_event_loop(server: Server) -> None:
    """The same user. While its object is processed, other requests are answered."""
    async with server.raw() as http, server.raw() as other:
        task = asyncio.create_task(send(http, "POST", MAPS, config_map("j", "v")))
        answered = 0
        while not task.done():
            async with other.get("/livez") as response:
                assert response.status == 200
            answered += 1
        assert (await task)[0] == 201
    assert answered > 3


UNTERMINATED = b"[" + b"," * 100_001 + b'"\\' * 20_000
LONG_KEY = b'{"metadata":{"name":"a"},"%s":[%s{"a":1,"a":2}]}' % (b"k" * MEGABYTE, b"{}," * 40_000)
FINALIZERS = json.dumps({"metadata": {"finalizers": [f"a/{n}" for n in range(40_000)]}}).encode()
HOSTILE_NAME = json.dumps({"data": {'must be of type a: "' * 20_000 + "\n": 5}}).encode()


@pytest.mark.parametrize(
    ("method", "path", "kind", "data", "code"),
    [
        ("POST", REVIEWS, JSON, UNTERMINATED, 400),
        ("POST", f"{MAPS}?fieldValidation=Strict", JSON, LONG_KEY, 400),
        ("PATCH", f"{MAPS}/a", STRATEGIC, FINALIZERS, 200),
        ("POST", MAPS, JSON, HOSTILE_NAME, 400),
    ],
    ids=["unterminated strings", "long key", "finalizers", "hostile name"],
)  # fmt: skip
async def test_bodies_that_once_took_quadratic_time_do_not_stall_the_event_loop(
    server: Server, method: str, path: str, kind: str, data: bytes, code: int
) -> None:
    """A user without rights sends strings that do not end, others long keys and lists."""
    async with server.raw() as http:
        await send(http, "POST", MAPS, b'{"metadata":{"name":"a"}}')
        async with no_stalls():
            started = time.process_time()
            assert (await send(http, method, path, data, kind))[0] == code
            used = time.process_time() - started
    assert used < MAX_CPU_SECONDS


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"ports": [5]}},
        {"spec": {"ports": [5, {"$patch": "replace"}]}},
        {"spec": {"$retainKeys": 5}},
        {"spec": {"$setElementOrder/ports": 5}},
        {"metadata": {"$deleteFromPrimitiveList/labels": ["a"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": 5}},
        {"metadata": {"$retainKeys": [[]]}},
    ],
)  # fmt: skip
async def test_strategic_merge_patches_of_wrong_types_are_no_internal_errors(
    server: Server, patch: Any
) -> None:
    """A user with the right to patch Services sends directives with values of wrong types."""
    services = "/api/v1/namespaces/default/services"
    service = {"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"ports": [{"port": 80}]}}
    async with server.raw() as http:
        await send(http, "POST", services, json.dumps(service).encode())
        data = json.dumps(patch).encode()
        code, status = await send(http, "PATCH", f"{services}/a", data, STRATEGIC)
    assert code < 500, status


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (JSON, b'{"x":[' + b"[]," * 900_000 + b"[]]}"),
        (JSON, b'{"x":[' + b"1," * 900_000 + b"1]}"),
        (JSON, b'{"x":{' + b'"":1,' * 500_000 + b'"":1}}'),
        (YAML, b"x: [" + b"1," * 900_000 + b"1]"),
        (APPLY, b'{"x":[' + b"{}," * 900_000 + b"{}]}"),
        (PROTOBUF, protobuf("Service", field(2, field(1, b"") * 1_400_000))),
    ],
)  # fmt: skip
async def test_bodies_with_too_many_nodes_are_rejected(
    server: Server, kind: str, data: bytes
) -> None:
    """A user without rights sends 3 MB that decode to a million objects."""
    async with server.raw() as http:
        method, path = ("PATCH", f"{MAPS}/a?fieldManager=a") if kind == APPLY else ("POST", MAPS)
        code, status = await send(http, method, path, data, kind)
    assert code == 400, status
    assert "keys and values" in status["message"]


async def test_separators_in_strings_are_no_nodes(server: Server) -> None:
    """A ConfigMap with a large text of commas, brackets and quotes is valid."""
    text = '\\"[{,:' * 100_000
    body = f'{{"metadata":{{"name":"a"}},"data":{{"a":"{text}"}}}}'.encode()
    async with server.raw() as http:
        code, status = await send(http, "POST", MAPS, body)
    assert code == 201, status


HOSTILE_VALUES: tuple[Any, ...] = (
    5, "x", [], {}, [5], [[]], {"a": 5}, True, None, -1, 1.5, 10**18, 2**63, 2**64 + 1, 1e308,
    "\ud7ff\0",
)  # fmt: skip
SPECS = {
    "/apis/authentication.k8s.io/v1/tokenreviews": ("token", "audiences"),
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": (
        "user", "groups", "uid", "extra", "resourceAttributes", "nonResourceAttributes",
    ),
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": (
        "resourceAttributes", "nonResourceAttributes",
    ),
    "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews": (
        "user", "resourceAttributes",
    ),
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": ("namespace",),
    f"{ACCOUNT}/token": ("audiences", "expirationSeconds", "boundObjectRef"),
}  # fmt: skip


@pytest.mark.parametrize("path", SPECS)
async def test_reviews_with_values_of_wrong_types_are_no_internal_errors(
    server: Server, path: str
) -> None:
    """A user without rights sends reviews, which all users may, with values of wrong types."""
    bodies: list[Any] = [{"metadata": value} for value in HOSTILE_VALUES]
    bodies += [{"spec": value} for value in HOSTILE_VALUES]
    for field in SPECS[path]:
        bodies += [{"spec": {field: value}} for value in HOSTILE_VALUES]
        bodies += [{"spec": {"user": "a", field: value}} for value in HOSTILE_VALUES]
        for inner in ("verb", "path", "namespace", "name", "kind", "group", "uid"):
            bodies += [{"spec": {"user": "a", field: {inner: value}}} for value in HOSTILE_VALUES]
    async with server.raw() as http:
        for body in bodies:
            code, status = await send(http, "POST", path, json.dumps(body).encode())
            assert code < 500, (body, status)


async def test_delete_options_with_hostile_values_are_no_internal_errors(server: Server) -> None:
    """A user with the right to delete ConfigMaps and Pods sends hostile options."""
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c"}]}}
    pods = "/api/v1/namespaces/default/pods"
    fields = (
        "gracePeriodSeconds",
        "preconditions",
        "propagationPolicy",
        "orphanDependents",
        "dryRun",
    )
    async with server.raw() as http:
        for field in fields:
            for value in HOSTILE_VALUES:
                await send(http, "POST", MAPS, b'{"metadata":{"name":"a"}}')
                await send(http, "POST", pods, json.dumps(pod).encode())
                for path in (f"{MAPS}/a", f"{pods}/p", MAPS):
                    body = json.dumps({field: value}).encode()
                    code, status = await send(http, "DELETE", path, body)
                    assert code < 500, (path, field, value, status)


@pytest.mark.parametrize(
    "query",
    [
        f"limit={HUGE}", "limit=-1x", "limit=%D9%A3", "limit=1e3", "limit=+-1",
        f"resourceVersion={HUGE}", f"watch=1&timeoutSeconds={HUGE}",
        "watch=1&resourceVersion=9223372036854775808", f"continue={'W1tb' * 1500}", "continue=%FF",
        "continue=eyJzdGFydCI6IngiLCJydiI6LTV9", "labelSelector=" + "a," * 3000 + "b",
        "fieldSelector=" + "metadata.name=a," * 400 + "metadata.name=b",
        "labelSelector=" + "(" * 7000,
        "fieldSelector=" + "%5C" * 2000,
    ],
)  # fmt: skip
async def test_hostile_queries_are_rejected(server: Server, query: str) -> None:
    """A user with the right to list sends numbers, tokens and selectors of absurd size."""
    async with server.raw() as http, http.get(f"{MAPS}?{query}") as response:
        assert response.status == 400, await response.text()
        assert (await response.json())["kind"] == "Status"


@pytest.mark.parametrize("seconds", [HUGE, "9" * 18, "-" + "9" * 18, "1e9"])
async def test_hostile_grace_periods_are_no_internal_errors(server: Server, seconds: str) -> None:
    """A user with the right to delete Pods sends grace periods of millions of years."""
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c"}]}}
    pods = "/api/v1/namespaces/default/pods"
    async with server.raw() as http:
        await send(http, "POST", pods, json.dumps(pod).encode())
        code, status = await send(http, "DELETE", f"{pods}/p?gracePeriodSeconds={seconds}", b"")
    assert code < 500, status


async def test_selector_has_at_most_the_documented_requirements(server: Server) -> None:
    """A user with the right to watch would have each requirement compared with each change."""
    allowed = ",".join(["a"] * selectors.MAX_TERMS)
    async with server.raw() as http:
        for selector, code in ((allowed, 200), (f"{allowed},a", 400)):
            async with http.get(MAPS, params={"labelSelector": selector}) as response:
                assert response.status == code


async def test_requests_that_are_no_http_are_answered_without_a_log_entry(
    server: Server, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A client without credentials sends lines that are too long, and malformed numbers."""
    heads = (
        f"GET /api?{'a' * 100_000} HTTP/1.1\r\n",
        f"GET /api HTTP/1.1\r\nX: {'a' * 100_000}\r\n",
        f"GET /api HTTP/1.1\r\n{'X: a' * 1}\r\n" + "X: a\r\n" * 10_000,
        f"POST /api HTTP/1.1\r\nContent-Length: {HUGE}\r\n",
        "POST /api HTTP/1.1\r\nContent-Length: -1\r\n",
        "GET /api HTTP/9.9\r\n",
        "\x00\x01\x02\r\n",
    )
    capfd.readouterr()
    async with server.raw() as http:
        connector = http.connector
        assert isinstance(connector, aiohttp.TCPConnector)
        for head in heads:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=connector._ssl, server_hostname="localhost"
            )
            with contextlib.suppress(ConnectionError):
                writer.write(head.encode() + b"Host: a\r\n\r\n")
                await writer.drain()
                async with limit():
                    assert b" 400 " in await reader.readline(), head[:60]
            writer.close()
    assert "Traceback" not in capfd.readouterr().err
    assert "Traceback" not in caplog.text


async def test_bodies_in_progress_of_one_user_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user without rights announces large bodies and sends them slowly, to fill the memory."""
    monkeypatch.setattr(body_reader, "PENDING_BYTES", 1_000_000)
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("one,one,1\ntwo,two,2\n")
    server = Server(State(tmp_path / "state"), token_file=tokens)
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = b'{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}'
    arriving: list[int | None] = []
    read = requests._read

    async def recorded(request: web.BaseRequest) -> bytes:
        arriving.append(request.content_length)
        return await read(request)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    monkeypatch.setattr(requests, "_read", recorded)

    async with (
        server.running(),
        server.raw(Authorization="Bearer one") as one,
        server.raw(Authorization="Bearer two") as two,
    ):
        headers = {"Content-Length": "900000"}
        slow = asyncio.create_task(one.post(path, data=slowly(), headers=headers).__aenter__())
        await until(lambda: arriving)
        async with one.post(path, data=io.BytesIO(body + b" " * 200_000)) as response:
            assert response.status == 429
        code, _ = await send(two, "POST", path, body + b" " * 200_000)
        assert code == 201
        slow.cancel()


async def test_body_that_does_not_arrive_is_abandoned(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user without rights sends a half body and waits."""
    monkeypatch.setattr(body_reader, "BODY_SECONDS", 0.3)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    headers = {"Content-Length": "100"}
    async with (
        server.raw() as http,
        limit(),
        http.post(MAPS, data=never(), headers=headers) as response,
    ):
        assert response.status == 504


async def test_aborted_and_malformed_bodies_leave_no_traceback(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    """A user without rights closes connections within bodies. Each traceback took 100 ms."""
    head = b"DELETE %b/a HTTP/1.1\r\nHost: a\r\n" % MAPS.encode()
    capfd.readouterr()
    async with server.raw() as http:
        connector = http.connector
        assert isinstance(connector, aiohttp.TCPConnector)
        for rest in (b"Content-Length: 9\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=connector._ssl, server_hostname="localhost"
            )
            writer.write(head + rest)
            await writer.drain()
            # The server, which has the same event loop, reads it before it answers.
            async with http.get("/livez") as response:
                assert response.status == 200
            assert writer.transport is not None
            writer.transport.abort()
        # A traceback would precede the answer to a later connection.
        async with http.get("/livez") as response:
            assert response.status == 200
    output = capfd.readouterr()
    assert "Traceback" not in output.out + output.err
