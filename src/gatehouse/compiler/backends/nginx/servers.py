"""Servers: one virtual host, or the default of a port."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.backends.nginx import (
    actions,
    data_plane_settings,
    grpc_status,
    names,
    proxy_pass,
    quoting,
    snippets,
    traffic_settings,
    upstreams,
)
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.directives import Directive, Node, Raw, block, simple, write
from gatehouse.compiler.backends.nginx.locations import Target, locations
from gatehouse.compiler.backends.nginx.match_conditions import Condition, conditions, path_condition
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.backends.nginx.route_context import Context, Served
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import DataPlaneSettings

Unsupported = tuple[tuple[str, str], ...]


class Port(msgspec.Struct, frozen=True):
    """What all servers of a port share."""

    number: int
    protocol: str
    bind_address: str
    hidden: int = 0
    """Given: where to listen instead, since connections come by way of a stream."""
    client_validation: ir_gateway.ClientValidation | None = None
    edge: DataPlaneSettings = DataPlaneSettings()


class Server(msgspec.Struct, frozen=True):
    """A virtual host's file, and what of it could not be written."""

    text: str
    unsupported: Unsupported = ()


def server(port: Port, host: ir.VirtualHost, context: Context) -> Server:
    """Write a virtual host."""
    targets, unsupported = _targets(host, context)
    try:
        found, maps = locations(context.scope, targets)
    except InvalidValueError as error:
        unsupported = [*unsupported, *((route.name, str(error)) for route in host.routes)]
        targets, (found, maps) = [], locations(context.scope, [])
    definitions = _unique(
        [
            *(c.definition for t in targets for c in t.conditions if c.definition is not None),
            *(item for target in targets for item in target.served.maps),
            *maps,
        ]
    )
    own = {each.arguments: each for target in targets for each in target.served.fixed}
    named = _reached(found, definitions, [target.served for target in targets])
    inner = [
        *_listen(port, default=not host.hostname),
        simple("server_name", quoting.literal(host.hostname or "_")),
        *_counted(port, host, context.capabilities),
        *_tls(port, host),
        *_misdirected(port, host),
        *traffic_settings.clients(host.settings.client, context.capabilities),
        *_snippets(host, unsupported),
        # A path of our own goes before a route's.
        *(location for location in found if location.arguments not in own),
        *own.values(),
        *named,
    ]
    return Server(write([*definitions, block("server", (), inner)]), tuple(unsupported))


def _counted(port: Port, host: ir.VirtualHost, capabilities: Capabilities) -> list[Directive]:
    zone = quoting.literal(names.status_zone(port.number, host.hostname))
    return [simple("status_zone", zone)] if capabilities.status_zones else []


def default_server(port: Port) -> str:
    """Write the server for names that no virtual host has."""
    inner = [*_listen(port, default=True), simple("server_name", '"_"')]
    if port.protocol == "HTTPS":
        inner.append(simple("ssl_reject_handshake", "on"))
    # Also over TLS: a request may name another host than its handshake, and come here.
    inner.append(simple("return", "404"))
    return write([block("server", (), inner)])


def names_by_sni(port: Port, listeners: Iterable[str]) -> Directive:
    """Give the map from the name in a TLS handshake to the listener that it belongs to."""
    hostnames = sorted({*listeners} - {""})
    rows = [simple("hostnames")] + [
        simple(quoting.map_key(name), quoting.word(names.digest(name))) for name in hostnames
    ]
    variable = _sni_variable(port)
    return block("map", ("$ssl_server_name", f"${variable}"), [*rows, simple("default", '""')])


def _targets(host: ir.VirtualHost, context: Context) -> tuple[list[Target], list[tuple[str, str]]]:
    targets: list[Target] = []
    unsupported: list[tuple[str, str]] = []
    claimed: dict[tuple[str, ...], Directive] = {}
    for route in host.routes:
        unsupported += [(ir.LEFT_OUT + route.name, why) for why in _missing(context, route)]
        try:
            held = conditions(route.match)
            _check(route.match.path)
        except InvalidValueError as error:
            # What cannot be matched is never matched.
            unsupported.append((route.name, str(error)))
            continue
        try:
            # A route is not served without a filter of its own.
            snippets.within(route.snippets, "http.server")
            served = actions.serve(context, route)
            _claim(served, claimed)
        except InvalidValueError as error:
            unsupported.append((route.name, str(error)))
            served = actions.failed(context, route)
        targets.append(Target(route.match.path, held, served))
    return targets, unsupported


def _claim(served: Served, claimed: dict[tuple[str, ...], Directive]) -> None:
    """Take note of a route's own paths. Raises UnwritableError if another has one already."""
    for each in served.fixed:
        if claimed.get(each.arguments, each) != each:
            path = each.arguments[-1]
            raise InvalidValueError(f"the path {path} is another AuthenticationFilter's already")
    claimed.update({each.arguments: each for each in served.fixed})


def _missing(context: Context, route: ir.Route) -> list[str]:
    """Say what of a route's settings this NGINX leaves out."""
    used = proxy_pass.cluster_names(route.action) if isinstance(route.action, ir.Forward) else ()
    found = [context.clusters[name] for name in sorted(used) if name in context.clusters]
    return [
        *traffic_settings.unsupported(route.settings, context.capabilities),
        *(
            why
            for each in found
            for why in upstreams.unsupported(each.settings, context.capabilities)
        ),
    ]


def _snippets(host: ir.VirtualHost, unsupported: list[tuple[str, str]]) -> list[Node]:
    """Give the snippets of a server: its own, and those of its routes.

    Of a route with a wrong one that was said before.
    """
    found: dict[Raw, None] = {}
    owners = [("", host.snippets), *((route.name, route.snippets) for route in host.routes)]
    for owner, given in owners:
        for snippet in given:
            try:
                found.update(dict.fromkeys(snippets.within([snippet], "http.server")))
            except InvalidValueError as error:
                if not owner:
                    unsupported.append((f"policy/{snippet.name}", str(error)))
    return list(found)


def _check(path: ir.PathMatch) -> Condition | str:
    """Raise UnwritableError for a path that cannot be written."""
    if isinstance(path, ir.PathRegex):
        return path_condition(path)
    return quoting.literal(path.value)


def _unique(directives: list[Directive]) -> list[Directive]:
    return list({directive.arguments: directive for directive in directives}.values())


def _reached(
    found: list[Directive], definitions: list[Directive], served: list[Served]
) -> list[Directive]:
    """Give the named locations that something leads to, also by way of others.

    Each takes memory and time in every process: two more in each of 5,000 servers 0.3 s of CPU
    time for a test, and 100 MB.
    """
    text = write([*found, *definitions])
    known = (*(location for item in served for location in item.locations), *_fixed())
    unique = {location.arguments[0]: location for location in known}
    reached: dict[str, Directive] = {}
    fresh = [text]
    while fresh:
        new = {
            name: location
            for name, location in unique.items()
            if name not in reached and any(f"{name};" in each for each in fresh)
        }
        reached |= new
        fresh = [write([location]) for location in new.values()]
    return [location for name, location in unique.items() if name in reached]


def _fixed() -> list[Directive]:
    """Give the locations that chains lead to when there is nothing to serve."""
    return [
        *(
            block("location", (name,), (simple("return", status),))
            for name, status in ((names.NOT_FOUND, "404"), (names.INTERNAL_ERROR, "500"))
        ),
        grpc_status.location(),
    ]


def _listen(port: Port, *, default: bool) -> list[Directive]:
    # What comes by way of a stream was asked there already whom it is from.
    address = port.bind_address or ("127.0.0.1" if port.hidden else "")
    where = data_plane_settings.addresses(port.edge, address, port.hidden or port.number)
    words = [*(("ssl",) if port.protocol == "HTTPS" else ())]
    words += ["default_server"] if default else []
    words += () if port.hidden else data_plane_settings.proxied(port.edge)
    return [simple("listen", each, *words) for each in where]


def _tls(port: Port, host: ir.VirtualHost) -> list[Directive]:
    if port.protocol != "HTTPS":
        return []
    found: list[Directive] = []
    for certificate in host.certificates:
        for directive, kind in (("ssl_certificate", "crt"), ("ssl_certificate_key", "key")):
            found.append(simple(directive, names.certificate_file(certificate, kind)))
    return [*found, *_clients(port)]


def _clients(port: Port) -> list[Directive]:
    """Check clients' certificates.

    A connection without a good one is closed without an answer; where that is let pass, what NGINX
    would refuse goes on as if nothing had been shown (its path is encoded anew on the way).
    """
    wanted = port.client_validation
    if wanted is None:
        return []
    found = [
        simple("ssl_client_certificate", names.trust_file(wanted.trust)),
        simple("ssl_verify_client", "on" if wanted.required else "optional_no_ca"),
        simple("ssl_verify_depth", "10"),
        simple("error_page", "495", "496", "=", names.INVALID_CLIENT_CERTIFICATE),
    ]
    after = simple("return", "444") if wanted.required else simple("rewrite", "^", "$uri", "last")
    return [*found, block("location", (names.INVALID_CLIENT_CERTIFICATE,), (after,))]


def _misdirected(port: Port, host: ir.VirtualHost) -> list[Directive]:
    """Refuse requests whose connection was made for another listener (RFC 9110, 421)."""
    if port.protocol != "HTTPS" or not port.edge.sni_host_validation:
        return []
    expected = f'"{names.digest(host.listener)}"' if host.listener else '""'
    test = (f"(${_sni_variable(port)}", "!=", f"{expected})")
    return [block("if", test, (simple("return", "421"),))]


def _sni_variable(port: Port) -> str:
    return f"gh_sni_{port.number}"
