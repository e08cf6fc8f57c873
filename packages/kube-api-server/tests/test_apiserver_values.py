"""JSONPath, selectors, ages, protobuf and quantities."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kube_api_server.builtin import protobuf
from kube_api_server.builtin.protobuf_messages import MAGIC
from kube_api_server.errors import StatusError
from kube_api_server.http import selectors
from kube_api_server.objects import jsonpath, timestamps
from kube_base.types.quantities import canonical

OBJECT = {
    "metadata": {"name": "web", "annotations": {"acme.com/team": "blue"}},
    "status": {
        "conditions": [
            {"type": "Accepted", "status": "True"},
            {"type": "Programmed", "status": "False"},
        ],
        "addresses": [{"value": "10.0.0.1"}, {"value": "10.0.0.2"}],
        "ports": {"http": 80, "https": 443},
    },
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".metadata.name", ["web"]),
        ("{.metadata.name}", ["web"]),
        ("$.metadata.name", ["web"]),
        (".metadata.annotations['acme.com/team']", ["blue"]),
        (r".metadata.annotations.acme\.com/team", ["blue"]),
        (".status.addresses[0].value", ["10.0.0.1"]),
        (".status.addresses[-1].value", ["10.0.0.2"]),
        (".status.addresses[5].value", []),
        (".status.addresses[*].value", ["10.0.0.1", "10.0.0.2"]),
        (".status.ports.*", [80, 443]),
        ('.status.conditions[?(@.type=="Programmed")].status', ["False"]),
        ("{.status.conditions[?(@.type!='Programmed')].status}", ["True"]),
        (".nothing.here", []),
        (".metadata.name.first", []),
        (".status..value", None),
    ],
)
def test_json_path_returns_matching_values(path: str, expected: list[Any] | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="not supported"):
            jsonpath.find_values(path, OBJECT)
    else:
        assert jsonpath.find_values(path, OBJECT) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", True),
        ("app==web", True),
        ("app!=web", False),
        ("tier!=back", True),
        ("app in (web, api)", True),
        ("app notin (api)", True),
        ("app", True),
        ("!app", False),
        ("!tier", True),
        ("app=web,env=test", True),
        ("app=web,env=live", False),
        ("acme.com/team=", True),
        ("app in (api),env=test", False),
    ],
)
def test_label_selector_matches_labels(selector: str, expected: bool) -> None:
    test = selectors.parse_label_selector(selector)
    labels = {"app": "web", "env": "test", "acme.com/team": ""}
    assert test is not None
    assert test({"metadata": {"labels": labels}}) is expected


@pytest.mark.parametrize("selector", ["-a", "a=b c", "a in b", "=b", "a=-b", "!", "a=b=c"])
def test_invalid_label_selector_is_rejected(selector: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_label_selector(selector)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (599, "9m59s"),
        (600, "10m"), (10_799, "179m"), (10_800, "3h"), (11_160, "3h6m"), (28_800, "8h"),
        (172_799, "47h"), (172_800, "2d"), (180_000, "2d2h"), (691_200, "8d"),
        (63_072_000, "2y"), (64_000_000, "2y10d"), (252_288_000, "8y"),
    ],
)  # fmt: skip
def test_durations_are_formatted_like_kubectl(seconds: int, text: str) -> None:
    assert timestamps.duration(seconds) == text


def varint(number: int) -> bytes:
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(version: str, kind: str, raw: bytes) -> bytes:
    envelope = field(1, field(1, version) + field(2, kind)) + field(2, raw)
    return MAGIC + envelope


def test_protobuf_secret_is_decoded() -> None:
    meta = field(1, "s") + field(3, "default") + field(11, field(1, "app") + field(2, "web"))
    raw = field(1, meta) + field(2, field(1, "key") + field(2, b"\0\xff")) + field(3, "Opaque")
    assert protobuf.decode_protobuf(body("v1", "Secret", raw)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "default", "labels": {"app": "web"}},
        "data": {"key": base64.b64encode(b"\0\xff").decode()},
        "type": "Opaque",
    }


def test_protobuf_times_numbers_and_unions_are_decoded() -> None:
    port = field(1, "http") + field(3, 80) + field(4, field(1, 1) + field(3, "web"))
    numbered = field(3, 443) + field(4, field(1, 0) + field(2, 8443))
    time = field(8, field(1, 1_700_000_000))
    raw = field(1, field(1, "x") + time) + field(2, field(1, port) + field(1, numbered))
    decoded = protobuf.decode_protobuf(body("v1", "Service", raw))
    assert decoded["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert decoded["spec"]["ports"] == [
        {"name": "http", "port": 80, "targetPort": "web"},
        {"port": 443, "targetPort": 8443},
    ]


def test_unknown_protobuf_fields_are_ignored() -> None:
    raw = field(1, field(1, "c")) + field(2, field(1, "k") + field(2, "v")) + field(999, "new")
    assert protobuf.decode_protobuf(body("v1", "ConfigMap", raw))["data"] == {"k": "v"}


def test_protobuf_negative_number_is_decoded() -> None:
    raw = field(1, field(1, "d")) + field(2, field(1, -1))
    assert protobuf.decode_protobuf(body("apps/v1", "Deployment", raw))["spec"]["replicas"] == -1


@pytest.mark.parametrize(("number", "expected"), [(0, 0), (-5, -5), (2**31 - 1, 2**31 - 1)])
def test_protobuf_number_that_may_be_a_string_is_decoded(number: int, expected: int) -> None:
    surge = field(2, field(1, 0) + field(2, number))
    raw = field(2, field(4, field(2, surge)))
    decoded = protobuf.decode_protobuf(body("apps/v1", "Deployment", raw))
    assert decoded["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": expected}


def test_protobuf_time_before_1970_is_decoded() -> None:
    raw = field(1, field(8, field(1, -1)))
    decoded = protobuf.decode_protobuf(body("v1", "ConfigMap", raw))
    assert decoded["metadata"]["creationTimestamp"] == "1969-12-31T23:59:59Z"


def test_protobuf_lists_within_a_map_are_decoded() -> None:
    entry = field(1, "scopes") + field(2, field(1, "a") + field(1, "b"))
    review = body("authorization.k8s.io/v1", "SubjectAccessReview", field(2, field(5, entry)))
    assert protobuf.decode_protobuf(review)["spec"]["extra"] == {"scopes": ["a", "b"]}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{}", 400),
        (MAGIC + b"\xff\xff", 400),
        (body("v1", "Secret", b"\x0a\xff"), 400),
        (body("v1", "Secret", b"\x0f"), 400),
        (body("v1", "Secret", field(1, 5)), 400),
        (body("v1", "Secret", b"\xff" * 12), 400),
        (body("v1", "Secret", field(1, field(8, field(1, 2**63)))), 400),
        (body("acme.com/v1", "Anvil", b""), 415),
    ],
)
def test_malformed_protobuf_is_a_client_error(data: bytes, code: int) -> None:
    with pytest.raises(StatusError) as caught:
        protobuf.decode_protobuf(data)
    assert caught.value.code == code


# Results of Quantity.UnmarshalJSON and MarshalJSON of k8s.io/apimachinery 0.36.1.
QUANTITIES: list[tuple[str | float, str]] = [
    *[(1, "1"), (0, "0"), (100, "100"), (2147483648, "2147483648"), (-1, "-1")],
    *[(0.5, "500m"), (1.0, "1"), (0.0, "0"), (1.5, "1500m"), (0.001, "1m"), (1000.0, "1k")],
    *[(-0.5, "-500m"), (123456789.125, "123456789.125"), (1e21, "1e+21"), (1e-7, "100e-9")],
    *[("0.5", "500m"), (" 1 ", "1"), (".5", "500m"), ("1.", "1."), ("0m", "0"), ("00", "0")],
    *[("500m", "500m"), ("1000m", "1"), ("1100m", "1100m"), ("1.500", "1.500"), ("007", "007")],
    *[("+5", "+5"), ("+0.5", "500m"), ("1000k", "1M"), ("0.1n", "1n"), ("-0.1n", "-1n")],
    *[("1Ki", "1Ki"), ("1024Ki", "1Mi"), ("1000Ki", "1000Ki"), ("1.5Gi", "1536Mi")],
    *[("0.5Ki", "512"), ("0.0001Mi", "104857600u"), ("16Ei", "9223372036854775807")],
    *[("1e3", "1e3"), ("1.5e3", "1500"), ("12e1", "120"), ("1E", "1E"), ("1e-10", "1e-9")],
    *[("12345678901234567890", "12345678901234567890"), ("1e1000", "10e999")],
]


@pytest.mark.parametrize(("value", "expected"), QUANTITIES)
def test_quantities_have_canonical_form(value: str | float, expected: str) -> None:
    assert canonical(value) == expected


@pytest.mark.parametrize(
    "text",
    ["", "5x", "1.2.3", "1KI", "1K", "m", "1 Gi", "0x10", "9" * 1025, "1e1001", "1e-999999999"],
)
def test_invalid_quantity_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        canonical(text)
