"""Requests in forms that Go clients send: protobuf, YAML in braces, timeouts; and their schemas."""

from __future__ import annotations

import pytest

from fakes.custom_kinds import CRDS, with_kind
from fakes.inprocess import Server
from kube_api_server.builtin.protobuf import decode_protobuf
from kube_api_server.builtin.protobuf_messages import MAGIC, PROTOBUF_TYPE
from kube_api_server.http import openapi_v2


def field(number: int, content: bytes | str) -> bytes:
    """Return a field of a protobuf message with a short content."""
    data = content.encode() if isinstance(content, str) else content
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def envelope(version: str, kind: str, *fields: bytes) -> bytes:
    return MAGIC + field(1, field(1, version) + field(2, kind)) + field(2, b"".join(fields))


def test_fields_with_capital_names_are_read_from_protobuf() -> None:
    validation = field(1, "object.x > 1")
    variable = field(1, "x") + field(2, "object.x")
    spec = field(3, validation) + field(7, variable)
    version = "admissionregistration.k8s.io/v1"
    policy = decode_protobuf(envelope(version, "ValidatingAdmissionPolicy", field(2, spec)))
    assert policy["spec"] == {
        "validations": [{"expression": "object.x > 1"}],
        "variables": [{"name": "x", "expression": "object.x"}],
    }


def test_webhooks_are_read_from_protobuf() -> None:
    body = envelope(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        field(2, field(1, "a.example.com")),
    )
    assert decode_protobuf(body)["webhooks"] == [{"name": "a.example.com"}]


def test_empty_status_subresource_of_a_crd_is_read_from_protobuf() -> None:
    version = field(1, "v1") + field(5, field(1, b""))
    definition = envelope(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", field(2, field(7, version))
    )
    assert decode_protobuf(definition)["spec"]["versions"] == [
        {"name": "v1", "subresources": {"status": {}}}
    ]


async def test_webhook_in_protobuf_is_refused(server: Server) -> None:
    body = envelope(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        field(1, field(1, "one")) + field(2, field(1, "a.example.com")),
    )
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    headers = {"Content-Type": PROTOBUF_TYPE, "Accept": "application/json"}
    async with server.raw() as http, http.post(path, data=body, headers=headers) as response:
        assert response.status == 422, await response.text()


async def test_apply_reads_yaml_in_braces(server: Server) -> None:
    text = (
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x",}, "data": {"a": b},}'
    )
    path = "/api/v1/namespaces/default/configmaps/x?fieldManager=m"
    headers = {"Content-Type": "application/apply-patch+yaml"}
    async with server.raw() as http:
        async with http.patch(path, data=text, headers=headers) as response:
            assert (response.status, (await response.json())["data"]) == (201, {"a": "b"})
        async with http.patch(path, data="{a: [}", headers=headers) as response:
            assert response.status == 400
        path = "/api/v1/namespaces/default/configmaps?fieldValidation=Strict"
        text = text.replace('"x"', '"y"')
        headers = {"Content-Type": "application/yaml"}
        async with http.post(path, data=text, headers=headers) as response:
            assert response.status == 201, await response.text()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/version?timeout=invalid", 400),
        ("/version?timeout=3m", 200),
        ("/api/v1/namespaces?timeout=invalid", 400),
        ("/api/v1/namespaces?timeout=invalid&watch=true&timeoutSeconds=1", 200),
    ],
)
async def test_malformed_timeout_is_refused(server: Server, path: str, status: int) -> None:
    async with server.raw() as http, http.get(path) as response:
        text = await response.text()
        assert response.status == status, text
    assert ("invalid timeout specified in the request URL" in text) == (status == 400)


@pytest.mark.parametrize(
    ("valid", "durations"),
    [
        (True, ["0", "+0", "-0", "0s", "01s", "1.s", ".5s", "-1m", "1.5h", "1m30.5s", "1s" * 60]),
        (True, ["7ns", "7us", "7\u00b5s", "7\u03bcs", "7ms"]),
        (False, ["5", "00", "000", "0.0", "1h0", "1s5", "1s" * 60 + "5"]),
        (False, ["s", ".s", "+", "-", "1d", "1S", "1e3s", "1s "]),
    ],
)
async def test_timeouts_are_durations_of_go(
    server: Server, valid: bool, durations: list[str]
) -> None:
    """time.ParseDuration: only 0 has no unit."""
    async with server.raw() as http:
        for duration in durations:
            async with http.get("/version", params={"timeout": duration}) as response:
                assert (response.status == 200) == valid, duration


async def test_openapi_v2_has_the_limits_of_a_crd(server: Server) -> None:
    colour = {"type": "string", "enum": ["red"], "pattern": "^r", "maxLength": 9, "default": "red"}
    amount = {"type": "number", "minimum": 0.5, "exclusiveMinimum": True}
    properties = {"colour": colour, "amount": amount}
    async with with_kind(server, "limits.example", "Paint", properties) as http:
        async with http.get("/openapi/v2") as response:
            definitions = (await response.json())["definitions"]
        async with http.get(
            "/openapi/v2", headers={"Accept": openapi_v2.REQUESTED_MEDIA_TYPE}
        ) as response:
            encoded = await response.read()
    paint = definitions["example.limits.v1.Paint"]["properties"]
    assert (paint["colour"], paint["amount"]) == (colour, amount)
    # Keys of protobuf: pattern 13, maxLength 11, default 5, enum 20, minimum 9, and a boolean 10.
    red = field(2, '"red"')
    for part in (
        field(13, "^r"),
        bytes([11 << 3, 9]),
        field(5, red),
        b"\xa2\x01" + bytes([len(red)]) + red,
        bytes([9 << 3 | 1]) + b"\x00\x00\x00\x00\x00\x00\xe0\x3f",
        bytes([10 << 3, 1]),
    ):
        assert part in encoded


async def test_conditions_of_a_crd_need_no_type(server: Server) -> None:
    patch = {"status": {"conditions": [{"message": "patched"}]}}
    headers = {"Content-Type": "application/merge-patch+json"}
    path = f"{CRDS}/gateways.gateway.networking.k8s.io/status"
    async with server.raw() as http, http.patch(path, json=patch, headers=headers) as response:
        answer = await response.json()
    assert response.status == 200, answer
    condition = {"message": "patched", "type": "", "status": "", "lastTransitionTime": None}
    assert condition in answer["status"]["conditions"]


async def test_openapi_v2_has_no_type_for_parts_with_unknown_fields(server: Server) -> None:
    open_part = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    async with (
        with_kind(server, "open.example", "Paper", {"spec": open_part}) as http,
        http.get("/openapi/v2") as response,
    ):
        definitions = (await response.json())["definitions"]
    assert definitions["example.open.v1.Paper"]["properties"]["spec"] == {}


async def test_strict_apply_names_fields_that_the_schema_lacks(server: Server) -> None:
    path = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/one"
    body = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "one"},
        "odd": 1,
    }
    headers = {"Content-Type": "application/apply-patch+yaml"}
    params = {"fieldManager": "m", "fieldValidation": "Strict"}
    async with (
        server.raw() as http,
        http.patch(path, json=body, params=params, headers=headers) as response,
    ):
        message = (await response.json())["message"]
    assert (response.status, ".odd: field not declared in schema" in message) == (400, True)


async def test_openapi_v3_has_no_empty_lists(server: Server) -> None:
    async with server.raw() as http:
        for group in ("apis/apps/v1", "api/v1", "apis/gateway.networking.k8s.io/v1"):
            async with http.get(f"/openapi/v3/{group}") as response:
                operations = [
                    operation
                    for path in (await response.json())["paths"].values()
                    for operation in path.values()
                ]
            assert operations
            assert all(operation.get("parameters") != [] for operation in operations)


async def test_openapi_v3_has_no_empty_defaults(server: Server) -> None:
    async with server.raw() as http, http.get("/openapi/v3/api/v1") as response:
        schemas = (await response.json())["components"]["schemas"]
    fields = {
        (name, field): schema
        for name, parent in schemas.items()
        for field, schema in (parent.get("properties") or {}).items()
    }
    port = next(key for key in fields if key[0].endswith("ContainerPort") and key[1] == "protocol")
    assert fields[port]["default"] == "TCP"
    assert not [key for key, schema in fields.items() if schema.get("default", "") is None]
