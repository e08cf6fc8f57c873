"""JSON patch (RFC 6902) and JSON merge patch (RFC 7396)."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_base.types.objects import copy_value
from kube_base.types.patches.errors import (
    InapplicablePatchError,
    MalformedPatchError,
    OversizedPatchError,
)

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Maximum number of bytes that one patch copies. A short patch could fill the memory by doubling.
"""


def merge_json(current: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396). Neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_json(result.get(key), value)
    return result


def patch(current: Any, operations: Any) -> Any:
    """Apply a JSON patch. Neither argument is changed. Raises PatchFailedError."""
    if not isinstance(operations, list):
        raise MalformedPatchError("a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        message = f"the allowed maximum of operations in a JSON patch is {MAX_OPERATIONS}"
        raise OversizedPatchError(message)
    result, copied = copy_value(current), 0
    for operation in operations:
        try:
            if operation["op"] == "copy":
                copied += len(msgspec.json.encode(_get(result, _pointer(operation["from"]))))
                if copied > MAX_COPIED_BYTES:
                    message = f"the JSON patch copies more than {MAX_COPIED_BYTES} bytes"
                    raise OversizedPatchError(message)
            result = _apply_operation(result, operation)
        except (KeyError, IndexError, ValueError, TypeError, RecursionError) as error:
            path = operation.get("path") if isinstance(operation, dict) else operation
            message = f"the JSON patch cannot be applied at {path!r}: {error}"
            raise InapplicablePatchError(message) from error
    return result


def _apply_operation(document: Any, operation: dict[str, Any]) -> Any:
    steps = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _set(document, steps, copy_value(operation["value"]), insert=True)
        case "replace":
            _get(document, steps)
            return _set(document, steps, copy_value(operation["value"]), insert=False)
        case "remove":
            return _remove(document, steps)
        case "move":
            source = _pointer(operation["from"])
            value = _get(document, source)
            return _set(_remove(document, source), steps, value, insert=True)
        case "copy":
            value = copy_value(_get(document, _pointer(operation["from"])))
            return _set(document, steps, value, insert=True)
        case "test":
            if _get(document, steps) != operation["value"]:
                raise ValueError("test failed")
            return document
    raise ValueError(operation["op"])


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise ValueError(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(value: Any, steps: list[str]) -> Any:
    for step in steps:
        value = value[_index(step, len(value) - 1)] if isinstance(value, list) else value[step]
    return value


def _index(step: str, maximum: int) -> int:
    """Parse an array index (RFC 6901) of at most `maximum`. Raises ValueError, IndexError."""
    if not step.isascii() or not step.isdecimal() or (step[0] == "0" and step != "0"):
        raise ValueError(f"{step!r} is not an array index")
    if int(step) > maximum:
        raise IndexError(f"array index {step} is out of range")
    return int(step)


def _set(document: Any, steps: list[str], value: Any, *, insert: bool) -> Any:
    if not steps:
        return value
    parent, last = _get(document, steps[:-1]), steps[-1]
    if isinstance(parent, list):
        if last == "-":
            parent.append(value)
        elif insert:
            parent.insert(_index(last, len(parent)), value)
        else:
            parent[_index(last, len(parent) - 1)] = value
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise TypeError("cannot add to a scalar value")
    return document


def _remove(document: Any, steps: list[str]) -> Any:
    if not steps:
        raise ValueError("the whole object cannot be removed")
    parent, last = _get(document, steps[:-1]), steps[-1]
    del parent[_index(last, len(parent) - 1) if isinstance(parent, list) else last]
    return document
