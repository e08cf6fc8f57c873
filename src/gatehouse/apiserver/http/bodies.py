"""Decoding of request bodies: JSON, YAML and Kubernetes' protobuf, within limits.

Large bodies are decoded in a thread, one at a time, so that other requests are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from gatehouse.apiserver.builtin import protobuf
from gatehouse.apiserver.errors import bad_request
from gatehouse.apiserver.http import depth, yaml_bodies

Object = dict[str, Any]
Result = TypeVar("Result")

APPLY = "application/apply-patch+yaml"

INLINE_BYTES = 16 * 1024
"""Bodies up to this size are decoded in the event loop, in at most 50 ms."""

MAX_DUPLICATES = 10
"""Duplicate fields that an error message names."""


@functools.cache
def _decoder() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="decoder")


async def run(work: Callable[[], Result], data: bytes) -> Result:
    """Return the result of ``work`` on a body; in a thread if the body is large."""
    if len(data) <= INLINE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_decoder(), work)


def decode(data: bytes, content_type: str) -> Any:
    """Decode a body. Raises ApiError 400, or 415 for a kind that protobuf does not cover."""
    if content_type == protobuf.MEDIA_TYPE:
        return _limited(protobuf.decode, data, "protobuf")
    if content_type in ("application/yaml", APPLY) and data[:1] != b"{":
        return yaml_bodies.decode(data)
    return _limited(msgspec.json.decode, data, "JSON")


def _limited(decoder: Callable[[bytes], Any], data: bytes, name: str) -> Any:
    try:
        decoded = decoder(data)
    except RecursionError as error:
        raise depth.too_deep(f"error parsing {name}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"error parsing {name}: {error}") from error
    if depth.exceeds_limit(decoded):
        raise depth.too_deep(f"error parsing {name}")
    return decoded


def duplicates(data: bytes) -> list[str]:
    """Return the paths of duplicate fields of a JSON text, at most `MAX_DUPLICATES`.

    The last value would win, so that strict decoding refuses them.
    """
    repeated: dict[int, list[str]] = {}
    """Keys by the identity of their object, which lives until the end of the call."""

    def collect(pairs: list[tuple[str, Any]]) -> Object:
        decoded = dict(pairs)
        if len(decoded) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated[id(decoded)] = [key for key, count in counts.items() if count > 1]
        return decoded

    whole = json.loads(data, object_pairs_hook=collect)
    paths: list[str] = []
    if repeated:
        for path, obj in _objects(whole, ""):
            prefix = f"{path}." if path else ""
            paths += [f"{prefix}{key}" for key in repeated.get(id(obj), ())]
            if len(paths) >= MAX_DUPLICATES:
                break
    return paths[:MAX_DUPLICATES]


def _objects(value: Any, path: str) -> Iterator[tuple[str, Object]]:
    """Yield every object of a document with its path, outer ones first."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            if isinstance(inner, (dict, list)):
                yield from _objects(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if isinstance(inner, (dict, list)):
                yield from _objects(inner, f"{path}[{index}]")
