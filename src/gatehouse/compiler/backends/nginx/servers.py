"""``server`` blocks: of one virtual host, and the default of a port."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError, served_without, unserved
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
from gatehouse.compiler.backends.nginx.route_context import Context, Served
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.unsupported import Unsupported, UnsupportedSetting


class Port(msgspec.Struct, frozen=True):
    """Properties that all servers of a port share."""

    number: int
    protocol: str
    bind_address: str
    internal_port: int = 0
    """If not 0, the port to listen on: connections arrive through a stream server."""
    client_validation: ir_gateway.ClientValidation | None = None
    edge: DataPlaneSettings = DataPlaneSettings()


class Server(msgspec.Struct, frozen=True):
    """File content of a virtual host, and its findings."""

    text: str
    unsupported: tuple[Unsupported, ...] = ()


def server(port: Port, host: ir.VirtualHost, context: Context) -> Server:
    """Write the file of a virtual host."""
    targets, unsupported = _targets(host, context)
    try:
        blocks, maps = locations(context.scope, targets)
    except Exception as error:
        unsupported = [
            *unsupported,
            *(unserved(route.origin, error) for route in host.routes),
        ]
        targets, (blocks, maps) = [], locations(context.scope, [])
    definitions = _unique(
        [
            *(c.definition for t in targets for c in t.conditions if c.definition is not None),
            *(item for target in targets for item in target.served.maps),
            *maps,
        ]
    )
    own = {each.arguments: each for target in targets for each in target.served.fixed}
    named = _reached(blocks, definitions, [target.served for target in targets])
    inner = [
        *_listen(port, default=not host.hostname),
        simple("server_name", quoting.literal(host.hostname or "_")),
        *_status_zone(port, host, context.capabilities),
        *_tls(port, host),
        *_misdirected(port, host),
        *traffic_settings.clients(host.settings.client, context.capabilities),
        *_snippets(host, unsupported),
        # An internal path takes precedence over a route's.
        *(location for location in blocks if location.arguments not in own),
        *own.values(),
        *named,
    ]
    return Server(write([*definitions, block("server", (), inner)]), tuple(unsupported))


def _status_zone(port: Port, host: ir.VirtualHost, capabilities: Capabilities) -> list[Directive]:
    zone = quoting.literal(names.status_zone(port.number, host.hostname))
    return [simple("status_zone", zone)] if capabilities.status_zones else []


def default_server(port: Port) -> str:
    """Write the server for unknown hostnames."""
    inner = [*_listen(port, default=True), simple("server_name", '"_"')]
    if port.protocol == "HTTPS":
        inner.append(simple("ssl_reject_handshake", "on"))
    # Also over TLS: a request with another host than its SNI is handled here.
    inner.append(simple("return", "404"))
    return write([block("server", (), inner)])


def names_by_sni(port: Port, listeners: Iterable[str]) -> Directive:
    """Return the map from SNI to the listener that it belongs to."""
    hostnames = sorted({*listeners} - {""})
    rows = [simple("hostnames")] + [
        simple(quoting.map_key(name), quoting.word(names.digest(name))) for name in hostnames
    ]
    variable = _sni_variable(port)
    return block("map", ("$ssl_server_name", f"${variable}"), [*rows, simple("default", '""')])


def _targets(host: ir.VirtualHost, context: Context) -> tuple[list[Target], list[Unsupported]]:
    targets: list[Target] = []
    unsupported: list[Unsupported] = []
    claimed: dict[tuple[str, ...], Directive] = {}
    for route in host.routes:
        try:
            unsupported += [
                served_without(route.origin, each) for each in _unsupported_settings(context, route)
            ]
            required = conditions(route.match)
            _check(route.match.path)
        except Exception as error:
            # A match that cannot be generated never matches.
            unsupported.append(unserved(route.origin, error))
            continue
        try:
            # A route is never served without one of its filters.
            snippets.within(route.snippets, "http.server")
            served = actions.serve(context, route)
            _claim(served, claimed)
        except Exception as error:
            unsupported.append(unserved(route.origin, error))
            served = actions.failed(context, route)
        targets.append(Target(route.match.path, required, served))
    return targets, unsupported


def _claim(served: Served, claimed: dict[tuple[str, ...], Directive]) -> None:
    """Register the fixed paths of a route. Raises InvalidValueError if one is already used."""
    for each in served.fixed:
        if claimed.get(each.arguments, each) != each:
            path = each.arguments[-1]
            raise InvalidValueError(f"the path {path} is already used by another filter")
    claimed.update({each.arguments: each for each in served.fixed})


def _unsupported_settings(context: Context, route: ir.Route) -> list[UnsupportedSetting]:
    """Return the unsupported settings of a route."""
    cluster_names = (
        proxy_pass.cluster_names(route.action) if isinstance(route.action, ir.Forward) else ()
    )
    clusters = [
        context.clusters[name] for name in sorted(cluster_names) if name in context.clusters
    ]
    return [
        *traffic_settings.unsupported(route.settings, context.capabilities),
        *(
            why
            for cluster in clusters
            for why in upstreams.unsupported(cluster.settings, context.capabilities)
        ),
    ]


def _snippets(host: ir.VirtualHost, unsupported: list[Unsupported]) -> list[Node]:
    """Return the snippets of a server: its own, and those of its routes.

    Invalid snippets of routes were reported before.
    """
    nodes: dict[Raw, None] = {}
    owners = [("", host.snippets), *((route.name, route.snippets) for route in host.routes)]
    for owner, given in owners:
        for snippet in given:
            try:
                nodes.update(dict.fromkeys(snippets.within([snippet], "http.server")))
            except Exception as error:
                if not owner:
                    unsupported.append(unserved(snippet.origin, error))
    return list(nodes)


def _check(path: ir.PathMatch) -> Condition | str:
    """Raise InvalidValueError for a path that cannot be generated."""
    if isinstance(path, ir.PathRegex):
        return path_condition(path)
    return quoting.literal(path.value)


def _unique(directives: list[Directive]) -> list[Directive]:
    return list({directive.arguments: directive for directive in directives}.values())


def _reached(
    blocks: list[Directive], definitions: list[Directive], served: list[Served]
) -> list[Directive]:
    """Return the named locations that are used, directly or by other locations.

    Each takes memory and time in every process: two more in each of 5,000 servers cost 0.3 s of CPU
    time for a test, and 100 MB.
    """
    text = write([*blocks, *definitions])
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
    """Return the locations that chains lead to when there is nothing to serve."""
    return [
        *(
            block("location", (name,), (simple("return", status),))
            for name, status in ((names.NOT_FOUND, "404"), (names.INTERNAL_ERROR, "500"))
        ),
        grpc_status.location(),
    ]


def _listen(port: Port, *, default: bool) -> list[Directive]:
    # Connections through a stream server had their PROXY header read there.
    address = port.bind_address or ("127.0.0.1" if port.internal_port else "")
    where = data_plane_settings.addresses(port.edge, address, port.internal_port or port.number)
    words = [*(("ssl",) if port.protocol == "HTTPS" else ())]
    words += ["default_server"] if default else []
    words += () if port.internal_port else data_plane_settings.proxied(port.edge)
    return [simple("listen", each, *words) for each in where]


def _tls(port: Port, host: ir.VirtualHost) -> list[Directive]:
    if port.protocol != "HTTPS":
        return []
    directives: list[Directive] = []
    for certificate in host.certificates:
        for directive, kind in (("ssl_certificate", "crt"), ("ssl_certificate_key", "key")):
            directives.append(simple(directive, names.certificate_file(certificate, kind)))
    return [*directives, *_clients(port)]


def _clients(port: Port) -> list[Directive]:
    """Verify client certificates.

    A connection without a valid one is closed without a response. If it is optional, requests that
    NGINX would reject continue as if no certificate was sent (the path is encoded again).
    """
    validation = port.client_validation
    if validation is None:
        return []
    directives = [
        simple("ssl_client_certificate", names.trust_file(validation.trust)),
        simple("ssl_verify_client", "on" if validation.required else "optional_no_ca"),
        simple("ssl_verify_depth", "10"),
        simple("error_page", "495", "496", "=", names.INVALID_CLIENT_CERTIFICATE),
    ]
    after = (
        simple("return", "444") if validation.required else simple("rewrite", "^", "$uri", "last")
    )
    return [*directives, block("location", (names.INVALID_CLIENT_CERTIFICATE,), (after,))]


def _misdirected(port: Port, host: ir.VirtualHost) -> list[Directive]:
    """Reject requests on connections for another listener (421, RFC 9110)."""
    if port.protocol != "HTTPS" or not port.edge.sni_host_validation:
        return []
    expected = f'"{names.digest(host.listener)}"' if host.listener else '""'
    test = (f"(${_sni_variable(port)}", "!=", f"{expected})")
    return [block("if", test, (simple("return", "421"),))]


def _sni_variable(port: Port) -> str:
    return f"gh_sni_{port.number}"
