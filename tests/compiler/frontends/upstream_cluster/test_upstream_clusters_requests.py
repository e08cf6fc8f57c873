"""Request info is parsed as by Kubernetes: a table of results of its own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.types.request_info import RequestError, parse_request

TABLE: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("request_infos.json").read_text(encoding="utf-8")
)["requests"]


def test_request_table_has_at_least_250_rows() -> None:
    assert len(TABLE) >= 250


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row['method']} {row['target']}")
def test_request_info_equals_that_of_kubernetes(row: dict[str, Any]) -> None:
    if row.get("error"):
        with pytest.raises(RequestError):
            parse_request(row["method"], row["target"])
        return
    info = parse_request(row["method"], row["target"])
    fields = ("group", "version", "resource", "subresource", "namespace", "name")
    assert {field: getattr(info, field) for field in fields} == {
        field: row.get(field, "") for field in fields
    }
    assert (info.verb, info.path) == (row["verb"], row["path"])
    assert (info.is_resource, info.long_running) == (
        row.get("is_resource", False),
        row.get("long_running", False),
    )


@given(st.text(max_size=8), st.text(max_size=60))
def test_only_request_info_errors_are_raised(method: str, target: str) -> None:
    try:
        info = parse_request(method, target)
    except RequestError:
        return
    assert info.is_resource or info.verb == method.lower()
