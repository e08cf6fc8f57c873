"""Work on hostile values of clients takes time proportional to their size.

Each value once took quadratic time: seconds for a body of 100 KB, in which nothing else ran.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from fakes.cpu_growth import assert_linear
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.errors import Cause, StatusError
from kube_api_server.http import bodies, selectors
from kube_api_server.objects import admission
from kube_api_server.objects.write_request import WriteOptions, WriteRequest
from kube_base.types.document_limits import MAX_NODES
from kube_base.types.patches import strategic

MAX_BYTES = 3 * 1024 * 1024
SEPARATORS = b"[" + b"," * (MAX_NODES + 1)
SERVICES = next(served for served in BUILTIN_KINDS if served.resource.kind == "Service")
PORTS: Any = SERVICES.schema["properties"]["spec"]


def rejected(work: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a function that ignores the errors that a client may cause."""

    def call(value: Any) -> None:
        with contextlib.suppress(StatusError, ValueError):
            work(value)

    return call


@pytest.mark.parametrize("text", [b'"\\', b'"', b'\\"', b'""', b'"a', b"\\", b'"\\\\"'])
def test_number_of_nodes_of_json_takes_linear_time(text: bytes) -> None:
    assert_linear(
        rejected(bodies.check_json_size), lambda size: SEPARATORS + text * size, MAX_BYTES
    )


def test_duplicate_fields_below_long_keys_take_linear_time() -> None:
    def body(size: int) -> bytes:
        return b'{"%s":[%s{"a":1,"a":2}]}' % (b"k" * size, b"{}," * size)

    assert_linear(bodies.duplicate_fields, body, MAX_BYTES // 4)


def test_duplicate_fields_of_one_object_below_a_long_key_take_linear_time() -> None:
    def body(size: int) -> bytes:
        pairs = ",".join(f'"a{number}":1,"a{number}":2' for number in range(size // 10))
        return f'{{"{"k" * size}":{{{pairs}}}}}'.encode()

    assert_linear(bodies.duplicate_fields, body, MAX_BYTES // 4)


@pytest.mark.parametrize("text", [",", "(,", ",)", "a in (b),"])
def test_label_selectors_take_linear_time(text: str) -> None:
    parse = rejected(selectors.parse_label_selector.__wrapped__)
    assert_linear(parse, lambda size: text * size, 100_000)


def test_errors_about_hostile_names_of_fields_take_linear_time() -> None:
    call = WriteRequest(SERVICES, "default", "a", "", WriteOptions(), None, 0)  # type: ignore[arg-type]

    def cause(size: int) -> Cause:
        field = 'must be of type a: "' * size + "\n"
        message = f'Invalid value: "integer": {field} in body must be of type string: "integer"'
        return Cause("FieldValueTypeInvalid", message, field)

    def check(invalid: Cause) -> None:
        with pytest.raises(StatusError) as error:
            admission._as_builtin(call, invalid)
        assert "json: cannot unmarshal number into Go struct field" in str(error.value)

    assert_linear(check, cause, MAX_BYTES // 20)


@pytest.mark.parametrize(
    "patch",
    [
        lambda size: {"metadata": {"finalizers": [f"a/{n}" for n in range(size)]}},
        lambda size: {
            "metadata": {"$deleteFromPrimitiveList/finalizers": [f"b/{n}" for n in range(size)]}
        },
        lambda size: {
            "metadata": {"$setElementOrder/finalizers": [f"b/{n}" for n in reversed(range(size))]}
        },
        lambda size: {"spec": {"ports": [{"port": n} for n in range(size)]}},
        lambda size: {"spec": {"ports": [{"port": n, "$patch": "delete"} for n in range(size)]}},
        lambda size: {"spec": {"$setElementOrder/ports": [{"port": n} for n in range(size)]}},
    ],
)  # fmt: skip
def test_strategic_merge_patches_take_linear_time(patch: Callable[[int], Any]) -> None:
    schema = {
        "type": "object",
        "properties": {"metadata": strategic.METADATA_SCHEMA, "spec": PORTS},
    }

    def inputs(size: int) -> tuple[Any, Any]:
        current = {
            "metadata": {"finalizers": [f"b/{number}" for number in range(size)]},
            "spec": {"ports": [{"port": number, "name": "x"} for number in range(size)]},
        }
        return current, patch(size)

    assert_linear(lambda pair: strategic.merge_strategic(pair[0], pair[1], schema), inputs, 20_000)


def test_node_count_ignores_strings_with_escapes() -> None:
    values = ['"', "\\", '\\"', ",[{:", '",', "\\\\", 'a\\"b,']
    fits = json.dumps({"a": values * (MAX_NODES // 7 - 1)}).encode()
    bodies.check_json_size(fits)
    for value in values:
        texts = json.dumps([value] * (MAX_NODES + 2)).encode()
        with pytest.raises(StatusError):
            bodies.check_json_size(texts)
