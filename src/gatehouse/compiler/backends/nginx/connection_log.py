"""Access log of connections that L4 listeners forward: one line per connection or UDP session.

``set`` cannot record the route, as it runs before the SNI selects a virtual server. So each
listener has a map from the SNI to route, backend and destination. A shared map selects the
listener's map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.compiler.backends.nginx import log_lines, names, quoting
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    map_block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.log_maps import reason_map, time_map
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.access_log import LocalReason, object_rule_text, objects_text
from gatehouse.compiler.ir.http import Cluster
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane import connection_counts, request_log
from gatehouse.dataplane.failed_attempts import CONNECTION_MARK

_FORMAT = "gatehouse"

_OUTPUT = ("/proc/self/fd/1", "buffer=64k", "flush=1s")
"""The standard output. The HTTP log holds the buffer of ``/dev/stdout``, which streams cannot
share."""

_UNKNOWN_ROUTE = f'"  !{LocalReason.NO_ROUTE}"'
"""Texts of a connection without host."""

_MARK = "$gh_log_mark"
"""Variable of the mark; empty unless NGINX connected to no endpoint."""

_PASSED_NAME, _ENDED_NAME = "$ssl_preread_server_name", "$ssl_server_name"

_HOST = "^[^ ]* [^ ]* [^ ]*"
"""Pattern of route, backend and destination."""

_REASONS = (
    # A PROXY header that is missing or broken.
    (rf"{_HOST} 400 ", LocalReason.BAD_REQUEST),
    (r"^[^ ]* [^ ]* !(?<gh_log_known>[a-z_]+) ", "$gh_log_known"),
    (rf"{_HOST} 502 [^ ]*:", LocalReason.CONNECTION_FAILURE),
    (rf"{_HOST} 502 ", LocalReason.NO_ENDPOINT),
    # The TLS handshake of a connection that NGINX terminates.
    (rf"{_HOST} 500 $", LocalReason.BAD_REQUEST),
)
"""Patterns for the texts of the host, status and endpoints of a connection. The first counts."""


class LoggedHost(msgspec.Struct, frozen=True):
    """The log texts of a host."""

    hostname: str
    route: str
    backend: str
    destination: str
    """A variable, a reason for the lack of a destination (:func:`local_destination`), or empty."""


class LoggedListener(msgspec.Struct, frozen=True):
    """A listener with a map of its hosts."""

    port: int
    protocol: str
    inner_port: int
    """Port where NGINX terminates TLS; 0: nowhere."""


def local_destination(reason: LocalReason) -> str:
    """Return the token that stands for a destination if NGINX closes the connection."""
    return f"!{reason}"


def logged_host(
    host: ir.L4Host, clusters: Mapping[str, Cluster], destination: str = ""
) -> LoggedHost:
    """Return the log texts of a host."""
    backends = objects_text(clusters[backend.cluster].origin for backend in host.backends)
    route = object_rule_text(host.origin, host.rule)
    return LoggedHost(host.hostname, route, backends, destination)


def host_map(listener: ir.L4Listener, hosts: Iterable[LoggedHost]) -> Directive:
    """Return the definition of a listener's variable. Raises InvalidValueError."""
    variable = f"${names.l4_log_variable(listener.port, listener.protocol)}"
    texts = {host.hostname: _text(host) for host in hosts}
    default = simple_directive("default", texts.pop("", _UNKNOWN_ROUTE))
    if listener.protocol != "TLS":
        return block("map", ("$protocol", variable), [default])
    # NGINX removes the backslash, after which no name has a special meaning.
    keys = {quoting.quote_literal(f"\\{name}"): text for name, text in texts.items()}
    rows = [simple_directive(key, text) for key, text in keys.items()]
    source = f'"{_sni(terminates(listener))}"'
    return block("map", (source, variable), [simple_directive("hostnames"), default, *rows])


def terminates(listener: ir.L4Listener) -> bool:
    """Return whether NGINX terminates the TLS of any connection."""
    return any(host.certificates and host.backends for host in listener.hosts)


def _sni(terminated: bool) -> str:
    # Only one of them has a value. The second needs a module that passthrough does not need.
    return _PASSED_NAME + (_ENDED_NAME if terminated else "")


def _text(host: LoggedHost) -> str:
    last: str | tuple[str] = host.destination
    if host.destination.startswith("$"):
        last = (host.destination[1:],)
    return quoting.quote_template(f"{host.route} {host.backend} ", last)


def connection_log_conf(
    listeners: Iterable[LoggedListener], edge: DataPlaneSettings, gateway: str, *, marks: bool
) -> str:
    """Write the file that enables the log in the ``stream`` context, after :func:`shared_conf`.

    ``gateway``: ``namespace/name``. ``marks``: the agent replaces marks of failures.
    """
    known = list(listeners)
    passing = any(listener.protocol == "TLS" for listener in known)
    sni = _sni(any(listener.inner_port for listener in known)) if passing else ""
    proxied = edge.client_address is not None and edge.client_address.source == "proxy-protocol"
    enabled = simple_directive("access_log", _OUTPUT[0], _FORMAT, *_OUTPUT[1:])
    style = edge.access_log.style if edge.access_log is not None else "json"
    fields = _fields(gateway, sni, "$realip_remote_addr" if proxied else "$remote_addr")
    fields["reason"] = _reason(marks=marks)
    pieces = log_lines.line(fields, style)
    log_format = simple_directive("log_format", _FORMAT, "escape=json", *pieces)
    return format_directives([_time_map(), _endpoint_map(), log_format, enabled])


def shared_conf(listeners: Iterable[LoggedListener], *, marks: bool) -> str:
    """Write the file with the maps of all logs of connections, and the format of the log for
    metrics, which the agent enables."""
    values = {
        "host": "$gh_log_host",
        "reason": _reason(marks=marks),
        "protocol": "$protocol",
        "duration": "$session_time",
        "received": "$bytes_received",
        "sent": "$bytes_sent",
    }
    line = request_log.format_line(
        connection_counts.NGINX_CONNECTION_HEAD,
        connection_counts.CONNECTION_NUMBERS,
        values,
        tab=r"\t",
    )
    log_format = simple_directive(
        "log_format", connection_counts.NGINX_CONNECTION_FORMAT, "escape=none", f"'{line}'"
    )
    mark_map = map_block("$status", _MARK, {"502": f'"{CONNECTION_MARK}"'}, None)
    marked = [mark_map] if marks else []
    return format_directives([*_listener_maps(listeners), _reason_map(), *marked, log_format])


def _reason(*, marks: bool) -> str:
    return "$gh_log_reason" + (_MARK if marks else "")


def _fields(gateway: str, sni: str, peer: str) -> dict[str, str]:
    return {
        # A map whose pattern sets the variables of the host.
        "time": "$gh_log_time",
        "listener": quoting.quote_text_literal(gateway)[1:-1] + ":$gh_log_port",
        "client": "$remote_addr",
        "peer": peer,
        "sni": sni,
        "protocol": "$protocol",
        "bytes_received": "$bytes_received",
        "bytes_sent": "$bytes_sent",
        # An exponent makes milliseconds of seconds.
        "duration_ms": "${session_time}e3",
        "route": "$gh_log_route",
        "backend": "$gh_log_backend",
        "endpoint": "$gh_log_endpoint",
        "reason": "",
    }


def _listener_maps(listeners: Iterable[LoggedListener]) -> list[Directive]:
    hosts: dict[str, str] = {}
    ports: dict[str, str] = {}
    for listener in listeners:
        variable = f"${names.l4_log_variable(listener.port, listener.protocol)}"
        protocol = "UDP" if listener.protocol == "UDP" else "TCP"
        hosts[f"{protocol}/{listener.port}"] = variable
        if listener.inner_port:
            hosts[f"{protocol}/{listener.inner_port}"] = variable
            ports[str(listener.inner_port)] = str(listener.port)
    return [
        map_block('"$protocol/$server_port"', "$gh_log_host", hosts, _UNKNOWN_ROUTE),
        map_block("$server_port", "$gh_log_port", ports, "$server_port"),
    ]


def _time_map() -> Directive:
    rest = "(?<gh_log_route>[^ ]*) (?<gh_log_backend>[^ ]*) (?<gh_log_destination>[^ ]*)$"
    return time_map('"$time_iso8601 $msec $gh_log_host"', rest)


def _endpoint_map() -> Directive:
    last = r'"~(?:^|, )(?<gh_log_last>[^ ,]*:[^ ,]+)$"'
    return map_block("$upstream_addr", "$gh_log_endpoint", {last: "$gh_log_last"})


def _reason_map() -> Directive:
    return reason_map('"$gh_log_host $status $upstream_addr"', _REASONS)
