"""``http.conf``: directives that all virtual hosts share, and includes of their files."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from gatehouse.compiler.backends.nginx import (
    access_log,
    data_plane_settings,
    grpc_status,
    headers,
    names,
    quoting,
    traffic_settings,
)
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    map_block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.traffic_settings import format_time
from gatehouse.compiler.backends.upgrades import STREAM_IDLE_SECONDS, TUNNELS
from gatehouse.compiler.ir.settings import DataPlaneSettings

_IGNORED = ("X-Accel-Redirect", "X-Accel-Limit-Rate", "X-Accel-Charset", "X-Accel-Expires")
"""Response headers that NGINX would obey. By a redirect, a backend could reach the internal
locations of other routes. X-Accel-Buffering has an effect, because event streams use it."""


def http_conf(
    capabilities: NginxCapabilities,
    definitions: Iterable[Directive],
    internal_ports: Mapping[int, int],
    edge: DataPlaneSettings,
    zone: Iterable[Directive] = (),
) -> str:
    """Write the file that the main configuration includes in ``http``.

    ``internal_ports``: for each port shared with TLS listeners, the port where HTTPS listens.
    ``zone``: the zone of upstreams that resolve names, if any.
    """
    return format_directives(
        [
            # Before the first map: NGINX fixes these sizes at the first one.
            *_sizes(),
            *_variables(internal_ports),
            grpc_status.grpc_status_map(),
            *(
                [simple_directive("include", names.TRACE_EXPORT)]
                if capabilities.exported(edge.traces) is not None
                else []
            ),
            *definitions,
            *access_log.default_values(),
            *_clients(capabilities, edge),
            *data_plane_settings.http(edge),
            *_backends(),
            *headers.defaults(edge.removed_headers),
            # A pattern, because the file may not exist.
            simple_directive("include", "gatehouse/snippet[s].conf"),
            *zone,
            simple_directive("include", "gatehouse/upstreams/*.conf"),
            simple_directive("include", "gatehouse/servers/*.conf"),
        ]
    )


def _sizes() -> list[Directive]:
    return [
        simple_directive("map_hash_max_size", "65536"),
        simple_directive("map_hash_bucket_size", "512"),
        simple_directive("variables_hash_max_size", "65536"),
        simple_directive("variables_hash_bucket_size", "128"),
        simple_directive("server_names_hash_max_size", "65536"),
        simple_directive("server_names_hash_bucket_size", "512"),
        simple_directive("proxy_headers_hash_max_size", "1024"),
        simple_directive("proxy_headers_hash_bucket_size", str(quoting.HEADERS_HASH_BUCKET_BYTES)),
    ]


def _variables(internal_ports: Mapping[int, int]) -> list[Directive]:
    # If the request line names a host, it takes precedence over Host (RFC 9112, 3.2.2).
    named = {'"~*^[^ ]+ https?://(?<gh_authority>[^/?#@ ]+)"': "$gh_authority"}
    ports = {str(inner): str(port) for port, inner in sorted(internal_ports.items())}
    return [
        # A literal dollar sign: NGINX has no escape for it.
        block("geo", ("$gh_dollar",), (simple_directive("default", '"$"'),)),
        *_upgrades(),
        map_block("$gh_upgrade", "$gh_connection", {'""': '""'}, "upgrade"),
        map_block("$http_host", "$gh_host_line", {'""': "$host"}, "$http_host"),
        map_block("$request", "$gh_host", named, "$gh_host_line"),
        map_block("$server_port", "$gh_port", ports, "$server_port"),
    ]


@functools.cache
def _upgrades() -> tuple[Directive, ...]:
    """Return the maps to the protocol for which a backend may be asked, empty for none."""
    # Upgrade has no meaning for other versions, nor if Connection does not name it.
    named = {r'"~*^HTTP/1\.1 (?:.*[\t ,])?upgrade(?:[\t ,]|$)"': "1"}
    # Other protocols, such as h2c, would be tunnels that no rule applies to.
    protocols = {f'"~*^1:{re.escape(protocol)}$"': protocol for protocol in TUNNELS}
    return (
        map_block('"$server_protocol $http_connection"', "$gh_upgrading", named),
        map_block('"$gh_upgrading:$http_upgrade"', "$gh_upgrade", protocols),
    )


def _clients(capabilities: NginxCapabilities, edge: DataPlaneSettings) -> list[Directive]:
    return [
        simple_directive("default_type", "application/octet-stream"),
        # A route is reached by one error page and may be retried by another.
        simple_directive("recursive_error_pages", "on"),
        simple_directive("underscores_in_headers", "off"),
        simple_directive("client_max_body_size", "0"),
        data_plane_settings.header_buffers(edge),
        simple_directive("ssl_protocols", "TLSv1.2", "TLSv1.3"),
        simple_directive("ssl_session_timeout", "10m"),
        *([simple_directive("http2", "on")] if edge.http2 and capabilities.http2_directive else []),
    ]


@functools.cache
def _backends() -> tuple[Directive, ...]:
    return (
        # The whole header of a response must fit into the first buffer.
        simple_directive("proxy_buffer_size", str(traffic_settings.HEAD)),
        simple_directive(
            "proxy_buffers",
            str(traffic_settings.BUFFERS.number),
            str(traffic_settings.BUFFERS.size),
        ),
        simple_directive("grpc_buffer_size", str(traffic_settings.HEAD)),
        simple_directive("proxy_http_version", "1.1"),
        *(simple_directive(f"{module}_ignore_headers", *_IGNORED) for module in ("proxy", "grpc")),
        *(
            directive
            for module in ("proxy", "grpc")
            for directive in (
                # Retry only requests that no backend has received.
                simple_directive(f"{module}_next_upstream", "error", "timeout"),
                simple_directive(f"{module}_next_upstream_tries", "3"),
                simple_directive(f"{module}_connect_timeout", "5s"),
                # A backend that is silent for long has probably received the request.
                simple_directive(
                    f"{module}_next_upstream_timeout",
                    traffic_settings.whole_seconds(traffic_settings.NEXT_ENDPOINT_SECONDS),
                ),
            )
        ),
        *(
            simple_directive(f"proxy_{kind}_timeout", format_time(STREAM_IDLE_SECONDS))
            for kind in ("read", "send")
        ),
        # Streaming calls may be silent for long.
        simple_directive("grpc_read_timeout", "1h"),
        simple_directive("grpc_send_timeout", "1h"),
    )
