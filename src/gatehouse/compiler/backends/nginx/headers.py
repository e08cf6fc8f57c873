"""Header modifications of requests to backends and of responses to clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import functions, names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, simple_directive
from gatehouse.compiler.backends.nginx.header_variables import header_variable, is_known_name
from gatehouse.compiler.backends.nginx.route_context import (
    NginxRouteContext,
    RoutePiece,
    definitions,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

_DEFAULTS: tuple[tuple[str, str], ...] = (
    ("Host", "$gh_host"),
    ("X-Real-IP", "$remote_addr"),
    ("X-Forwarded-For", "$proxy_add_x_forwarded_for"),
    ("X-Forwarded-Proto", "$scheme"),
    ("X-Forwarded-Host", "$gh_host"),
    ("X-Forwarded-Port", "$gh_port"),
    ("Forwarded", '""'),
    ("HTTP2-Settings", '""'),
    ("Upgrade", "$gh_upgrade"),
    ("Connection", "$gh_connection"),
)
"""Sent to every backend; empty values remove the client's. A location that changes one repeats all:
NGINX inherits all or none."""

_CONNECTION = ("HTTP2-Settings", "Upgrade", "Connection")

GRPC = tuple(pair for pair in _DEFAULTS if pair[0] not in _CONNECTION)
"""Sent to gRPC backends: HTTP/2 has no connection headers."""

_MAX_GRPC_NAME_CHARACTERS = 46
"""Maximum length of a header's name that fits the fixed hash of NGINX's gRPC module."""

_NONE: Mapping[str, str] = {}

_EXTENDED, _LIST = "gh_extended", "gh_list"

ADDITION_NEEDS = definitions(
    (
        functions.argument(_EXTENDED),
        functions.unless_empty(_EXTENDED, _LIST, f'"${{{_EXTENDED}}},"'),
    )
)
"""Needs of locations with added request headers."""

_OWN = frozenset({"date", "server"})
"""Response headers in lower case that NGINX adds after all others. Another value would be a second
header."""
OWN_HEADER = "NGINX always sends its own"


def defaults(removed: Iterable[str] = ()) -> list[Directive]:
    """Return the directives that every location inherits, without the ``removed`` headers."""
    return [
        simple_directive(f"{module}_set_header", name, value)
        for module in ("proxy", "grpc")
        for name, value in default_headers(module, removed)
    ]


def default_headers(module: str, removed: Iterable[str]) -> list[tuple[str, str]]:
    """Return the default headers sent to backends, with their values as tokens."""
    known, left_out = GRPC if module == "grpc" else _DEFAULTS, set(removed)
    return [
        (name, value)
        for name, value in known
        if not name.startswith("X-") or not left_out & {name.lower(), "*"}
    ]


def request_headers(
    module: str,
    edit: ir.HeaderEdit,
    hostname: str | None,
    claims: Iterable[tuple[str, str]] = (),
    removed: Iterable[str] = (),
    cookie: str = "",
    authorized: Mapping[str, str] = _NONE,
    *,
    upgrades: bool = True,
) -> tuple[Directive, ...]:
    """Return the headers sent to a backend; nothing if the inherited ones are right.

    ``claims``: headers with their values as tokens, which override those of the client.
    ``removed``: default headers that are not sent. ``cookie``: the variable with the cookies to
    send; empty: all cookies of the client. ``authorized``: variables of headers that replace those
    of the client before any change. ``upgrades``: false if the backend must not be asked for
    another protocol.
    """
    claims = list(claims)
    if not (edit or claims or cookie or authorized) and hostname is None and upgrades:
        return ()
    headers: dict[str, tuple[str, str]] = {
        name.lower(): (name, value) for name, value in default_headers(module, removed)
    }
    for name in authorized:
        headers.pop(name, None)
    if not upgrades:
        headers |= {name.lower(): (name, '""') for name in ("Upgrade", "Connection")}
    if cookie:
        headers["cookie"] = ("Cookie", f"${cookie}")
    for name in edit.remove:
        headers[name.lower()] = (name, '""')
    for item in edit.set:
        headers[item.name.lower()] = (item.name, _value(item))
    if hostname is not None:
        headers["host"] = ("Host", quoting.quote_text_literal(hostname, "hostname"))
    arguments: list[Directive] = []
    for item in edit.add:
        headers[item.name.lower()] = (item.name, _appended(item, headers, authorized, arguments))
    for name, variable in authorized.items():
        headers.setdefault(name, (name, f'"${{{variable}}}"'))
    headers.update({name.lower(): (name, value) for name, value in claims})
    return (
        *arguments,
        *(
            simple_directive(f"{module}_set_header", _checked_name(module, name), value)
            for name, value in headers.values()
        ),
    )


def _appended(
    item: ir.HeaderValue,
    headers: Mapping[str, tuple[str, str]],
    authorized: Mapping[str, str],
    arguments: list[Directive],
) -> str:
    """Return the header value with ``item`` appended, without a comma if it was empty."""
    name = item.name.lower()
    value = _value(item)
    if name in headers and headers[name][1] != '""':
        before = headers[name][1]
        inner = before[1:-1] if before.startswith('"') else f"${{{before[1:]}}}"
        return quoting.fitting(f'"{inner},{value[1:-1]}"', f"header {item.name}: value")
    if name in headers:
        return value
    if not is_known_name(name):
        raise InvalidValueError(
            f"name of added header {item.name} contains characters that NGINX ignores"
        )
    # Named by the header, because a mirror sets the variables of the mirrored request.
    before = names.variable("before", name)
    sent = authorized.get(name) or header_variable(name)
    arguments += [
        functions.set_argument(_EXTENDED, f"${sent}"),
        functions.set_argument(before, f"${_LIST}"),
    ]
    return f'"${{{before}}}{value[1:-1]}"'


def _value(item: ir.HeaderValue) -> str:
    return quoting.quote_text_literal(item.value, f"header {item.name}: value")


def _checked_name(module: str, name: str) -> str:
    """Check the name of a header in a directive of a module. Raises InvalidValueError."""
    if module == "grpc" and len(name) > _MAX_GRPC_NAME_CHARACTERS:
        raise InvalidValueError(
            f"name of header {name} is longer than {_MAX_GRPC_NAME_CHARACTERS} characters, which "
            "NGINX does not support for gRPC"
        )
    return quoting.checked_header_name(name)


def hidden(module: str, names: Iterable[str]) -> list[Directive]:
    """Return the directives that hide removed or replaced headers of a backend from clients."""
    return [
        simple_directive(f"{module}_hide_header", _checked_name(module, name))
        for name in dict.fromkeys(name.lower() for name in names)
    ]


def response_headers_piece(context: NginxRouteContext, route: ir.Route) -> RoutePiece | None:
    """Return the changes of response headers by the route and its backend.

    They work in every NGINX version. Raises InvalidValueError.
    """
    edit = route.response_headers
    if context.backend is not None and context.backend.response_headers:
        edit = edit.then(context.backend.response_headers)
    if not edit:
        return None
    added = tuple(
        simple_directive(
            "add_header", quoting.checked_header_name(item.name), _value(item), "always"
        )
        for item in (*edit.set, *edit.add)
        if item.name.lower() not in _OWN
    )
    return RoutePiece(added=added, hidden=(*edit.remove, *(item.name for item in edit.set)))


def unsupported_response_headers(
    _context: NginxRouteContext, route: ir.Route
) -> Iterator[UnsupportedSetting]:
    """Yield the changes of response headers that have no effect."""
    backends = route.action.backends if isinstance(route.action, ir.Forward) else ()
    for edit in (route.response_headers, *(backend.response_headers for backend in backends)):
        for name in (*edit.remove, *(item.name for item in (*edit.set, *edit.add))):
            if name.lower() in _OWN:
                yield UnsupportedSetting(NO_ORIGIN, f"response header {name}: {OWN_HEADER}")
