"""Session persistence: the session selects the endpoint by consistent hashing."""

from __future__ import annotations

import re

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.ir import http as ir

_HEADER = re.compile(r"[A-Za-z0-9-]+")


class Session(msgspec.Struct, frozen=True):
    """Directives of a location, and the maps that they need."""

    directives: tuple[Directive, ...] = ()
    maps: tuple[Directive, ...] = ()


def session(persistence: ir.Persistence | None, route: str) -> Session:
    """Return the directives that read a client's session, or start one if there is none.

    Raises InvalidValueError.
    """
    if persistence is None:
        return Session()
    variable = names.session_variable(persistence, route)
    begun = names.variable("begun", variable)
    if persistence.kind == "header":
        if not _HEADER.fullmatch(persistence.name):
            raise InvalidValueError(
                f"session header {persistence.name!r} cannot be read: NGINX ignores such names"
            )
        source = f"$http_{persistence.name.lower().replace('-', '_')}"
        name, value = persistence.name, f"${variable}"
    else:
        source = f"$gh_cookie_{names.digest(persistence.name)}"
        lifetime = f"; Max-Age={persistence.lifetime}" if persistence.lifetime else ""
        text = quoting.text(persistence.name)[1:-1]
        name, value = "Set-Cookie", f'"{text}=${{{variable}}}; Path=/; HttpOnly{lifetime}"'
    maps = [
        block("map", (source, f"${variable}"), (
            simple(quoting.literal("~^(?<gh_session>[A-Za-z0-9._-]{1,128})$"), "$gh_session"),
            simple("default", "$request_id"),
        )),
        block("map", (source, f"${begun}"), (
            simple(quoting.literal("~^[A-Za-z0-9._-]{1,128}$"), '""'),
            simple("default", value),
        )),
    ]  # fmt: skip
    if persistence.kind == "cookie":
        maps.insert(0, _cookie(persistence.name, source))
    added = simple("add_header", quoting.header_name(name), f"${begun}", "always")
    return Session((added,), tuple(maps))


def _cookie(name: str, variable: str) -> Directive:
    """Return the map that reads a cookie whose name NGINX's variables cannot express."""
    pattern = f"~(?:^|;\\s*){quoting.pattern(name)}=(?<gh_cookie>[^;]*)"
    rows = (simple(quoting.literal(pattern), "$gh_cookie"), simple("default", '""'))
    return block("map", ("$http_cookie", variable), rows)


def upstream_name(cluster: str, persistence: ir.Persistence | None, route: str) -> str:
    """Return the upstream of a cluster whose endpoints are chosen by session."""
    if persistence is None:
        return cluster
    return f"{cluster}-{names.session_variable(persistence, route).removeprefix('gh_')}"
