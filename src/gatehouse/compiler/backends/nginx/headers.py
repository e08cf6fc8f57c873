"""Header modifications of requests to backends and of responses to clients."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.ir import http as ir

DEFAULTS: tuple[tuple[str, str], ...] = (
    ("Host", "$gh_host"),
    ("X-Real-IP", "$remote_addr"),
    ("X-Forwarded-For", "$proxy_add_x_forwarded_for"),
    ("X-Forwarded-Proto", "$scheme"),
    ("X-Forwarded-Host", "$gh_host"),
    ("X-Forwarded-Port", "$gh_port"),
    ("Upgrade", "$http_upgrade"),
    ("Connection", "$gh_connection"),
)
"""Sent to every backend. A location that changes one repeats all: NGINX inherits all or none."""

GRPC = tuple(pair for pair in DEFAULTS if pair[0] not in ("Upgrade", "Connection"))
"""Sent to gRPC backends: HTTP/2 has no connection headers."""

_PLAIN = re.compile(r"[A-Za-z0-9-]+")


class RequestHeaders(msgspec.Struct, frozen=True):
    """Directives of a location, and the maps that they need."""

    directives: tuple[Directive, ...] = ()
    maps: tuple[Directive, ...] = ()


def defaults(removed: Iterable[str] = ()) -> list[Directive]:
    """Return the directives that every location inherits, without the ``removed`` headers."""
    return [
        simple(f"{module}_set_header", name, value)
        for module in ("proxy", "grpc")
        for name, value in default_headers(module, removed)
    ]


def default_headers(module: str, removed: Iterable[str]) -> list[tuple[str, str]]:
    """Return the default headers sent to backends, with their values as tokens."""
    known, left_out = GRPC if module == "grpc" else DEFAULTS, set(removed)
    return [
        (name, value)
        for name, value in known
        if not name.startswith("X-") or not left_out & {name.lower(), "*"}
    ]


def joined(first: ir.HeaderEdit, second: ir.HeaderEdit) -> ir.HeaderEdit:
    """Return the edit that applies ``first``, then ``second``."""
    overridden = {item.name.lower() for item in second.set} | {n.lower() for n in second.remove}
    return ir.HeaderEdit(
        set=(*(i for i in first.set if i.name.lower() not in overridden), *second.set),
        add=(*(i for i in first.add if i.name.lower() not in overridden), *second.add),
        remove=(*first.remove, *second.remove),
    )


def request(
    module: str,
    edit: ir.HeaderEdit,
    hostname: str | None,
    scope: str,
    claims: Iterable[tuple[str, str]] = (),
    removed: Iterable[str] = (),
    cookie: str = "",
) -> RequestHeaders:
    """Return the headers sent to a backend; nothing if the inherited ones are right.

    ``claims``: headers with their values as tokens, which override those of the client.
    ``removed``: default headers that are not sent. ``cookie``: the variable with the cookies to
    send; empty: all cookies of the client.
    """
    claims = list(claims)
    if not edit and hostname is None and not claims and not cookie:
        return RequestHeaders()
    default_pairs = default_headers(module, removed)
    headers: dict[str, tuple[str, str]] = {
        name.lower(): (name, value) for name, value in default_pairs
    }
    if cookie:
        headers["cookie"] = ("Cookie", f"${cookie}")
    if hostname is not None:
        headers["host"] = ("Host", quoting.text(hostname))
    for name in edit.remove:
        headers[name.lower()] = (name, '""')
    for item in edit.set:
        headers[item.name.lower()] = (item.name, quoting.text(item.value))
    maps: list[Directive] = []
    for item in edit.add:
        headers[item.name.lower()] = (item.name, _appended(item, headers, scope, maps))
    headers.update({name.lower(): (name, value) for name, value in claims})
    directives = tuple(
        simple(f"{module}_set_header", quoting.header_name(name), value)
        for name, value in headers.values()
    )
    return RequestHeaders(directives, tuple(maps))


def _appended(
    item: ir.HeaderValue, headers: dict[str, tuple[str, str]], scope: str, maps: list[Directive]
) -> str:
    """Return the header value with ``item`` appended, without a comma if it was empty."""
    name = item.name.lower()
    value = quoting.text(item.value)
    if name in headers and headers[name][1] != '""':
        before = headers[name][1]
        inner = before[1:-1] if before.startswith('"') else f"${{{before[1:]}}}"
        return f'"{inner},{value[1:-1]}"'
    if name in headers:
        return value
    if not _PLAIN.fullmatch(name):
        raise InvalidValueError("name of an added header contains characters that NGINX ignores")
    variable = names.variable(scope, "add", name, item.value)
    source = f"http_{name.replace('-', '_')}"
    rows = (simple('""', value), simple("default", f'"${{{source}}},{value[1:-1]}"'))
    maps.append(block("map", (f"${source}", f"${variable}"), rows))
    return f'"${{{variable}}}"'


def hidden(module: str, edit: ir.HeaderEdit, others: Iterable[str] = ()) -> list[Directive]:
    """Return the directives that hide removed or replaced headers of a backend from clients."""
    names = dict.fromkeys(name.lower() for name in (*edit.remove, *others))
    names.update(dict.fromkeys(item.name.lower() for item in edit.set))
    return [simple(f"{module}_hide_header", quoting.header_name(name)) for name in names]


def added(edit: ir.HeaderEdit) -> list[Directive]:
    """Return the directives that add response headers. They work in every NGINX version."""
    return [
        simple("add_header", quoting.header_name(item.name), quoting.text(item.value), "always")
        for item in (*edit.set, *edit.add)
    ]
