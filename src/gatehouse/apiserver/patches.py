"""Patches: JSON patch (RFC 6902), JSON merge patch (RFC 7396), strategic merge of core kinds."""

from __future__ import annotations

from typing import Any

from gatehouse.apiserver.errors import ApiError, bad_request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

MERGE_KEYS = {
    "ports": ("port", "containerPort"),
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "tolerations": (),
}
"""Lists of core kinds that are merged item by item, and by which field (Kubernetes API types)."""


def apply(kind: str, current: Any, patch: Any) -> Any:
    """Give the patched object; neither argument is changed. Raises ApiError."""
    if kind == JSON_PATCH:
        return _json_patch(current, patch)
    if not isinstance(patch, dict):
        raise bad_request("the patch must be an object")
    if kind == MERGE_PATCH:
        return merge(current, patch)
    if kind == STRATEGIC_PATCH:
        return _strategic(current, patch)
    supported = f"{JSON_PATCH}, {MERGE_PATCH}, {STRATEGIC_PATCH}"
    message = f"patches of this media type are not taken; these are: {supported}"
    raise ApiError(415, "UnsupportedMediaType", message)


def merge(current: Any, patch: Any) -> Any:
    """Merge as RFC 7396 says."""
    if not isinstance(patch, dict):
        return patch
    result = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def _strategic(current: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if key.startswith("$setElementOrder/") or key in ("$patch", "$retainKeys"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name, []) if item not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list) and MERGE_KEYS.get(key):
            result[key] = _merge_lists(result.get(key) or [], value, MERGE_KEYS[key])
        elif key == "finalizers" and isinstance(value, list):
            result[key] = list(dict.fromkeys([*(result.get(key) or []), *value]))
        else:
            result[key] = _strategic(result.get(key), value)
    return result


def _merge_lists(current: list[Any], patch: list[Any], keys: tuple[str, ...]) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict):
            if item not in result:
                result.append(item)
            continue
        key = next((name for name in keys if name in item), keys[0])
        found = next((i for i, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if found is not None:
                del result[found]
        elif found is None:
            result.append(_strategic({}, item))
        else:
            result[found] = _strategic(result[found], item)
    return result


def _json_patch(current: Any, patch: Any) -> Any:
    if not isinstance(patch, list):
        raise bad_request("a JSON patch is a list of operations")
    result = _copy(current)
    for operation in patch:
        try:
            result = _operate(result, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            path = operation.get("path") if isinstance(operation, dict) else operation
            message = f"the server rejected our request due to an error in our request: {path}"
            raise ApiError(422, "Invalid", message) from error
    return result


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    steps = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _set(document, steps, _copy(operation["value"]), insert=True)
        case "replace":
            _get(document, steps)
            return _set(document, steps, _copy(operation["value"]), insert=False)
        case "remove":
            return _remove(document, steps)
        case "move":
            source = _pointer(operation["from"])
            value = _get(document, source)
            return _set(_remove(document, source), steps, value, insert=True)
        case "copy":
            value = _copy(_get(document, _pointer(operation["from"])))
            return _set(document, steps, value, insert=True)
        case "test":
            if _get(document, steps) != operation["value"]:
                raise ValueError("test failed")
            return document
    raise ValueError(operation["op"])


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(value: Any, steps: list[str]) -> Any:
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _set(document: Any, steps: list[str], value: Any, *, insert: bool) -> Any:
    if not steps:
        return value
    parent, last = _get(document, steps[:-1]), steps[-1]
    if isinstance(parent, list):
        if last == "-":
            parent.append(value)
        elif insert:
            parent.insert(int(last), value)
        else:
            parent[int(last)] = value
    else:
        parent[last] = value
    return document


def _remove(document: Any, steps: list[str]) -> Any:
    parent, last = _get(document, steps[:-1]), steps[-1]
    del parent[int(last) if isinstance(parent, list) else last]
    return document


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
