"""``server`` blocks: of one virtual host, and the default of a port."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import msgspec

from gatehouse.compiler.backends.failures import served_without, unserved
from gatehouse.compiler.backends.fragments import Need
from gatehouse.compiler.backends.nginx import (
    access_log,
    actions,
    data_plane_settings,
    grpc_status,
    listener_checks,
    names,
    quoting,
    server_tls,
    snippets,
    traces,
    traffic_settings,
)
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    DirectiveNode,
    Raw,
    block,
    format_directives,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.features import NGINX_ROUTE_FEATURES
from gatehouse.compiler.backends.nginx.locations import LocationTarget, decoded, locations
from gatehouse.compiler.backends.nginx.match_conditions import (
    MatchCondition,
    match_conditions,
    path_condition,
)
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext
from gatehouse.compiler.backends.nginx.server_certificates import (
    ServerNames,
    certificate_directives,
)
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.server_tls import TLS_VERSIONS, ServerTls, all_versions
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.unsupported import Unsupported


class ServerPort(msgspec.Struct, frozen=True):
    """Properties that all servers of a port share."""

    number: int
    protocol: str
    bind_address: str
    internal_port: int = 0
    """If not 0, the port to listen on: connections arrive through a stream server."""
    client_validation: ir_gateway.ClientValidation | None = None
    edge: DataPlaneSettings = DataPlaneSettings()
    tls: tuple[ServerTls, ...] = ()
    """TLS settings of its listeners."""


class ServerFile(msgspec.Struct, frozen=True):
    """File content of a virtual host, and its findings."""

    text: str
    needs: frozenset[Need] = frozenset()
    """Needs of its routes."""
    unsupported: tuple[Unsupported, ...] = ()


def write_server(
    port: ServerPort,
    host: ir.VirtualHost,
    context: NginxRouteContext,
    servers: Iterable[ServerNames],
) -> ServerFile:
    """Write the file of a virtual host. ``servers``: its servers, the default server first."""
    checked = listener_checks.checked_host(host, context)
    host, context, check = checked.host, checked.context, checked.check
    targets, unsupported = _targets(host, context)
    unsupported += checked.unsupported
    # Servers of HTTPRoutes have no location that knows gRPC calls: as two locations for NGINX, it
    # would cost 20 KB in each of them.
    has_calls = port.edge.http2 and host.knows_calls
    otherwise = names.UNIMPLEMENTED if has_calls else names.NOT_FOUND
    try:
        blocks, maps = locations(context.scope, targets, otherwise)
    except Exception as error:
        unsupported += [unserved(route.origin, error) for route in host.routes]
        targets, (blocks, maps) = [], locations(context.scope, [], otherwise)
    served = [target.served.piece for target in targets]
    definitions = _unique([*(item for piece in served for item in piece.maps), *maps])
    fixed = _unique(directive for item in served for directive in item.fixed)
    pieces = served if check is None else [*served, check]
    subrequests = _unique(subrequest for item in pieces for subrequest in item.subrequests)
    # An internal path takes precedence over a route's.
    internal = {location.arguments for location in (*fixed, *subrequests)}
    blocks = [location for location in blocks if location.arguments not in internal]
    blocks = [*listener_checks.checked_locations(check, blocks)]
    fixed = [*listener_checks.checked_locations(check, fixed)]
    named = (
        *(location for item in pieces for location in item.locations),
        *_fixed(),
        *(grpc_status.limit_locations(host.routes) if has_calls else ()),
    )
    reached = _reached([*definitions, *blocks, *fixed], [*subrequests, *named])
    inner = [*_settings(port, host, context), *_snippets(host, unsupported)]
    inner += [*blocks, *fixed, *reached]
    written = [block("server", (), (*_head(port, server), *inner)) for server in servers]
    needs = frozenset([need for piece in served for need in piece.needs])
    return ServerFile(format_directives([*definitions, *written]), needs, tuple(unsupported))


def _settings(
    port: ServerPort, host: ir.VirtualHost, context: NginxRouteContext
) -> Iterator[DirectiveNode]:
    """Yield the directives that hold for all locations of a virtual host."""
    if port.tls not in server_tls.DEFAULT_SETTINGS:
        yield from _tls(port, host, context)
    yield from _status_zone(port, host, context.capabilities)
    yield from _clients(port)
    yield from _misdirected(port, host)
    yield from traffic_settings.clients(host.settings.client.nginx, context.capabilities)


def _head(port: ServerPort, server: ServerNames) -> list[Directive]:
    """Return the directives that distinguish the servers of a virtual host."""
    known = [quoting.quote_literal(name or "_") for name in server.hostnames]
    return [
        *_listen(port, default="" in server.hostnames),
        simple_directive("server_name", *known),
        *certificate_directives(server.certificates if port.protocol == "HTTPS" else ()),
    ]


def _tls(port: ServerPort, host: ir.VirtualHost, context: NginxRouteContext) -> list[Directive]:
    """Return the directives for TLS versions and cipher suites."""
    by_sni = context.capabilities.versions_by_sni
    versions = server_tls.offered_versions(
        host.tls, port.tls, versions_by_sni=by_sni, default=not host.hostname
    )
    directives = [
        *server_tls.version_directives(versions), *server_tls.cipher_directives(host.tls)
    ]  # fmt: skip
    if server_tls.needs_guard(host.tls, port.tls, versions_by_sni=by_sni):
        test = ("($ssl_protocol", "!=", f'"{server_tls.NEWEST}")')
        closed = access_log.reason_variable(LocalReason.BAD_REQUEST)
        directives.append(block("if", test, (closed, simple_directive("return", "444"))))
    return directives


def _status_zone(
    port: ServerPort, host: ir.VirtualHost, capabilities: NginxCapabilities
) -> list[Directive]:
    zone = quoting.quote_literal(names.status_zone(port.number, host.hostname))
    return [simple_directive("status_zone", zone)] if capabilities.status_zones else []


def default_server(port: ServerPort, *, versions_by_sni: bool) -> str:
    """Write the server for unknown hostnames."""
    inner = [*_listen(port, default=True), simple_directive("server_name", '"_"')]
    if port.protocol == "HTTPS":
        inner.append(simple_directive("ssl_reject_handshake", "on"))
        if not versions_by_sni:
            inner += server_tls.version_directives(all_versions(port.tls) or TLS_VERSIONS)
    inner += data_plane_settings.long_headers(port.edge)
    # Also over TLS: a request with another host than its SNI is handled here.
    not_found = (simple_directive("return", "404"),)
    inner += grpc_status.unmatched_locations() if port.edge.http2 else not_found
    return format_directives([block("server", (), inner)])


def names_by_sni(port: ServerPort, listeners: Iterable[str]) -> Directive:
    """Return the map from SNI to the listener that it belongs to."""
    hostnames = sorted({*listeners} - {""})
    rows = [simple_directive("hostnames")] + [
        simple_directive(quoting.map_key(name), quoting.word(names.name_digest(name)))
        for name in hostnames
    ]
    variable = _sni_variable(port)
    return block(
        "map", ("$ssl_server_name", f"${variable}"), [*rows, simple_directive("default", '""')]
    )


def _targets(
    host: ir.VirtualHost, context: NginxRouteContext
) -> tuple[list[LocationTarget], list[Unsupported]]:
    """Return the targets and the findings."""
    targets: list[LocationTarget] = []
    unsupported: list[Unsupported] = []
    for route in host.routes:
        try:
            unsupported += [
                served_without(route.origin, unsupported_setting)
                for unsupported_setting in NGINX_ROUTE_FEATURES.findings(context, route)
            ]
            required = match_conditions(route.match, context.authorized)
            _check(route.match.path)
        except Exception as error:
            # A match that cannot be generated never matches.
            unsupported.append(unserved(route.origin, error))
            continue
        try:
            served = actions.action_locations(context, route)
            if context.traces is not None:
                trace = traces.route_trace(route.settings.tracing)
                served = msgspec.structs.replace(served, trace=trace)
        except Exception as error:
            unsupported.append(unserved(route.origin, error))
            served = actions.failed_locations(context, route)
        targets.append(LocationTarget(route.match.path, required, served))
    return targets, unsupported


def _snippets(host: ir.VirtualHost, unsupported: list[Unsupported]) -> list[DirectiveNode]:
    """Return the snippets of a server: its own, and those of its routes.

    Invalid snippets of routes were reported before.
    """
    nodes: dict[Raw, None] = {}
    owners = [("", host.snippets), *((route.name, route.snippets) for route in host.routes)]
    for owner, raw_snippets in owners:
        for snippet in raw_snippets:
            try:
                nodes.update(dict.fromkeys(snippets.within([snippet], "http.server")))
            except Exception as error:
                if not owner:
                    unsupported.append(unserved(snippet.origin, error))
    return list(nodes)


def _check(path: ir.PathMatch) -> MatchCondition | str:
    """Raise InvalidValueError for a path that cannot be generated."""
    if isinstance(path, ir.PathRegex):
        return path_condition(path)
    return quoting.quote_literal(decoded(path.value), "path")


def _unique(directives: Iterable[Directive]) -> list[Directive]:
    return list({directive.arguments: directive for directive in directives}.values())


def _reached(start: Iterable[Directive], optional: Iterable[Directive]) -> list[Directive]:
    """Return the optional locations that are used, directly or by other locations.

    Each takes memory and time in every process: two more in each of 5,000 servers cost 0.3 s of CPU
    time for a test, and 100 MB. A subrequest may use variables that only the location of its
    request sets.
    """
    unique = {location.arguments[-1]: location for location in optional}
    reached: set[str] = set()
    fresh = _destinations(start) & unique.keys()
    while fresh:
        reached |= fresh
        fresh = (_destinations(map(unique.__getitem__, fresh)) & unique.keys()) - reached
    return [location for name, location in unique.items() if name in reached]


def _destinations(directives: Iterable[Directive]) -> set[str]:
    """Return the last argument of each directive: the directives that lead on have it there."""
    nodes: list[DirectiveNode] = [*directives]
    for node in nodes:
        if isinstance(node, Directive) and node.block is not None:
            nodes += node.block
    return {node.arguments[-1] for node in nodes if isinstance(node, Directive) and node.arguments}


@functools.cache
def _fixed() -> tuple[Directive, ...]:
    """Return the locations that chains lead to when there is nothing to serve."""
    return (
        block("location", (names.NOT_FOUND,), (simple_directive("return", "404"),)),
        *grpc_status.status_locations(),
    )


def _listen(port: ServerPort, *, default: bool) -> list[Directive]:
    # Connections through a stream server had their PROXY header read there.
    address = port.bind_address or ("127.0.0.1" if port.internal_port else "")
    where = data_plane_settings.addresses(port.edge, address, port.internal_port or port.number)
    words = [*(("ssl",) if port.protocol == "HTTPS" else ())]
    words += ["default_server"] if default else []
    words += () if port.internal_port else data_plane_settings.proxied(port.edge)
    return [simple_directive("listen", endpoint, *words) for endpoint in where]


def _clients(port: ServerPort) -> list[Directive]:
    """Return the directives for what all clients of a port must send."""
    return [*data_plane_settings.long_headers(port.edge), *_client_certificates(port)]


def _client_certificates(port: ServerPort) -> list[Directive]:
    """Verify client certificates.

    A connection without a valid one is closed without a response. If it is optional, requests that
    NGINX would reject continue as if no certificate was sent (the path is encoded again).
    """
    validation = port.client_validation
    if port.protocol != "HTTPS" or validation is None:
        return []
    directives = [
        simple_directive("ssl_client_certificate", names.trust_file(validation.trust)),
        simple_directive("ssl_verify_client", "on" if validation.required else "optional_no_ca"),
        simple_directive("ssl_verify_depth", "10"),
        simple_directive("error_page", "495", "496", "=", names.INVALID_CLIENT_CERTIFICATE),
    ]
    after = (
        (
            access_log.reason_variable(LocalReason.CLIENT_CERTIFICATE),
            simple_directive("return", "444"),
        )
        if validation.required
        else (simple_directive("rewrite", "^", "$uri", "last"),)
    )
    return [*directives, block("location", (names.INVALID_CLIENT_CERTIFICATE,), after)]


def _misdirected(port: ServerPort, host: ir.VirtualHost) -> list[Directive]:
    """Reject requests on connections for another listener (421, RFC 9110)."""
    if port.protocol != "HTTPS" or not port.edge.sni_host_validation:
        return []
    expected = f'"{names.name_digest(host.listener)}"' if host.listener else '""'
    test = (f"(${_sni_variable(port)}", "!=", f"{expected})")
    return [block("if", test, (simple_directive("return", "421"),))]


def _sni_variable(port: ServerPort) -> str:
    return f"gh_sni_{port.number}"
