"""``http.conf``: directives that all virtual hosts share, and includes of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gatehouse.compiler.backends.nginx import cors, data_plane_settings, grpc_status, headers
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple, write
from gatehouse.compiler.ir.settings import DataPlaneSettings


def http_conf(
    capabilities: Capabilities,
    maps: Iterable[Directive],
    internal_ports: Mapping[int, int],
    edge: DataPlaneSettings,
    zone: Iterable[Directive] = (),
) -> str:
    """Write the file that the main configuration includes in ``http``.

    ``internal_ports``: for each port shared with TLS listeners, the port where HTTPS listens.
    ``zone``: the zone of upstreams that resolve names, if any.
    """
    return write(
        [
            # Before the first map: NGINX fixes these sizes at the first one.
            *_sizes(),
            *_variables(internal_ports),
            *cors.definitions(),
            grpc_status.definition(),
            *maps,
            *_clients(capabilities, edge),
            *data_plane_settings.http(edge),
            *_backends(),
            *headers.defaults(edge.removed_headers),
            # A pattern, because the file may not exist.
            simple("include", "gatehouse/snippet[s].conf"),
            *zone,
            simple("include", "gatehouse/upstreams/*.conf"),
            simple("include", "gatehouse/servers/*.conf"),
        ]
    )


def _sizes() -> list[Directive]:
    return [
        simple("map_hash_max_size", "65536"),
        simple("map_hash_bucket_size", "512"),
        simple("variables_hash_max_size", "65536"),
        simple("variables_hash_bucket_size", "128"),
        simple("server_names_hash_max_size", "65536"),
        simple("server_names_hash_bucket_size", "512"),
        simple("proxy_headers_hash_max_size", "1024"),
        simple("proxy_headers_hash_bucket_size", "256"),
    ]


def _variables(internal_ports: Mapping[int, int]) -> list[Directive]:
    upgrade = (simple('""', '""'), simple("default", "upgrade"))
    host = (simple('""', "$host"), simple("default", "$http_host"))
    # If the request line names a host, it takes precedence over Host (RFC 9112, 3.2.2).
    named = simple('"~*^[^ ]+ https?://(?<gh_authority>[^/?#@ ]+)"', "$gh_authority")
    ports = [simple(str(inner), str(port)) for port, inner in sorted(internal_ports.items())]
    return [
        # A literal dollar sign: NGINX has no escape for it.
        block("geo", ("$gh_dollar",), (simple("default", '"$"'),)),
        block("map", ("$http_upgrade", "$gh_connection"), upgrade),
        block("map", ("$http_host", "$gh_host_line"), host),
        block("map", ("$request", "$gh_host"), (named, simple("default", "$gh_host_line"))),
        block("map", ("$server_port", "$gh_port"), (*ports, simple("default", "$server_port"))),
    ]


def _clients(capabilities: Capabilities, edge: DataPlaneSettings) -> list[Directive]:
    return [
        simple("default_type", "application/octet-stream"),
        # A route is reached by one error page and may be retried by another.
        simple("recursive_error_pages", "on"),
        simple("underscores_in_headers", "off"),
        simple("client_max_body_size", "0"),
        simple("large_client_header_buffers", "8", "32k"),
        simple("ssl_protocols", "TLSv1.2", "TLSv1.3"),
        simple("ssl_session_timeout", "10m"),
        *([simple("http2", "on")] if edge.http2 and capabilities.http2_directive else []),
    ]


def _backends() -> list[Directive]:
    return [
        simple("proxy_buffer_size", "16k"),
        simple("proxy_buffers", "8", "16k"),
        simple("proxy_http_version", "1.1"),
        *(
            directive
            for module in ("proxy", "grpc")
            for directive in (
                # Retry only requests that no backend has received.
                simple(f"{module}_next_upstream", "error", "timeout"),
                simple(f"{module}_next_upstream_tries", "3"),
                simple(f"{module}_connect_timeout", "5s"),
            )
        ),
        # Streaming calls may be silent for long.
        simple("grpc_read_timeout", "1h"),
        simple("grpc_send_timeout", "1h"),
    ]
