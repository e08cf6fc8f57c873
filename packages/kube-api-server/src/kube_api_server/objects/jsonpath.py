"""The subset of Kubernetes' JSONPath that CRDs use: fields, indices, `*`, filters.

https://kubernetes.io/docs/reference/kubectl/jsonpath
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

Step = Callable[[list[Any]], list[Any]]

_TOKEN = re.compile(
    r"""\.(?P<field>(?:[^\s.,*\[\]$@{}\\]|\\.)+)
      | \['(?P<quoted>[^']*)'\]
      | \[(?P<index>-?\d+)\]
      | (?P<all>\[\*\]|\.\*)
      | \[\?\(@(?P<path>[\w.\\-]*)\s*(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.-]+)\)\]
      | (?P<root>^\$)
    """,
    re.VERBOSE,
)


def find_values(path: str, obj: Any) -> list[Any]:
    """Return all values at a path. Raises ValueError for an unsupported path."""
    values = [obj]
    for step in _steps(path):
        values = step(values)
    return values


def first(path: str, obj: Any) -> Any:
    """Return the first value at a path, or None."""
    values = find_values(path, obj)
    return values[0] if values else None


def simple_path(path: str) -> list[str]:
    """Return the names of a path that has only fields, for writing. Raises ValueError."""
    names = path.strip("{}").split(".")
    if names[0] or not all(re.fullmatch(r"[\w-]+", name) for name in names[1:]):
        raise ValueError(f"not a simple path: {path}")
    return names[1:]


@functools.lru_cache(4096)
def _steps(path: str) -> tuple[Step, ...]:
    text, place, steps = path.strip("{}"), 0, []
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"JSONPath not supported: {path!r} at {text[place:]!r}")
        if not match["root"]:
            steps.append(_step(match))
        place = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["all"]:
        return lambda values: [item for value in values for item in _items(value)]
    if match["index"]:
        index = int(match["index"])
        return lambda values: [v[index] for v in values if _has(v, index)]
    if match["operator"]:
        path, literal = match["path"], _literal(match["value"])
        equal = match["operator"] == "=="
        return lambda values: [
            item
            for value in values
            for item in _items(value)
            if (first(path, item) == literal) == equal
        ]
    name = match["quoted"] if match["quoted"] is not None else match["field"].replace("\\", "")
    return lambda values: [v[name] for v in values if isinstance(v, dict) and name in v]


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _has(value: Any, index: int) -> bool:
    return isinstance(value, list) and -len(value) <= index < len(value)


def _literal(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text
