"""Session persistence: the session's name decides, by consistent hashing, who answers."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.ir import http as ir


class Session(msgspec.Struct, frozen=True):
    """Directives of a location, and the maps that they need."""

    directives: tuple[Directive, ...] = ()
    maps: tuple[Directive, ...] = ()


def session(wanted: ir.Persistence | None, route: str) -> Session:
    """Give what reads a client's session and begins one where there is none."""
    if wanted is None:
        return Session()
    variable = names.session_variable(wanted, route)
    begun = names.variable("begun", variable)
    if wanted.kind == "header":
        source = f"$http_{wanted.name.lower().replace('-', '_')}"
        name, value = wanted.name, f"${variable}"
    else:
        source = f"$gh_cookie_{names.digest(wanted.name)}"
        lifetime = f"; Max-Age={wanted.lifetime}" if wanted.lifetime else ""
        text = quoting.text(wanted.name)[1:-1]
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
    if wanted.kind == "cookie":
        maps.insert(0, _cookie(wanted.name, source))
    added = simple("add_header", quoting.header_name(name), f"${begun}", "always")
    return Session((added,), tuple(maps))


def _cookie(name: str, variable: str) -> Directive:
    """Give the map that finds a cookie whose name NGINX's own variables cannot say."""
    pattern = f"~(?:^|;\\s*){quoting.pattern(name)}=(?<gh_cookie>[^;]*)"
    rows = (simple(quoting.literal(pattern), "$gh_cookie"), simple("default", '""'))
    return block("map", ("$http_cookie", variable), rows)


def upstream_name(cluster: str, wanted: ir.Persistence | None, route: str) -> str:
    """Give the upstream of a cluster whose endpoints are chosen by session."""
    if wanted is None:
        return cluster
    return f"{cluster}-{names.session_variable(wanted, route).removeprefix('gh_')}"
