"""Secrets are removed by place, by value and by form."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.cli.redaction import (
    Redactor,
    redact_envoy_config,
    redact_nginx_config,
    redact_object,
)

Object = dict[str, Any]


def secret(**values: str) -> Object:
    data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
    return {"kind": "Secret", "type": "Opaque", "metadata": {"name": "s"}, "data": data}


def test_secret_has_name_type_and_keys_only() -> None:
    item = secret(password="correct-horse")
    item["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "x"}
    assert redact_object(item) == {
        "apiVersion": "", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": "s",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "[redacted]"},
        },
        "data": {"password": "[redacted] (20 characters)"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "correct-horse",
        "user:correct-horse@host",
        base64.b64encode(b"correct-horse").decode(),
        "a%2Bb%2Fcorrect",
        "second-line-value",
        "alice-value",
    ],
)
def test_values_of_secrets_are_removed_in_every_encoding(text: str) -> None:
    redactor = Redactor(
        [secret(a="correct-horse", b="a+b/correct", c="user=alice-value\nx second-line-value\n")]
    )
    result = redactor.redact(f"before {text} after")
    assert "correct" not in result
    assert "value" not in result
    assert result.startswith("before ")
    assert result.endswith(" after")


def test_text_beside_certificates_of_a_secret_is_removed() -> None:
    item = secret(all="-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\nbeside-it\n")
    assert Redactor([item]).redact("x beside-it y") == "x [redacted] y"


def test_namespace_in_secret_of_service_account_token_is_no_secret() -> None:
    item = {**secret(namespace="default", token="t0ken-of-account")}
    item["type"] = "kubernetes.io/service-account-token"
    assert Redactor([item]).redact("default/t0ken-of-account") == "default/[redacted]"


@given(st.lists(st.text("abc-", min_size=6, max_size=12), max_size=5), st.text("abc-", max_size=60))
def test_no_value_of_a_secret_remains_in_redacted_text(values: list[str], text: str) -> None:
    redactor = Redactor([secret(**{f"k{n}": value for n, value in enumerate(values)})])
    result = redactor.redact(text)
    parts = result.split("[redacted]")
    for value in filter(lambda value: len(value.strip()) >= 6, values):
        assert not any(value in part for part in parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://u:p4ss@h.example/x", "https://[redacted]@h.example/x"),
        ("GET /x?token=abcdef&v=1 HTTP", "GET /x?token=[redacted]&v=[redacted] HTTP"),
        ("Authorization: Bearer abcdef.ghi", "Authorization: Bearer [redacted]"),
        ("a eyJhbGciOiJIUzI1.eyJzdWIi.sig-nature b", "a [redacted] b"),
        ("-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\n", "[redacted]\n"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-1\n\nMHc\n"
            "-----END RSA PRIVATE KEY-----\nafter",
            "[redacted]\nafter",
        ),
        ("plain text, 10.0.0.1:80", "plain text, 10.0.0.1:80"),
    ],
)
def test_credentials_are_removed_by_their_form(text: str, expected: str) -> None:
    assert Redactor([]).redact(text) == expected


def test_snippets_are_removed_and_their_values_elsewhere_too() -> None:
    snippet = 'proxy_set_header X-Key "k3y-0f-snippet";\nreturn 200 c0d3word-1;'
    item = {
        "kind": "SnippetsFilter", "metadata": {"name": "f"},
        "spec": {"snippets": [{"context": "http.server.location", "value": snippet}]},
    }  # fmt: skip
    snippets = redact_object(item)["spec"]["snippets"]
    assert snippets == [
        {"context": "http.server.location", "value": f"[redacted] ({len(snippet)} characters)"}
    ]
    text = Redactor([item]).redact(f"location / {{\n{snippet}\n}}")
    assert "k3y-0f-snippet" not in text
    assert "c0d3word-1" not in text
    assert "proxy_set_header" in text


def test_fields_that_may_be_secret_are_removed() -> None:
    item = {
        "kind": "UpstreamCluster", "metadata": {"name": "c", "managedFields": [{"a": 1}]},
        "spec": {
            "clientConfig": {"bearerToken": "dG9r", "keyData": "a2V5", "secretRef": {"name": "s"}},
            "filters": [{"set": [{"name": "Authorization", "value": "x"},
                                 {"name": "x-version", "value": "2"}]}],
            "kubernetes": {"patches": [{"value": "x"}], "env": [{"name": "A", "value": "x"}]},
        },
    }  # fmt: skip
    result = redact_object(item)
    assert "managedFields" not in result["metadata"]
    assert result["spec"] == {
        "clientConfig": {
            "bearerToken": "[redacted]", "keyData": "[redacted]", "secretRef": {"name": "s"},
        },
        "filters": [{"set": [{"name": "Authorization", "value": "[redacted]"},
                             {"name": "x-version", "value": "2"}]}],
        "kubernetes": {"patches": "[redacted]", "env": "[redacted]"},
    }  # fmt: skip


def test_headers_in_envoy_configuration_are_removed_by_name() -> None:
    text = "a:\n- header: {key: X-Api-Key, value: abc}\n- header: {key: x-version, value: '2'}\n"
    assert yaml.safe_load(redact_envoy_config(text)) == {
        "a": [
            {"header": {"key": "X-Api-Key", "value": "[redacted]"}},
            {"header": {"key": "x-version", "value": "2"}},
        ]
    }


def test_headers_in_nginx_configuration_are_removed_by_name() -> None:
    text = 'proxy_set_header Authorization "abc";\nproxy_set_header X-Version "2";\n'
    assert redact_nginx_config(text) == (
        'proxy_set_header Authorization [redacted];\nproxy_set_header X-Version "2";\n'
    )


def test_headers_of_exports_are_removed_with_semicolons_and_quotation_marks() -> None:
    text = 'header "authorization" "Key a;b \\"c\\" d";\nheader "x-tenant" "a;b";\n'
    text += "add_header X-Token 'a\"b';\n"
    expected = 'header "authorization" [redacted];\nheader "x-tenant" "a;b";\n'
    expected += "add_header X-Token [redacted];\n"
    assert redact_nginx_config(text) == expected
