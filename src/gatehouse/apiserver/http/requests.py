"""What a request asks for, read from method, path and query as a Kubernetes API server does."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import yaml
from aiohttp import web

from gatehouse.apiserver.builtin import protobufs
from gatehouse.apiserver.errors import ApiError, bad_request
from gatehouse.apiserver.objects.calls import Options
from gatehouse.apiserver.objects.registry import Registry
from gatehouse.apiserver.objects.served import Served

Object = dict[str, Any]

TRUE = ("1", "t", "T", "true", "True", "TRUE")
APPLY = "application/apply-patch+yaml"


class Target(msgspec.Struct, frozen=True):
    """An object, a collection, or a subresource."""

    served: Served
    """What is stored."""
    shown: Served
    """What was asked for: the same, but for aliases."""
    namespace: str
    name: str
    subresource: str

    @property
    def prefix(self) -> str:
        """The prefix of the keys of a collection."""
        base = self.served.prefix
        namespaced = self.served.resource.namespaced and self.namespace
        return f"{base}{self.namespace}/" if namespaced else base

    @property
    def key(self) -> str:
        """The object's key."""
        return self.served.key(self.namespace, self.name)


def target(registry: Registry, path: str) -> Target | None:
    """Read a path; None if it names no resource."""
    parts = path.split("/")
    if len(parts) > 3 and parts[1] == "api":
        group, version, rest = "", parts[2], parts[3:]
    elif len(parts) > 4 and parts[1] == "apis":
        group, version, rest = parts[2], parts[3], parts[4:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        served = registry.find(group, version, rest[2])
        if served is not None and served.resource.namespaced:
            namespace, rest = rest[1], rest[2:]
    served = registry.find(group, version, rest[0])
    if (
        served is None
        or len(rest) > 3
        or (served.resource.namespaced and not namespace and rest[1:])
    ):
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if rest[0] == "namespaces" and not group:
        namespace = name
    stored = served
    if served.alias is not None:
        stored = registry.stored(served.alias.group, served.alias.plural) or served
    return Target(stored, served, namespace, name, subresource)


def flag(request: web.BaseRequest, name: str) -> bool:
    """Read a boolean of the query, in any of the spellings that clients use."""
    return request.query.get(name, "") in TRUE


def number(request: web.BaseRequest, name: str) -> int | None:
    """Read a number of the query; None if it is not there. Raises ApiError 400."""
    text = request.query.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        if name == "resourceVersion":
            raise bad_request(
                f'invalid resource version: resourceVersion: Invalid value: "{text}": '
                f'strconv.ParseUint: parsing "{text}": invalid syntax'
            )
        raise bad_request(f"{name}: Invalid value: {text!r}: must be a number")
    return int(text)


def verb(request: web.BaseRequest, found: Target) -> str:
    """Give the verb, in the terms of authorization. Raises ApiError 405."""
    match request.method:
        case "GET" | "HEAD":
            if found.name:
                return "get"
            return "watch" if flag(request, "watch") else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "patch"
        case "DELETE":
            return "delete" if found.name else "deletecollection"
    raise not_allowed(request)


def not_allowed(request: web.BaseRequest) -> ApiError:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", f"{message}: {request.method} {request.path}")


def options(request: web.BaseRequest) -> Options:
    """Read the options of a write. Raises ApiError."""
    query = request.query
    validation = query.get("fieldValidation") or "Warn"
    if validation not in ("Strict", "Warn", "Ignore"):
        allowed = '"Ignore", "Strict", "Warn"'
        raise bad_request(
            f'fieldValidation: Unsupported value: "{validation}": supported values: {allowed}'
        )
    dry_run = query.getall("dryRun", [])
    if any(value not in ("", "All") for value in dry_run):
        raise bad_request(f'dryRun: Unsupported value: "{dry_run[0]}": supported values: "All"')
    manager = query.get("fieldManager", "")
    if len(manager) > 128:
        raise bad_request("fieldManager: Too long: may not be more than 128 bytes")
    if not manager:
        agent = request.headers.get("User-Agent", "")
        manager = agent.split("/")[0][:128] or "unknown"
    return Options(validation, any(dry_run), manager, flag(request, "force"))


async def body(request: web.BaseRequest) -> Any:
    """Read the body: JSON, YAML or protobuf. Raises ApiError."""
    data = await read(request)
    kind = request.content_type
    if not data:
        return {}
    if kind == protobufs.MEDIA_TYPE:
        return protobufs.decode(data)
    if kind in ("application/yaml", APPLY) and data[:1] != b"{":
        try:
            return yaml.load(data, Loader=_Loader)  # noqa: S506 - derived from the safe loader
        except yaml.YAMLError as error:
            raise bad_request(f"error parsing YAML: {error}") from error
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"error parsing JSON: {error}") from error


async def read(request: web.BaseRequest) -> bytes:
    """Read the bytes of the body. Raises ApiError 413."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        message = "Request entity too large: limit is 3145728"
        raise ApiError(413, "RequestEntityTooLarge", message) from error


class _Loader(yaml.CSafeLoader):
    """Reads times as the texts they are in JSON."""


_Loader.yaml_implicit_resolvers = {
    key: [(tag, test) for tag, test in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for key, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def duplicates(data: bytes) -> list[str]:
    """Give the paths of keys that stand twice in an object of a JSON text.

    The last one would win, so that strict decoding refuses them.
    """
    found: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> Object:
        seen: Object = {}
        for key, value in pairs:
            if key in seen:
                found.append(key)
            seen[key] = value
        return seen

    whole = json.loads(data, object_pairs_hook=collect)
    if not found:
        return []
    return [_path_of(whole, name) or name for name in dict.fromkeys(found)]


def _path_of(value: Any, name: str, path: str = "") -> str | None:
    """Give where a key stands, for the message."""
    if isinstance(value, dict):
        if name in value:
            return f"{path}.{name}" if path else name
        for key, inner in value.items():
            found = _path_of(inner, name, f"{path}.{key}" if path else key)
            if found:
                return found
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found = _path_of(inner, name, f"{path}[{index}]")
            if found:
                return found
    return None
