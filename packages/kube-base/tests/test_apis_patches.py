"""Patches of three types, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_base.types.patches import json as json_patches
from kube_base.types.patches import strategic
from kube_base.types.patches.errors import (
    InapplicablePatchError,
    MalformedPatchError,
    OversizedPatchError,
)

SCHEMAS = {served.resource.kind: served.schema for served in BUILTIN_KINDS}


@pytest.mark.parametrize(
    ("current", "patch", "expected"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({"a": 1}, [1], [1]),
        ({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
    ],
)
def test_merge_patch_follows_rfc_7396(current: Any, patch: Any, expected: Any) -> None:
    assert json_patches.merge_json(current, patch) == expected


@pytest.mark.parametrize(
    ("current", "operations", "expected"),
    [
        ({}, [{"op": "add", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1]}, [{"op": "replace", "path": "/a/0", "value": 2}], {"a": [2]}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a/b": 1, "c": 2}, [{"op": "remove", "path": "/a~1b"}], {"c": 2}),
        ({"a~b": 1, "c": 2}, [{"op": "remove", "path": "/a~0b"}], {"c": 2}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 1}}], {"b": 1}),
    ],
)  # fmt: skip
def test_json_patch_follows_rfc_6902(current: Any, operations: Any, expected: Any) -> None:
    before = repr(current)
    assert json_patches.patch(current, operations) == expected
    assert repr(current) == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "remove", "path": "/none"},
        {"op": "remove", "path": ""},
        {"op": "test", "path": "/a/0", "value": 2},
        {"op": "add", "path": "/a/2", "value": 1},
        {"op": "add", "path": "/a/-1", "value": 1},
        {"op": "add", "path": "/a/01", "value": 1},
        {"op": "replace", "path": "/a/-1", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "add", "path": "/s/c", "value": 1},
        {"op": "add", "path": "/c"},
        {"op": "grow", "path": "/a"},
        {"op": "add", "path": 5, "value": 1},
        {"op": "remove", "path": None},
        {"op": "move", "path": "/b", "from": ["a"]},
        {"path": "/a"},
        "nonsense",
    ],
)
def test_inapplicable_json_patch_is_rejected(operation: Any) -> None:
    with pytest.raises(InapplicablePatchError):
        json_patches.patch({"a": [1], "s": "text"}, [operation])


def test_json_patch_size_is_limited() -> None:
    double = [{"op": "copy", "from": "", "path": f"/{n}"} for n in range(100)]
    with pytest.raises(OversizedPatchError, match="copies more than"):
        json_patches.patch({"a": "x" * 100_000}, double)
    with pytest.raises(OversizedPatchError, match="maximum of operations"):
        json_patches.patch({}, [{"op": "test", "path": "", "value": {}}] * 10_001)


def containers(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": list(items), **more}}}}


@pytest.mark.parametrize(
    ("current", "patch", "expected"),
    [
        (
            containers({"name": "a", "image": "1"}, {"name": "b", "image": "1"}),
            containers({"name": "b", "image": "2"}),
            containers({"name": "a", "image": "1"}, {"name": "b", "image": "2"}),
        ),
        (
            containers({"name": "a", "image": "1"}),
            containers({"name": "b", "image": "2"}),
            containers({"name": "a", "image": "1"}, {"name": "b", "image": "2"}),
        ),
        (
            containers({"name": "a"}, {"name": "b"}),
            containers({"name": "a", "$patch": "delete"}),
            containers({"name": "b"}),
        ),
        (
            containers({"name": "a"}, {"name": "b"}),
            containers({"name": "c"}, {"$patch": "replace"}),
            containers({"name": "c"}),
        ),
        (
            containers({"name": "a"}, {"name": "b"}),
            containers(**{"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            containers({"name": "b"}, {"name": "a"}),
        ),
        (
            containers({"name": "a", "args": ["x", "y"]}),
            containers({"name": "a", "args": ["z"]}),
            containers({"name": "a", "args": ["z"]}),
        ),
        (
            containers({"name": "a", "env": [{"name": "X", "value": "1"}]}),
            containers({"name": "a", "env": [{"name": "Y", "value": "2"}]}),
            containers(
                {"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}
            ),
        ),
        (
            {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
            {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
            {"spec": {"strategy": {"type": "Recreate"}}},
        ),
        (
            {"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]}},
            {"metadata": {"labels": {"a": None}, "$deleteFromPrimitiveList/finalizers": ["x"]}},
            {"metadata": {"labels": {"b": "2"}, "finalizers": ["y"]}},
        ),
        (
            {"metadata": {"finalizers": ["x"]}},
            {"metadata": {"finalizers": ["y", "x"]}},
            {"metadata": {"finalizers": ["x", "y"]}},
        ),
        (
            {"spec": {"selector": {"matchLabels": {"a": "1"}}}},
            {"spec": {"selector": {"$patch": "replace", "matchLabels": {"b": "2"}}}},
            {"spec": {"selector": {"matchLabels": {"b": "2"}}}},
        ),
    ],
)
def test_strategic_merge_patch_merges_lists_by_key(current: Any, patch: Any, expected: Any) -> None:
    schema = SCHEMAS["Deployment"]
    whole = {
        **schema,
        "properties": {**schema["properties"], "metadata": strategic.METADATA_SCHEMA},
    }
    before = repr(current)
    merged = strategic.merge_strategic(current, patch, whole)
    merged["spec" if "spec" in expected else "metadata"].pop("$setElementOrder/containers", None)
    assert merged == expected
    assert repr(current) == before


def test_service_ports_are_merged_by_port_number() -> None:
    current = {"spec": {"ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]}}
    patch = {"spec": {"ports": [{"port": 443, "targetPort": 8443}]}}
    merged = strategic.merge_strategic(current, patch, SCHEMAS["Service"])
    assert merged["spec"]["ports"][1] == {"port": 443, "name": "https", "targetPort": 8443}


def test_list_item_without_merge_key_is_rejected() -> None:
    with pytest.raises(MalformedPatchError, match="does not contain declared merge key: port"):
        strategic.merge_strategic({}, {"spec": {"ports": [{"name": "x"}]}}, SCHEMAS["Service"])
