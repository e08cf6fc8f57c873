"""Tracing of NGINX's error messages to the objects whose configuration NGINX rejected.

NGINX names the file and line. The generator does not record where each line comes from, because
that would cost time in every pass. Instead, the few parts that may have produced the line are
generated again, alone: a part that produces the line is its origin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from gatehouse.compiler.backends.nginx import names, rate_limits, traces
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.generator import NginxGenerator
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.sessions import policy_sessions, without_sessions
from gatehouse.compiler.ir.settings import (
    DataPlaneSettings,
    RateLimits,
    Settings,
)
from gatehouse.compiler.ir.tracing import TraceExport
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.dataplane.origin import NO_ORIGIN, Origin, port_origin

_MAX_PLACE = 1024
"""Characters at the end of a message in which NGINX names a file and line."""
_PLACE = re.compile(rf"(?:\S*/)?({names.ROOT}/\S+\.conf):(\d{{1,9}})")
_SHARED = (f"{names.ROOT}/http.conf", names.MAIN_SNIPPETS, names.HTTP_SNIPPETS, names.TRACE_EXPORT)
"""Files that all virtual hosts share."""
_EMERGENCY = re.compile(r"^(?:[^\"]{0,64}?\[emerg\] )?(?:\d+#\d+: )?(?:config apply error: )?")
"""Time, level and process at the start of a line."""
_BIND = re.compile(r"bind\(\) to \S{0,64}:(\d{1,5}) failed")
_VARIABLE = re.compile(r'unknown "(\w+)" variable')
_CREDENTIAL = re.compile(
    rf'[^"]{{0,200}}?"?[^"\s]{{0,500}}?{names.ROOT}/(?:tls|secrets)/([a-z0-9-]+)'
)


def suspects(
    gateway: ir.GatewayConfiguration, capabilities: NginxCapabilities, message: str
) -> tuple[Suspect, ...]:
    """Return the parts of ``gateway`` that an error message may be about; empty if unknown.

    A message quotes values of objects, so that only its beginning and its end are read.
    """
    first, last = _own_text(message)
    place = _PLACE.fullmatch(last[-_MAX_PLACE:].rpartition(" in ")[2])
    if place is not None:
        return _at(gateway, capabilities, place[1], int(place[2]))
    if bind := _BIND.match(first):
        return _of_port(gateway, int(bind[1]))
    if variable := _VARIABLE.fullmatch(last):
        return _using(gateway, variable[1])
    named = _CREDENTIAL.match(first)
    held = [entry for entry in gateway.credentials if named and entry.name == named[1]]
    return tuple(Suspect(entry.origins[0], credential=entry.name) for entry in held[:1])


def _own_text(message: str) -> tuple[str, str]:
    """Return the first and the last line that NGINX wrote about the error that ended it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    severe = [line for line in lines if "[emerg]" in line]
    lines = severe or [line for line in lines if not line.startswith("rollback error: ")] or [""]
    return _EMERGENCY.sub("", lines[0], count=1), _EMERGENCY.sub("", lines[-1], count=1)


def _of_port(gateway: ir.GatewayConfiguration, port: int) -> tuple[Suspect, ...]:
    ports = {listener.port for listener in gateway.listeners} | {
        l4_listener.port for l4_listener in gateway.l4_listeners
    }
    return (Suspect(port_origin(gateway.name, port)),) if port in ports else ()


def _using(gateway: ir.GatewayConfiguration, variable: str) -> tuple[Suspect, ...]:
    """Return the filters and policies whose snippets use a variable."""
    pattern = re.compile(rf"\$(?:{variable}(?!\w)|{{{variable}}})")
    hosts = [host for listener in gateway.listeners for host in listener.virtual_hosts]
    snippets = (
        *gateway.snippets,
        *(snippet for host in hosts for snippet in host.snippets),
        *(snippet for host in hosts for route in host.routes for snippet in route.snippets),
    )
    using = (snippet.origin for snippet in snippets if pattern.search(snippet.text))
    return tuple(map(Suspect, dict.fromkeys(using)))


def _at(
    gateway: ir.GatewayConfiguration, capabilities: NginxCapabilities, path: str, number: int
) -> tuple[Suspect, ...]:
    for stream in gateway.l4_listeners:
        if path == names.l4_listener_file(stream.port, stream.protocol):
            origins = {host.origin for host in stream.hosts}
            if len(stream.hosts) == 1 and NO_ORIGIN not in origins:
                return tuple(map(Suspect, origins))
            return _of_port(gateway, stream.port)
    for cluster in gateway.clusters:
        if path == names.upstream_file(cluster.name):
            return tuple(map(Suspect, cluster.settings.objects))
    for listener in gateway.listeners:
        for host in listener.virtual_hosts:
            if path == names.server_file(listener.port, host.hostname):
                return _HostTracer(gateway, capabilities, listener, host, path).suspects(number)
    if path not in _SHARED:
        return ()
    line = _line(_text(gateway, capabilities, path), number)
    if line is None:
        return ()
    export = gateway.settings.traces
    if export is not None and path == names.TRACE_EXPORT and line in _own_lines(export, gateway):
        return (Suspect(export.origin.whole),)
    shared = tuple(dict.fromkeys(_shared(gateway, line[1])))
    if not shared:
        plain = msgspec.structs.replace(gateway, settings=DataPlaneSettings())
        if line not in _lines(_text(plain, capabilities, path)):
            shared = gateway.settings.origins
    return tuple(map(Suspect, shared))


def _own_lines(export: TraceExport, gateway: ir.GatewayConfiguration) -> list[LineInBlock]:
    """Return the lines of an export without the attributes that other objects set."""
    own = tuple(item for item in export.attributes if item.origin != NO_ORIGIN)
    exported = msgspec.structs.replace(export, attributes=own)
    return _lines(traces.exporter_text(exported, gateway.name))


def _shared(gateway: ir.GatewayConfiguration, line: str) -> Iterator[Origin]:
    """Yield the filters and policies that produce a line that all virtual hosts share."""
    for snippet in gateway.snippets:
        if line in map(str.strip, snippet.text.splitlines()):
            yield snippet.origin
            return
    if line.startswith("limit_req_zone "):
        hosts = (host for listener in gateway.listeners for host in listener.virtual_hosts)
        rates = (route.settings.rates for host in hosts for route in host.routes)
        for limit in (limit for settings in rates for limit in settings.limits):
            if f"zone={rate_limits.zone_name(limit)}:" in line:
                yield limit.origin.whole


LineInBlock = tuple[str, str]
"""A line of a file, after the line that opens the block around it."""


def _lines(text: str) -> list[LineInBlock]:
    """Return the lines of a file."""
    result: list[LineInBlock] = []
    blocks = [""]
    for line in text.splitlines():
        stripped = line.strip()
        if stripped == "}":
            blocks.pop()
        result.append((blocks[-1] if blocks else "", stripped))
        if stripped.endswith("{"):
            blocks.append(stripped)
    return result


def _line(text: str, number: int) -> LineInBlock | None:
    lines = _lines(text)
    return lines[number - 1] if 0 < number <= len(lines) else None


def _text(gateway: ir.GatewayConfiguration, capabilities: NginxCapabilities, path: str) -> str:
    file = NginxGenerator(capabilities).generate(gateway).file_set.files.get(path)
    return file.content.decode() if file is not None else ""


class _HostTracer:
    """Traces lines of the file of one virtual host."""

    def __init__(
        self,
        gateway: ir.GatewayConfiguration,
        capabilities: NginxCapabilities,
        listener: ir.Listener,
        host: http.VirtualHost,
        path: str,
    ) -> None:
        self._capabilities, self._host, self._path = capabilities, host, path
        self._listener = listener
        used = {name for route in host.routes for name in route.clusters}
        clusters = tuple(cluster for cluster in gateway.clusters if cluster.name in used)
        self._gateway = ir.GatewayConfiguration(
            gateway.name, gateway.bind_address, clusters=clusters, settings=gateway.settings
        )

    def suspects(self, number: int) -> tuple[Suspect, ...]:
        """Return the suspects of a line."""
        line = _line(self._generate(self._host), number)
        if line is None:
            return ()
        outside = msgspec.structs.replace(self._host, routes=())
        if self._has(outside, line):
            return tuple(map(Suspect, self._of_host(outside, line)))
        routes = tuple(self._routes_with(self._host.routes, line))
        candidates = [suspect for route in routes for suspect in self._of_route(route, line)]
        return tuple(dict.fromkeys(candidates))

    def _generate(self, host: http.VirtualHost) -> str:
        listener = msgspec.structs.replace(self._listener, virtual_hosts=(host,))
        gateway = msgspec.structs.replace(self._gateway, listeners=(listener,))
        return _text(gateway, self._capabilities, self._path)

    def _has(self, host: http.VirtualHost, line: LineInBlock) -> bool:
        """Return whether the file of ``host`` has a line.

        Rows of maps lead to names that depend on the other routes, so that only their patterns are
        compared. A condition stands in the locations of other routes, too, so that only its own
        line is compared.
        """
        lines = _lines(self._generate(host))
        if line[1].startswith("if ("):
            return any(text == line[1] for _, text in lines)
        if not line[1].startswith('"'):
            return line in lines
        pattern = _first_word(line[1])
        return any(_first_word(text) == pattern for _, text in lines)

    def _routes_with(self, routes: Sequence[http.Route], line: LineInBlock) -> Iterator[http.Route]:
        """Yield the routes that each produce a line, by halves."""
        if not routes or not self._has(
            msgspec.structs.replace(self._host, routes=tuple(routes)), line
        ):
            return
        if len(routes) == 1:
            yield routes[0]
            return
        half = len(routes) // 2
        yield from self._routes_with(routes[:half], line)
        yield from self._routes_with(routes[half:], line)

    def _of_host(self, host: http.VirtualHost, line: LineInBlock) -> Iterator[Origin]:
        without = msgspec.structs.replace(host, settings=Settings())
        if not self._has(without, line):
            yield from host.settings.client.objects
        for snippet in host.snippets:
            if line[1] in map(str.strip, snippet.text.splitlines()):
                yield snippet.origin

    def _of_route(self, route: http.Route, line: LineInBlock) -> Iterator[Suspect]:
        """Yield the policies and filters of a route that produce a line; else the route."""
        origins = [
            origin
            for part, part_origins in _parts(route)
            if not self._has(self._alone(part(route)), line)
            for origin in part_origins
        ]
        if origins:
            yield from map(Suspect, origins)
        elif route.origin != NO_ORIGIN:
            plain = http.Route(route.name, route.match, http.Respond(500))
            yield Suspect(route.origin, in_match=self._has(self._alone(plain), line))

    def _alone(self, route: http.Route) -> http.VirtualHost:
        return msgspec.structs.replace(self._host, routes=(route,))


def _first_word(line: str) -> str:
    """Return a line up to the end of the quoted word at its beginning."""
    match = re.match(r'"(?:\\.|[^"\\])*"', line)
    return match[0] if match else line


_Change = Callable[[http.Route], http.Route]


def _parts(route: http.Route) -> Iterator[tuple[_Change, tuple[Origin, ...]]]:
    """Yield the policies and filters of a route, each after a function that removes them."""

    def without(**settings: object) -> _Change:
        replaced = msgspec.structs.replace(route.settings, **settings)
        return lambda of: msgspec.structs.replace(of, settings=replaced)

    settings = route.settings
    for name, section in settings.sections.items():
        yield without(**{name: type(section)()}), section.objects
    limits = tuple(sorted({limit.origin.whole for limit in settings.rates.limits}))
    yield without(rates=RateLimits()), limits
    tracing = settings.tracing
    yield without(tracing=None), (tracing.origin,) if tracing is not None else ()
    for session in policy_sessions(route):
        yield (
            lambda of, one=session: without_sessions(of, one.__eq__),  # type: ignore[misc]
            (session.origin.whole,),
        )
    if route.policy_retry is not None:
        yield lambda of: of.with_retry(None), (route.policy_retry.origin.whole,)
    if route.authentication is not None:
        origin = route.authentication.origin.whole
        yield (
            lambda of: msgspec.structs.replace(of, authentication=None),
            (origin,) if origin != NO_ORIGIN else (),
        )
    for snippet in route.snippets:
        others = tuple(other for other in route.snippets if other != snippet)
        yield (
            lambda of, left=others: msgspec.structs.replace(of, snippets=left),  # type: ignore[misc]
            (snippet.origin,),
        )
