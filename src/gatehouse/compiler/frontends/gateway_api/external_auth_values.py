"""Values of ExternalAuth filters (GEP-1494) that a route and a listener may have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import gateway_limits
from gatehouse.incremental.query import Ask, Key

ALWAYS_SENT = frozenset({"authorization", "content-length", "host"})
"""Headers in lower case that an authorization server gets whether they are listed or not."""

_PATH = re.compile(r"(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*")
_MAX_PATH_CHARACTERS = 1024
_MAX_HEADERS = 64
_MAX_NAME_CHARACTERS = 256
"""Maximum length of a header's name, as elsewhere in Gateway API. This list has none in the CRD."""
_BODY_LIMIT = "bodyBufferBytes"


def external_auth_problems(
    ask: Ask, gateway: Key, spec: routes.ExternalAuthSpec, where: str
) -> Iterator[str]:
    """Yield a message for each invalid field of a filter at a Gateway; ``where``: its path."""
    yield from _problems(spec, where)
    if excess := ask(gateway_limits, gateway).excess(_BODY_LIMIT, spec.forward_body.max_size):
        yield f"{where}.forwardBody.maxSize: {excess}"


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
        elif name.lower() not in ALWAYS_SENT and header_names.problem(name):
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
