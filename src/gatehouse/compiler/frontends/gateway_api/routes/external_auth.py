"""Translation of ExternalAuth filters (GEP-1494): an authorization server checks each request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import gateway_limits
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    resolve_backend,
    tls_resolved,
)
from gatehouse.compiler.ir.authentication import ExternalAuth
from gatehouse.compiler.ir.http import Route
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask

_ALWAYS_SENT = frozenset({"authorization", "content-length", "host"})
"""Headers in lower case that an authorization server gets whether they are listed or not."""

_PATH = re.compile(r"(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*")
_MAX_PATH_CHARACTERS = 1024
_MAX_HEADERS = 64
_MAX_NAME_CHARACTERS = 256
"""Maximum length of a header's name, as elsewhere in Gateway API. This list has none in the CRD."""
_BODY_LIMIT = "bodyBufferBytes"


def translate_external_auth(
    ask: Ask, at: GatewayObject, spec: routes.ExternalAuthSpec, where: str
) -> Filters:
    """Translate the filter of a route at a Gateway; ``where`` is its field path in the route."""
    messages = [*_problems(spec, where)]
    size = spec.forward_body.max_size
    if excess := ask(gateway_limits, at[0]).excess(_BODY_LIMIT, size):
        messages.append(f"{where}.forwardBody.maxSize: {excess}")
    if messages:
        return Filters(
            findings=tuple(Finding(Reason.UNSUPPORTED_VALUE, message) for message in messages)
        )
    place = f"{where}.backendRef"
    is_grpc = spec.protocol == "GRPC"
    server = resolve_backend(ask, at, spec.backend_ref, place, "grpc" if is_grpc else None)
    if isinstance(server, Finding):
        return Filters(findings=(server,))
    if not ask(tls_resolved, at[0], server):
        service = f"{server.namespace}/{server.service}"
        message = f"{place}: the BackendTLSPolicy of Service {service} is invalid"
        return Filters(findings=(Finding(Reason.INVALID_FILTER, message),))
    kind, namespace, name = at[1]
    own = spec.grpc if is_grpc else spec.http
    translated = ExternalAuth(
        cluster=server.name,
        protocol="grpc" if is_grpc else "http",
        path="" if is_grpc else _prefix(spec.http.path),
        request_headers=_unique(own.allowed_headers, () if is_grpc else _ALWAYS_SENT),
        response_headers=() if is_grpc else _unique(spec.http.allowed_response_headers),
        body_size=size,
        origin=Origin(kind, namespace, name, where),
    )
    return Filters(Route(external_auth=translated), clusters=(server,))


def _problems(spec: routes.ExternalAuthSpec, where: str) -> Iterator[str]:
    """Yield a message for each invalid field."""
    if spec.protocol not in ("HTTP", "GRPC"):
        yield f"{where}.protocol: {spec.protocol} is not supported: must be HTTP or GRPC"
    if why := _path_problem(spec.http.path):
        yield f"{where}.http.path: {spec.http.path!r} {why}"
    for kind, headers in (("http", spec.http.allowed_headers), ("grpc", spec.grpc.allowed_headers)):
        yield from _request_problems(headers, f"{where}.{kind}.allowedHeaders")
    yield from _response_problems(
        spec.http.allowed_response_headers, f"{where}.http.allowedResponseHeaders"
    )
    if spec.forward_body.max_size < 0:
        yield f"{where}.forwardBody.maxSize: must not be negative"


def _path_problem(path: str) -> str:
    """Return why a path must not be a prefix of checks; empty if it may.

    Percent-encoded characters that delimit or change a path would mean another one to the server.
    """
    if len(path) > _MAX_PATH_CHARACTERS:
        return f"must not be longer than {_MAX_PATH_CHARACTERS} characters"
    if not _PATH.fullmatch(path):
        return "contains characters that a path must not have"
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return "must be UTF-8 when decoded"
    if not decoded.isprintable() or set(decoded) & set("?#%\\"):
        return "contains encoded characters that a path must not have"
    segments = decoded.split("/")
    if "." in segments or ".." in segments or "" in segments[1:-1]:
        return "must not contain empty or dot segments"
    return ""


def _request_problems(names: tuple[str, ...], where: str) -> Iterator[str]:
    """Yield a message for each header that must not be passed to an authorization server."""
    yield from _size_problems(names, where)
    for index, name in enumerate(names):
        if not header_names.is_token(name):
            yield f"{where}[{index}]: {name!r} must be a token"
        elif name.lower() not in _ALWAYS_SENT and header_names.problem(name):
            yield f"{where}[{index}]: header {name} belongs to the connection or to the proxy"


def _response_problems(names: tuple[str, ...], where: str) -> Iterator[str]:
    """Yield a message for each header that an authorization server must not change."""
    yield from _size_problems(names, where)
    for index, name in enumerate(names):
        if name.lower() == "host":
            yield f"{where}[{index}]: header {name} must not be copied to the backend"
        elif why := header_names.request_problem("set", name):
            yield f"{where}[{index}]: {why}"


def _size_problems(names: tuple[str, ...], where: str) -> Iterator[str]:
    if len(names) > _MAX_HEADERS:
        yield f"{where}: must not have more than {_MAX_HEADERS} entries"
    for index, name in enumerate(names):
        if len(name) > _MAX_NAME_CHARACTERS:
            yield f"{where}[{index}]: must not be longer than {_MAX_NAME_CHARACTERS} characters"


def _prefix(path: str) -> str:
    """Return a path as a prefix: with a slash at the start, without one at the end."""
    stripped = path.strip("/")
    return f"/{stripped}" if stripped else ""


def _unique(names: tuple[str, ...], without: frozenset[str] | tuple[()] = ()) -> tuple[str, ...]:
    """Return names without duplicates, which differ only in upper and lower case."""
    unique = {name.lower(): name for name in reversed(names) if name.lower() not in without}
    return tuple(unique[name] for name in sorted(unique))
