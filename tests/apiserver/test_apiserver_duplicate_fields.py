"""Duplicate fields of bodies, with the messages of kube-apiserver 1.34.3."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from fakes.inprocess import Server
from kube_api_server.http.bodies import MAX_DUPLICATES, DecodedBody, decode_body

MAPS = "/api/v1/namespaces/default/configmaps"
GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways"
JSON, YAML, APPLY = "application/json", "application/yaml", "application/apply-patch+yaml"
MAP = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: one
data:
  a: "1"
  a: "2"
"""
GATEWAY = """\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: one
spec:
  gatewayClassName: a
  listeners:
  - name: http
    name: web
    port: 80
    protocol: HTTP
  gatewayClassName: b
"""
MAP_TEXT = (
    '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"1","a":"2"}}'
)
CLASS_LINES = (
    'line 9: key "name" already set in map',
    'line 12: key "gatewayClassName" already set in map',
)
CONVERSION = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:"


async def send(
    http: aiohttp.ClientSession, method: str, path: str, body: str, kind: str, validation: str
) -> tuple[int, Any, list[str]]:
    """Return the status code, the document and the texts of the warnings."""
    async with http.request(
        method,
        path,
        data=body.encode(),
        headers={"Content-Type": kind},
        params={"fieldValidation": validation, "fieldManager": "one"},
    ) as response:
        warnings = [
            value.removeprefix('299 - "')[:-1].replace('\\"', '"')
            for value in response.headers.getall("Warning", ())
        ]
        return response.status, await response.json(), warnings


@pytest.mark.parametrize(
    ("path", "body", "lines"),
    [
        (MAPS, MAP, ('line 7: key "a" already set in map',)),
        (MAPS, MAP_TEXT, ('line 1: key "a" already set in map',)),
        (GATEWAYS, GATEWAY, CLASS_LINES),
    ],
    ids=["built-in kind", "text in JSON", "custom resource"],
)
async def test_apply_with_duplicate_keys_is_refused_if_strict_and_warns_otherwise(
    server: Server, path: str, body: str, lines: tuple[str, ...]
) -> None:
    async with server.raw() as http:
        name = f"{path}/one"
        code, status, _ = await send(http, "PATCH", name, body, APPLY, "Strict")
        assert (code, status["reason"]) == (400, "BadRequest")
        assert status["message"] == "\n  ".join((CONVERSION, *lines))
        async with http.get(name) as response:
            assert response.status == 404
        code, _, warnings = await send(http, "PATCH", name, body, APPLY, "Warn")
        assert (code, warnings) == (201, [*lines])
        code, _, warnings = await send(http, "PATCH", name, body, APPLY, "Ignore")
        assert (code, warnings) == (200, [])


@pytest.mark.parametrize(
    ("path", "body", "kind", "error", "warnings"),
    [
        (
            MAPS,
            MAP + "odd: 1\n",
            YAML,
            'yaml: unmarshal errors:\n  line 7: key "a" already set in map, unknown field "odd"',
            ['line 7: key "a" already set in map', 'unknown field "odd"'],
        ),
        (
            GATEWAYS,
            GATEWAY,
            YAML,
            "\n  ".join(("yaml: unmarshal errors:", *CLASS_LINES)),
            [*CLASS_LINES],
        ),
        (MAPS, MAP_TEXT, JSON, 'duplicate field "data.a"', ['duplicate field "data.a"']),
    ],
    ids=["YAML of a built-in kind", "YAML of a custom resource", "JSON"],
)
async def test_create_with_duplicate_fields_is_refused_if_strict_and_warns_otherwise(
    server: Server, path: str, body: str, kind: str, error: str, warnings: list[str]
) -> None:
    async with server.raw() as http:
        code, status, _ = await send(http, "POST", path, body, kind, "Strict")
        assert code == 400
        assert status["message"].partition("strict decoding error: ")[2] == error
        assert (await send(http, "POST", path, body, kind, "Warn"))[::2] == (201, warnings)


@pytest.mark.parametrize(
    ("kind", "body", "duplicates"),
    [
        ("merge-patch", '{"data":{"a":"1","a":"2"}}', ['duplicate field "data.a"']),
        ("strategic-merge-patch", '{"data":{"a":"1","a":"2"}}', ['duplicate field "data.a"']),
        (
            "json-patch",
            '[{"op":"add","op":"add","path":"/data","value":{"a":"1"}}]',
            ['json patch duplicate field "[0].op"'],
        ),
    ],
)
async def test_patch_with_duplicate_fields_is_invalid_if_strict_and_warns_otherwise(
    server: Server, kind: str, body: str, duplicates: list[str]
) -> None:
    async with server.raw() as http:
        await send(http, "POST", MAPS, '{"metadata":{"name":"one"}}', JSON, "Strict")
        media = f"application/{kind}+json"
        code, status, _ = await send(http, "PATCH", f"{MAPS}/one", body, media, "Strict")
        assert (code, status["details"]["causes"][0]["field"]) == (422, "patch")
        assert f"strict decoding error: {duplicates[0]}" in status["message"]
        answer = await send(http, "PATCH", f"{MAPS}/one", body, media, "Warn")
        assert answer[::2] == (200, duplicates)


async def test_update_with_duplicate_fields_is_refused_if_strict(server: Server) -> None:
    async with server.raw() as http:
        await send(http, "POST", MAPS, MAP, YAML, "Ignore")
        code, status, _ = await send(http, "PUT", f"{MAPS}/one", MAP_TEXT, JSON, "Strict")
    assert code == 400
    assert status["message"].endswith('strict decoding error: duplicate field "data.a"')


async def test_control_characters_of_names_are_no_part_of_warnings(server: Server) -> None:
    body = r'{"metadata":{"name":"one"},"a\r\nb\u0000":1,"a\r\nb\u0000":2}'
    async with server.raw() as http:
        code, _, warnings = await send(http, "POST", MAPS, body, JSON, "Warn")
    assert code == 201
    assert warnings
    assert not any(ord(character) < 0x20 for text in warnings for character in text)


def test_text_in_json_is_decoded_although_yaml_lacks_its_escapes() -> None:
    decoded = decode_body(rb'{"a": "\ud83d\ude00", "a": "\ud83d\ude00"}', APPLY, duplicates=True)
    assert decoded == DecodedBody({"a": "\U0001f600"}, ('duplicate field "a"',))


def test_line_of_a_duplicate_key_is_that_of_its_value() -> None:
    text = "a: {b: 1,\n  b: 1}\na:\n\n  c: &c 2\nc: 1\nc:\n  *c\n"
    assert decode_body(text.encode(), YAML).duplicates == (
        'line 2: key "b" already set in map',
        'line 5: key "a" already set in map',
        'line 8: key "c" already set in map',
    )


def test_few_of_many_duplicate_keys_are_named() -> None:
    assert len(decode_body(b"a: 1\n" * 100, YAML).duplicates) == MAX_DUPLICATES
