"""What a request asks for, read from method, path and query as a Kubernetes API server does."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import yaml
from aiohttp import web

from gatehouse.apiserver import protobufs, registry
from gatehouse.apiserver.errors import ApiError, bad_request
from gatehouse.apiserver.registry import Served

Object = dict[str, Any]

TRUE = ("1", "t", "T", "true", "True", "TRUE")


class Target(msgspec.Struct, frozen=True):
    """An object, a collection, or a subresource."""

    served: Served
    version: str
    namespace: str
    name: str
    subresource: str


def target(path: str) -> Target | None:
    """Read a path; None if it names no resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    served = registry.find(group, version, rest[0])
    if served is None or len(rest) > 3 or (namespace and not served.resource.namespaced):
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    return Target(served, version, namespace, name, subresource)


def flag(request: web.Request, name: str) -> bool:
    """Give a boolean of the query, in any of the spellings that clients use."""
    return request.query.get(name, "") in TRUE


async def body(request: web.Request) -> Any:
    """Read the body: JSON, or YAML where it says so. Raises ApiError."""
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        message = "Request entity too large: limit is 3145728"
        raise ApiError(413, "RequestEntityTooLarge", message) from error
    kind = request.content_type
    if not data:
        return {}
    if kind == protobufs.MEDIA_TYPE:
        return protobufs.decode(data)
    if kind in ("application/yaml", "application/apply-patch+yaml"):
        try:
            return yaml.safe_load(data)
        except yaml.YAMLError as error:
            raise bad_request(f"error parsing YAML: {error}") from error
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"error parsing JSON: {error}") from error


def duplicates(data: bytes) -> list[str]:
    """Give the keys that stand twice in an object of a JSON text; the last one would win."""
    found: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> Object:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found.append(key)
            seen.add(key)
        return dict(pairs)

    json.loads(data, object_pairs_hook=check)
    return found
