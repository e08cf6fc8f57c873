"""Request parsing: method, path and query, as in kube-apiserver."""

from __future__ import annotations

import functools
import re
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import web

from kube_api_server import offload
from kube_api_server.builtin.protobuf_messages import PROTOBUF_TYPE
from kube_api_server.causes import unsupported_cause
from kube_api_server.errors import Cause, StatusError, bad_request, invalid_error
from kube_api_server.http import bodies
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.objects.write_request import WriteOptions
from kube_base.types import request_info
from kube_base.types.request_info import RequestInfo

APPLY = bodies.APPLY_PATCH

MAX_BODY_BYTES = 3 * 1024 * 1024
"""Maximum size of a request body, the limit of kube-apiserver."""

_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_DURATION = re.compile(
    r"[+-]?(0|(([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)"
)
"""A duration of Go, such as `1m30s`: only `0` has no unit."""


class RequestTarget(msgspec.Struct, frozen=True):
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


def check_timeout(request: web.BaseRequest, info: RequestInfo) -> None:
    """Check the duration in the query `timeout`. Raises StatusError 400 if it is malformed.

    The server's own limits hold for all requests. A watch has a timeout in seconds.
    """
    timeout = request.query.get("timeout")
    if timeout and info.verb != "watch" and not _DURATION.fullmatch(timeout):
        why = f'time: invalid duration "{timeout[:100]}"'
        raise bad_request(f"invalid timeout specified in the request URL - {why}")


def info(request: web.BaseRequest) -> RequestInfo:
    """Parse the request line. Raises ApiError 400."""
    raw = request.rel_url.raw_path_qs
    if _MALFORMED.search(raw) or ";" in raw.partition("?")[2] or "#" in request.raw_path:
        # Parsers disagree about these: a selector could mean one thing to the authorizer and
        # another to the handler.
        raise bad_request("the URL has a malformed percent-encoding, '#', or ';' in its query")
    try:
        unquote_to_bytes(raw).decode()
        return request_info.parse_request(request.method, raw)
    except UnicodeDecodeError as error:
        raise bad_request("the URL is not UTF-8") from error
    except request_info.RequestError as error:
        raise bad_request(str(error)) from error


def target(registry: Registry, request: RequestInfo) -> RequestTarget | None:
    """Return the target of a resource request; None if nothing is served there."""
    served = registry.find(request.group, request.version, request.resource)
    if served is None or request.verb_in_path or len(request.parts) > 3:
        return None
    name, namespace = (*request.parts[1:], "")[0], request.namespace
    if request.subresource and not name:
        return None
    if served.resource.namespaced:
        if name and not namespace:
            return None
    elif namespace and (request.resource, namespace) != ("namespaces", name):
        return None
    stored = served
    if served.alias is not None:
        stored = registry.stored(served.alias.group, served.alias.plural) or served
    return RequestTarget(stored, served, namespace, name, request.subresource)


def query_flag(request: web.BaseRequest, name: str) -> bool:
    """Return a boolean of the query: true unless absent, `false` or `0`, as in Kubernetes."""
    return request.query.get(name, "0").casefold() not in ("0", "false")


def query_number(request: web.BaseRequest, name: str, least: int = 0) -> int | None:
    """Return a number of the query; None if it is absent. Raises ApiError 400."""
    text = request.query.get(name, "")
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or not least <= int(text) < 2**63:
        excerpt = text[:100]
        if name == "resourceVersion":
            raise bad_request(
                f'invalid resource version: resourceVersion: Invalid value: "{excerpt}": '
                f'strconv.ParseUint: parsing "{excerpt}": invalid syntax'
            )
        raise bad_request(f"{name}: Invalid value: {excerpt!r}: must be a number")
    return int(text)


def not_allowed(request: web.BaseRequest) -> StatusError:
    """Build a 405."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", f"{message}: {request.method} {request.path}")


_VALIDATIONS = ("Ignore", "Strict", "Warn")
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}


def options(request: web.BaseRequest) -> WriteOptions:
    """Parse the options of a write. Raises ApiError."""
    query = request.query
    causes = []
    validation = query.get("fieldValidation") or "Warn"
    if validation not in _VALIDATIONS:
        causes.append(unsupported_cause("fieldValidation", validation[:100], _VALIDATIONS))
    dry_run = query.getall("dryRun", [])
    if any(value not in ("", "All") for value in dry_run):
        causes.append(unsupported_cause("dryRun", dry_run[0][:100], ["All"]))
    manager = query.get("fieldManager", "")
    if len(manager) > 128:
        why = "Too long: may not be more than 128 bytes"
        causes.append(Cause("FieldValueTooLong", why, "fieldManager"))
    if causes:
        kind = _OPTIONS.get(request.method, "DeleteOptions")
        raise invalid_error(kind, "meta.k8s.io", "", causes)
    if not manager:
        agent = request.headers.get("User-Agent", "")
        manager = agent.split("/")[0][:128] or "unknown"
    return WriteOptions(validation, any(dry_run), manager, query_flag(request, "force"))


def reject_encoding(request: web.BaseRequest) -> None:
    """Raise ApiError 415 for a compressed body. The server never inflates a body."""
    for value in request.headers.getall("Content-Encoding", ()):
        if value.strip().lower() not in ("", "identity"):
            message = f"the Content-Encoding {value[:100]!r} of the body is not supported"
            error = StatusError(415, "UnsupportedMediaType", message)
            # RFC 9110, section 15.5.16.
            error.headers["Accept-Encoding"] = "identity"
            raise error


IGNORE_UNKNOWN = WriteOptions(validation="Ignore")
_BODY_TYPES = ("application/json", "application/yaml", PROTOBUF_TYPE)


async def object_body(
    request: web.BaseRequest, target: RequestTarget, options: WriteOptions
) -> bodies.DecodedBody:
    """Decode the body of a create or an update. Raises ApiError 400, 415."""
    if "Content-Type" in request.headers and request.content_type not in _BODY_TYPES:
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(_BODY_TYPES)}"
        )
        raise StatusError(415, "UnsupportedMediaType", message)
    decoded = await decoded_body(request, options)
    if not isinstance(decoded.value, dict) or not await request.read():
        kind = target.requested.resource.kind
        raise bad_request(f"the object provided is unrecognized (must be of type {kind})")
    return decoded


async def body(request: web.BaseRequest) -> Any:
    """Decode the body: JSON, YAML or protobuf. Raises ApiError."""
    return (await decoded_body(request)).value


async def decoded_body(
    request: web.BaseRequest, options: WriteOptions = IGNORE_UNKNOWN
) -> bodies.DecodedBody:
    """Decode the body. Duplicate fields are not looked for if the options ignore them."""
    data = await _read(request)
    if not data:
        return bodies.DecodedBody({})
    strict = options.validation != "Ignore"
    decode = functools.partial(bodies.decode_body, data, request.content_type, duplicates=strict)
    return await offload.run_offloaded(decode, len(data))


async def _read(request: web.BaseRequest) -> bytes:
    """Return the bytes of the body. Raises ApiError 413."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise too_large() from error


def too_large() -> StatusError:
    """Build a 413."""
    message = f"Request entity too large: limit is {MAX_BODY_BYTES}"
    return StatusError(413, "RequestEntityTooLarge", message)
