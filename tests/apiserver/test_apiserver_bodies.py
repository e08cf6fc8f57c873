"""Hostile request bodies and queries: the API server rejects them and continues to serve."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import ssl
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes import patience
from fakes.inprocess import Server
from fakes.loop_stalls import no_stalls
from gatehouse.standalone.state_directory import State

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
MAPS = "/api/v1/namespaces/default/configmaps"
YAML = "application/yaml"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    },
}


def merged_keys() -> bytes:
    wide = "".join(f"  k{number}: 1\n" for number in range(2000))
    return f"x: &x\n{wide}y: {{<<: [{'*x, ' * 20_000}*x]}}\n".encode()


def aliased(levels: int = 9) -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
    return "\n".join(lines).encode()


YAML_BOMBS = {
    "open brackets": b"a: " + b"[" * 40_000,
    "open braces": b"a: " + b"{a: " * 40_000,
    "block sequences": b"- " * 40_000,
    "compact mappings": b"".join(b" " * n + b"k:\n" for n in range(2000)),
    "merge keys": merged_keys(),
    "one merge key": b"x: &x {a: b}\ny: {<<: *x}\n",
    "aliases of aliases": aliased(),
    "alias of a long text": b"- &a " + b"x" * 100_000 + b"\n- *a" * 20_000,
    "alias of itself": b"a: &a [*a]",
    "alias of nothing": b"a: *b",
    "tag directives": b"".join(b"%%TAG !e%d! tag:x\n" % n for n in range(20_000)) + b"--- a",
    "large number": b"a: " + b"9" * 5000 + b"\nb: !!int '" + b"9" * 5000 + b"'",
    "number in base 60": b"a: !!int '1" + b":59" * 100_000 + b"'",
    "a million nodes": b"a: [" + b"1," * 1_000_000 + b"1]",
    "set": b"a: !!set {b, c}",
    "python object": b"a: !!python/object/apply:os.getpid []",
    "binary": b"a: !!binary aGVsbG8=",
    "list as a key": b"? [a, b]\n: c",
    "not a number": b"a: .nan",
    "not UTF-8": b"a: \xff\xfe",
    "second document": b"a: b\n---\nc: d\n",
    "broken": b"a: [b",
}


@contextlib.asynccontextmanager
async def monitored_liveness(http: aiohttp.ClientSession) -> AsyncIterator[None]:
    """Read /livez continuously. Fail if the event loop stalls."""
    done = asyncio.Event()
    count = 0

    async def ping() -> None:
        nonlocal count
        while not done.is_set():
            async with patience.limit(), http.get("/livez") as response:
                assert response.status == 200
            count += 1

    task = asyncio.create_task(ping())
    try:
        async with no_stalls():
            yield
    finally:
        done.set()
        await task
    assert count > 0


async def post(
    http: aiohttp.ClientSession, path: str, data: bytes, kind: str, method: str = "POST"
) -> tuple[int, dict[str, Any]]:
    async with patience.limit():
        headers = {"Content-Type": kind}
        async with http.request(method, path, data=io.BytesIO(data), headers=headers) as response:
            return response.status, await response.json()


@pytest.mark.parametrize("name", YAML_BOMBS)
async def test_hostile_yaml_is_rejected_without_delaying_other_requests(
    server: Server, name: str
) -> None:
    async with server.raw() as http, server.raw() as other, monitored_liveness(other):
        for kind in (YAML, APPLY):
            method, path = ("POST", REVIEWS) if kind == YAML else ("PATCH", f"{MAPS}/a")
            query = "" if kind == YAML else "?fieldManager=test"
            code, status = await post(http, path + query, YAML_BOMBS[name], kind, method)
            assert (code, status["kind"]) == (400, "Status"), status


async def test_merge_keys_are_named_in_the_error(server: Server) -> None:
    async with server.raw() as http:
        code, status = await post(http, MAPS, YAML_BOMBS["one merge key"], YAML)
    assert code == 400
    assert "merge keys (<<) are not supported" in status["message"]
    assert "line 2" in status["message"]


async def test_yaml_with_anchors_is_accepted(server: Server) -> None:
    body = (
        b"metadata:\n  name: a\n  labels: &l {x: 'y', on: '1'}\n  annotations: *l\ndata: {1: '2'}\n"
    )
    async with server.raw() as http:
        code, created = await post(http, MAPS, body, YAML)
    assert code == 201, created
    assert (
        created["metadata"]["labels"]
        == created["metadata"]["annotations"]
        == {"x": "y", "true": "1"}
    )
    assert created["data"] == {"1": "2"}


def nested(depth: int, leaf: Any = 1) -> str:
    return '{"f":' * depth + json.dumps(leaf) + "}" * depth


@pytest.mark.parametrize("depth", [250, 500, 900, 5000])
async def test_deeply_nested_json_is_rejected(server: Server, depth: int) -> None:
    body = f'{{"metadata":{{"name":"a"}},"x":{nested(depth)}}}'.encode()
    async with server.raw() as http:
        for kind, method, path in (
            ("application/json", "POST", MAPS),
            ("application/json", "POST", MAPS + "?fieldValidation=Strict"),
            ("application/json", "POST", REVIEWS),
            ("application/json", "PUT", MAPS + "/a"),
            ("application/json", "DELETE", MAPS + "/kube-root-ca.crt"),
            ("application/merge-patch+json", "PATCH", MAPS + "/a"),
            (APPLY, "PATCH", MAPS + "/a?fieldManager=x"),
        ):
            code, status = await post(http, path, body, kind, method)
            assert (code, status["reason"]) == (400, "BadRequest"), (path, status)
            assert "nested more than 200 levels" in status["message"]


@pytest.mark.parametrize("depth", [200, 2000])
async def test_deeply_nested_protobuf_is_rejected(server: Server, depth: int) -> None:
    """A CustomResourceDefinition whose schema is nested, and one with nested JSON in it."""

    def field(number: int, data: bytes) -> bytes:
        size, length = bytearray(), len(data)
        while length > 0x7F:
            size.append(length & 0x7F | 0x80)
            length >>= 7
        tag = number << 3 | 2
        head = bytes([tag]) if tag < 0x80 else bytes([tag & 0x7F | 0x80, tag >> 7])
        return head + bytes([*size, length]) + data

    def definition(schema: bytes) -> bytes:
        version = field(1, b"v1") + field(4, field(1, schema))
        meta = field(1, b"apiextensions.k8s.io/v1") + field(2, b"CustomResourceDefinition")
        return b"k8s\0" + field(1, meta) + field(2, field(2, field(7, version)))

    schema = b""
    for _ in range(depth):
        # Field 28 is `not`.
        schema = field(28, schema)
    open_json = field(8, field(1, b"[" * depth + b"]" * depth))
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    kind = "application/vnd.kubernetes.protobuf"
    async with server.raw() as http:
        for body in (definition(schema), definition(open_json)):
            code, status = await post(http, path, body, kind)
            assert code == 400
            assert "nested more than 200 levels" in status["message"], status["message"]


async def test_json_patch_cannot_create_a_deeply_nested_object(server: Server) -> None:
    doubling = [
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}},
        *({"op": "copy", "from": "", "path": "/metadata/annotations/a"} for _ in range(12)),
    ]
    long_paths = [{"op": "add", "path": "/data", "value": {}}]
    for depth in range(1, 700, 100):
        value = json.loads(nested(100, {}))
        long_paths.append({"op": "add", "path": "/data" + "/f" * depth, "value": value})
    async with server.raw() as http:
        code, _ = await post(http, MAPS, b'{"metadata":{"name":"a"}}', "application/json")
        assert code == 201
        for operations in (doubling, long_paths):
            body = json.dumps(operations).encode()
            code, status = await post(http, f"{MAPS}/a", body, JSON_PATCH, "PATCH")
            assert code in (400, 413, 422), status


@pytest.mark.parametrize("place", ["", "/scale"])
@pytest.mark.parametrize(
    ("operations", "answer"),
    [
        ({}, (400, "BadRequest", "a JSON patch is a list of operations")),
        ([{"op": "test", "path": "/spec", "value": 0}], (422, "Invalid", "the JSON patch cannot")),
        (
            [{"op": "test", "path": "/kind", "value": "x"}] * 10_001,
            (413, "RequestEntityTooLarge", "the allowed maximum of operations"),
        ),
    ],
)
async def test_json_patch_failure_has_the_response_of_its_type(
    server: Server, place: str, operations: Any, answer: tuple[int, str, str]
) -> None:
    async with server.raw() as http:
        code, _ = await post(http, DEPLOYMENTS, json.dumps(DEPLOYMENT).encode(), "application/json")
        assert code == 201
        body = json.dumps(operations).encode()
        code, status = await post(http, f"{DEPLOYMENTS}/d{place}", body, JSON_PATCH, "PATCH")
    assert (code, status["reason"]) == answer[:2]
    assert status["message"].startswith(answer[2])


async def test_strategic_merge_patch_without_merge_key_is_a_bad_request(server: Server) -> None:
    containers = [{"image": "i"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    async with server.raw() as http:
        code, _ = await post(http, DEPLOYMENTS, json.dumps(DEPLOYMENT).encode(), "application/json")
        assert code == 201
        body = json.dumps(patch).encode()
        code, status = await post(http, f"{DEPLOYMENTS}/d", body, STRATEGIC_PATCH, "PATCH")
    assert (code, status["reason"]) == (400, "BadRequest")
    assert "does not contain declared merge key: name" in status["message"]


async def test_warnings_about_many_unknown_fields_are_limited(server: Server) -> None:
    """Clients limit headers. kube-apiserver sends the same number, cut to the same length."""
    body = {"metadata": {"name": "a"}, **{f"f{number:04}{'x' * 300}": 1 for number in range(3000)}}
    path = f"{MAPS}?dryRun=All&fieldValidation="
    async with server.raw() as http:
        async with http.post(f"{path}Warn", json=body) as response:
            assert response.status == 201
            warnings = response.headers.getall("Warning")
        async with http.post(f"{path}Strict", json=body) as response:
            assert response.status == 400
            message = (await response.json())["message"]
    assert len(warnings) == 16
    assert {len(warning) for warning in warnings} == {256 + len('299 - ""') + len("\\")}
    assert message.count("unknown field") == 100


@pytest.mark.parametrize("amount", ["1e999999999", "1e1001", "-1e1001", "1e-1001"])
async def test_quantities_of_too_many_digits_are_rejected(server: Server, amount: str) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": amount}}}
    async with server.raw() as http, monitored_liveness(http):
        status, answer = await post(http, QUOTAS, json.dumps(body).encode(), "application/json")
    assert status == 422
    assert "must be a quantity" in answer["message"]


async def test_large_quantities_exceed_a_quota(server: Server) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"memory": "1Gi", "pods": 10**400}}}
    container = {"name": "c", "image": "i", "resources": {"requests": {"memory": "1e1000"}}}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    async with server.raw() as http:
        data = json.dumps(quota).encode()
        assert (await post(http, QUOTAS, data, "application/json"))[0] == 201
        data = json.dumps(pod).encode()
        path = "/api/v1/namespaces/default/pods"
        status, answer = await post(http, path, data, "application/json")
    assert status == 403
    assert "exceeded quota: q, requested: memory=9223372036854775807" in answer["message"]


async def test_label_of_a_template_that_is_no_text_is_rejected(server: Server) -> None:
    """A ReplicationController takes its labels from the template."""
    template = {**DEPLOYMENT["spec"]["template"], "metadata": {"labels": {"a": {}}}}  # type: ignore[index]
    body = {"metadata": {"name": "r"}, "spec": {"template": template}}
    path = "/api/v1/namespaces/default/replicationcontrollers"
    async with server.raw() as http:
        assert (await post(http, path, json.dumps(body).encode(), "application/json"))[0] == 400


async def test_many_duplicate_fields_are_reported_in_one_pass(server: Server) -> None:
    twice = ",".join(f'"k{number}":1,"k{number}":1' for number in range(5000))
    many = "{}," * 20_000
    body = f'{{"metadata":{{"name":"a"}},"x":[{many}{{"y":{{{twice}}}}}]}}'.encode()
    async with server.raw() as http, server.raw() as other, monitored_liveness(other):
        code, status = await post(http, MAPS + "?fieldValidation=Strict", body, "application/json")
    assert code == 400
    assert 'duplicate field "x[20000].y.k0"' in status["message"]
    assert len(status["message"]) < 2000


@pytest.mark.parametrize(
    "query",
    [
        f"limit={'9' * 5000}", "limit=-1x", "limit=%D9%A3", f"resourceVersion={'9' * 5000}",
        f"watch=1&timeoutSeconds={'9' * 5000}", "continue=" + "W1tb" * 1500,
        "continue=eyJzdGFydCI6IngiLCJydiI6LTV9",
    ],
)  # fmt: skip
async def test_out_of_range_query_numbers_are_rejected(server: Server, query: str) -> None:
    async with server.raw() as http, http.get(f"{MAPS}?{query}") as response:
        assert response.status == 400, await response.text()


@pytest.mark.parametrize("seconds", ["9" * 5000, "--5", "%D9%A3", "x"])
async def test_invalid_grace_period_is_rejected(server: Server, seconds: str) -> None:
    async with server.raw() as http:
        await post(http, MAPS, b'{"metadata":{"name":"a"}}', "application/json")
        path = f"{MAPS}/a?gracePeriodSeconds={seconds}"
        async with http.delete(path) as response:
            assert response.status == 400, await response.text()


async def test_compressed_bodies_are_rejected_without_decompression(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    inflated = 0

    def counted(*_: Any, **__: Any) -> Any:
        nonlocal inflated
        inflated += 1
        raise AssertionError("nothing may be inflated")

    bomb = gzip.compress(b" " * (64 << 20))
    async with server.raw(Authorization="none") as nobody, server.raw() as http:
        monkeypatch.setattr("aiohttp.http_parser.ZLibDecompressor.decompress_sync", counted)
        for session in (nobody, http):
            for coding in ("gzip", "deflate", "br", "zstd", "GZIP", "identity, gzip", "unknown"):
                headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
                async with (
                    patience.limit(),
                    session.post(MAPS, data=io.BytesIO(bomb), headers=headers) as response,
                ):
                    assert response.status == 415, coding
                    status = await response.json()
                    assert status["reason"] == "UnsupportedMediaType"
                    assert response.headers["Accept-Encoding"] == "identity"
        headers = {"Content-Encoding": "identity", "Content-Type": "application/json"}
        body = b'{"metadata":{"name":"a"}}'
        async with http.post(MAPS, data=io.BytesIO(body), headers=headers) as response:
            assert response.status == 201
    assert inflated == 0


async def test_compressed_body_is_rejected_before_it_is_received(server: Server) -> None:
    context = ssl.create_default_context(cafile=str(server.state.pki.ca().cert))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
    )
    head = f"POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n"
    writer.write(f"{head}Content-Length: 1000000\r\n\r\n".encode())
    async with patience.limit():
        answer = await reader.readline()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 415")


async def test_hostile_bodies_of_unauthorized_users_are_rejected(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("token,stranger,1,strangers\n")
    server = Server(State(tmp_path / "s"), token_file=tokens)
    bombs = [YAML_BOMBS[name] for name in ("open brackets", "merge keys", "a million nodes")]
    async with (
        server.running(),
        server.raw(Authorization="Bearer token") as http,
        server.raw() as other,
        monitored_liveness(other),
    ):
        results = await asyncio.gather(*(post(http, REVIEWS, bomb, YAML) for bomb in bombs * 4))
    assert {code for code, _ in results} == {400}


def test_yaml_bombs_are_small() -> None:
    assert len(zlib.compress(YAML_BOMBS["a million nodes"])) < 10_000
    assert max(len(bomb) for bomb in YAML_BOMBS.values()) < 3 * 1024 * 1024
