"""Request parsing: method, path and query, as in kube-apiserver."""

from __future__ import annotations

import functools
import re
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import web

from gatehouse.apis import request_info
from gatehouse.apis.request_info import RequestInfo
from gatehouse.apiserver.errors import ApiError, bad_request
from gatehouse.apiserver.http import bodies
from gatehouse.apiserver.objects.registry import Registry
from gatehouse.apiserver.objects.served_resource import ServedResource
from gatehouse.apiserver.objects.write_request import WriteOptions

Object = dict[str, Any]

APPLY = bodies.APPLY

_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})|\?.*;", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,19}")


class Target(msgspec.Struct, frozen=True):
    """An object, a collection or a subresource."""

    served: ServedResource
    """The resource that is stored."""
    requested: ServedResource
    """The requested resource. It differs from `served` for aliases only."""
    namespace: str
    name: str
    subresource: str

    @property
    def prefix(self) -> str:
        """Prefix of the keys of a collection."""
        base = self.served.prefix
        namespaced = self.served.resource.namespaced and self.namespace
        return f"{base}{self.namespace}/" if namespaced else base

    @property
    def key(self) -> str:
        """Key of the object."""
        return self.served.key(self.namespace, self.name)


def info(request: web.BaseRequest) -> RequestInfo:
    """Parse the request line. Raises ApiError 400."""
    raw = request.path_qs
    if _MALFORMED.search(raw):
        # Parsers disagree about these: a selector could mean one thing to the authorizer and
        # another to the handler.
        raise bad_request("the URL has a malformed percent-encoding, or ';' in its query")
    try:
        unquote_to_bytes(raw).decode()
        return request_info.parse(request.method, raw)
    except UnicodeDecodeError as error:
        raise bad_request("the URL is not UTF-8") from error
    except request_info.RequestError as error:
        raise bad_request(str(error)) from error


def target(registry: Registry, asked: RequestInfo) -> Target | None:
    """Return the target of a resource request; None if nothing is served there."""
    served = registry.find(asked.group, asked.version, asked.resource)
    if served is None or asked.verb_in_path or len(asked.parts) > 3:
        return None
    name, namespace = (*asked.parts[1:], "")[0], asked.namespace
    if asked.subresource and not name:
        return None
    if served.resource.namespaced:
        if name and not namespace:
            return None
    elif namespace and (asked.resource, namespace) != ("namespaces", name):
        return None
    stored = served
    if served.alias is not None:
        stored = registry.stored(served.alias.group, served.alias.plural) or served
    return Target(stored, served, namespace, name, asked.subresource)


def flag(request: web.BaseRequest, name: str) -> bool:
    """Return a boolean of the query: true unless absent, `false` or `0`, as in Kubernetes."""
    return request.query.get(name, "0").casefold() not in ("0", "false")


def number(request: web.BaseRequest, name: str) -> int | None:
    """Return a number of the query; None if it is absent. Raises ApiError 400."""
    text = request.query.get(name, "")
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or int(text) >= 2**63:
        shown = text[:100]
        if name == "resourceVersion":
            raise bad_request(
                f'invalid resource version: resourceVersion: Invalid value: "{shown}": '
                f'strconv.ParseUint: parsing "{shown}": invalid syntax'
            )
        raise bad_request(f"{name}: Invalid value: {shown!r}: must be a number")
    return int(text)


def not_allowed(request: web.BaseRequest) -> ApiError:
    """Build a 405."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", f"{message}: {request.method} {request.path}")


def options(request: web.BaseRequest) -> WriteOptions:
    """Parse the options of a write. Raises ApiError."""
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
    return WriteOptions(validation, any(dry_run), manager, flag(request, "force"))


def reject_encoding(request: web.BaseRequest) -> None:
    """Raise ApiError 415 for a compressed body. The server never inflates a body."""
    for value in request.headers.getall("Content-Encoding", ()):
        if value.strip().lower() not in ("", "identity"):
            message = f"the Content-Encoding {value[:100]!r} of the body is not supported"
            error = ApiError(415, "UnsupportedMediaType", message)
            # RFC 9110, section 15.5.16.
            error.headers["Accept-Encoding"] = "identity"
            raise error


async def body(request: web.BaseRequest) -> Any:
    """Decode the body: JSON, YAML or protobuf. Raises ApiError."""
    data = await read(request)
    if not data:
        return {}
    return await bodies.run(functools.partial(bodies.decode, data, request.content_type), data)


async def read(request: web.BaseRequest) -> bytes:
    """Return the bytes of the body. Raises ApiError 413."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        message = "Request entity too large: limit is 3145728"
        raise ApiError(413, "RequestEntityTooLarge", message) from error
