"""Tracing of NGINX's error messages to the objects whose configuration NGINX rejected.

NGINX names the file and line. The generator does not record where each line comes from, because
that would cost time in every pass. Instead, the few parts that may have produced the line are
generated again, alone: a part that produces the line is its origin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from gatehouse.compiler.backends.nginx import names, proxy_pass
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.generator import Generator
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.settings import ClientSettings, ProxySettings, RateLimits, Settings
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.dataplane.origin import NO_ORIGIN, Origin, of_port

_PLACE = re.compile(rf"(?:^|[\s/])({names.ROOT}/\S+?\.conf):(\d+)")
_SHARED = (f"{names.ROOT}/http.conf", names.MAIN_SNIPPETS, names.HTTP_SNIPPETS)
"""Files that all virtual hosts share."""
_BIND = re.compile(r"\bbind\(\) to \S*:(\d+) failed")


def suspects(gateway: ir.Gateway, capabilities: Capabilities, message: str) -> tuple[Suspect, ...]:
    """Return the parts of ``gateway`` that an error message is about; empty if unknown."""
    if bind := _BIND.search(message):
        return _of_port(gateway, int(bind[1]))
    for certificate in gateway.certificates:
        if names.certificate_file(certificate.name, "") in message:
            return (Suspect(certificate.origin),) if certificate.origin != NO_ORIGIN else ()
    for place in _PLACE.finditer(message):
        found = _at(gateway, capabilities, place[1], int(place[2]))
        if found:
            return found
    return ()


def _of_port(gateway: ir.Gateway, port: int) -> tuple[Suspect, ...]:
    ports = {each.port for each in gateway.listeners} | {each.port for each in gateway.l4_listeners}
    return (Suspect(of_port(gateway.name, port)),) if port in ports else ()


def _at(
    gateway: ir.Gateway, capabilities: Capabilities, path: str, number: int
) -> tuple[Suspect, ...]:
    for stream in gateway.l4_listeners:
        if path == names.stream_file(stream.port, stream.protocol):
            return _of_port(gateway, stream.port)
    for cluster in gateway.clusters:
        if path == names.upstream_file(cluster.name):
            return tuple(map(Suspect, cluster.settings.objects or gateway.settings.origins))
    for listener in gateway.listeners:
        for host in listener.virtual_hosts:
            if path == names.server_file(listener.port, host.hostname):
                return _HostTracer(gateway, capabilities, listener, host, path).suspects(number)
    if path not in _SHARED:
        return ()
    line = _line(_text(gateway, capabilities, path), number)
    return tuple(dict.fromkeys(map(Suspect, _shared(gateway, line)))) if line else ()


def _shared(gateway: ir.Gateway, line: Line) -> Iterator[Origin]:
    """Yield the origins of a line of a file that all virtual hosts share."""
    for snippet in gateway.snippets:
        if line[1] in map(str.strip, snippet.text.splitlines()):
            yield snippet.origin
            return
    for listener in gateway.listeners:
        for host in listener.virtual_hosts:
            for route in host.routes:
                for limit in route.settings.rates.limits:
                    if line[1].startswith("limit_req_zone") and limit.name in line[1]:
                        yield limit.origin.whole
    yield from gateway.settings.origins


Line = tuple[str, str]
"""A line of a file, after the line that opens the block around it."""


def _lines(text: str) -> list[Line]:
    """Return the lines of a file."""
    result: list[Line] = []
    blocks = [""]
    for line in text.splitlines():
        stripped = line.strip()
        if stripped == "}":
            blocks.pop()
        result.append((blocks[-1] if blocks else "", stripped))
        if stripped.endswith("{"):
            blocks.append(stripped)
    return result


def _line(text: str, number: int) -> Line | None:
    lines = _lines(text)
    return lines[number - 1] if 0 < number <= len(lines) else None


def _text(gateway: ir.Gateway, capabilities: Capabilities, path: str) -> str:
    file = Generator(capabilities).generate(gateway).file_set.files.get(path)
    return file.content.decode() if file is not None else ""


class _HostTracer:
    """Traces lines of the file of one virtual host."""

    def __init__(
        self,
        gateway: ir.Gateway,
        capabilities: Capabilities,
        listener: ir.Listener,
        host: http.VirtualHost,
        path: str,
    ) -> None:
        self._capabilities, self._host, self._path = capabilities, host, path
        self._listener = listener
        used = {
            name
            for route in host.routes
            if isinstance(route.action, http.Forward)
            for name in proxy_pass.cluster_names(route.action)
        }
        clusters = tuple(cluster for cluster in gateway.clusters if cluster.name in used)
        self._gateway = ir.Gateway(
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
        found = [suspect for route in routes for suspect in self._of_route(route, line)]
        return tuple(dict.fromkeys(found))

    def _generate(self, host: http.VirtualHost) -> str:
        listener = msgspec.structs.replace(self._listener, virtual_hosts=(host,))
        gateway = msgspec.structs.replace(self._gateway, listeners=(listener,))
        return _text(gateway, self._capabilities, self._path)

    def _has(self, host: http.VirtualHost, line: Line) -> bool:
        """Return whether the file of ``host`` has a line.

        Rows of maps lead to names that depend on the other routes, so that only their patterns are
        compared.
        """
        lines = _lines(self._generate(host))
        if not line[1].startswith('"'):
            return line in lines
        pattern = _first_word(line[1])
        return any(_first_word(each) == pattern for _, each in lines)

    def _routes_with(self, routes: Sequence[http.Route], line: Line) -> Iterator[http.Route]:
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

    def _of_host(self, host: http.VirtualHost, line: Line) -> Iterator[Origin]:
        without = msgspec.structs.replace(host, settings=Settings())
        if not self._has(without, line):
            yield from host.settings.client.objects
        for snippet in host.snippets:
            if line[1] in map(str.strip, snippet.text.splitlines()):
                yield snippet.origin

    def _of_route(self, route: http.Route, line: Line) -> Iterator[Suspect]:
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
    yield without(client=ClientSettings()), settings.client.objects
    yield without(proxy=ProxySettings()), settings.proxy.objects
    limits = tuple(sorted({limit.origin.whole for limit in settings.rates.limits}))
    yield without(rates=RateLimits()), limits
    for snippet in route.snippets:
        others = tuple(each for each in route.snippets if each != snippet)
        yield (
            lambda of, left=others: msgspec.structs.replace(of, snippets=left),  # type: ignore[misc]
            (snippet.origin,),
        )
