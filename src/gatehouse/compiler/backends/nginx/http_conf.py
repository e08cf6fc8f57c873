"""``http.conf``: what all virtual hosts share, and the includes of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gatehouse.compiler.backends.nginx import cors, data_plane_settings, grpc_status, headers
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple, write
from gatehouse.compiler.ir.settings import DataPlaneSettings


def http_conf(
    capabilities: Capabilities,
    maps: Iterable[Directive],
    hidden: Mapping[int, int],
    met: DataPlaneSettings,
    zone: Iterable[Directive] = (),
) -> str:
    """Write the file that the main configuration includes in ``http``.

    ``hidden``: for each port that is served by way of another, that other port; ``zone``: what
    upstreams that follow names need, if there are any.
    """
    return write(
        [
            # Before the first map: NGINX fixes these sizes when it meets one.
            *_sizes(),
            *_variables(hidden),
            *cors.definitions(),
            grpc_status.definition(),
            *maps,
            *_clients(capabilities, met),
            *data_plane_settings.http(met),
            *_backends(),
            *headers.defaults(met.removed_headers),
            # A pattern, since there need not be such a file.
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


def _variables(hidden: Mapping[int, int]) -> list[Directive]:
    upgrade = (simple('""', '""'), simple("default", "upgrade"))
    host = (simple('""', "$host"), simple("default", "$http_host"))
    # Where the request line names a host, it is what is asked for (RFC 9112, 3.2.2).
    named = simple('"~*^[^ ]+ https?://(?<gh_authority>[^/?#@ ]+)"', "$gh_authority")
    ports = [simple(str(inner), str(port)) for port, inner in sorted(hidden.items())]
    return [
        # A literal dollar: NGINX has no escape for it.
        block("geo", ("$gh_dollar",), (simple("default", '"$"'),)),
        block("map", ("$http_upgrade", "$gh_connection"), upgrade),
        block("map", ("$http_host", "$gh_host_line"), host),
        block("map", ("$request", "$gh_host"), (named, simple("default", "$gh_host_line"))),
        block("map", ("$server_port", "$gh_port"), (*ports, simple("default", "$server_port"))),
    ]


def _clients(capabilities: Capabilities, met: DataPlaneSettings) -> list[Directive]:
    return [
        simple("default_type", "application/octet-stream"),
        # A route is led to by one error page and may be tried again by another.
        simple("recursive_error_pages", "on"),
        simple("underscores_in_headers", "off"),
        simple("client_max_body_size", "0"),
        simple("large_client_header_buffers", "8", "32k"),
        simple("ssl_protocols", "TLSv1.2", "TLSv1.3"),
        simple("ssl_session_timeout", "10m"),
        *([simple("http2", "on")] if met.http2 and capabilities.http2_directive else []),
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
                # Only what no backend has seen is tried elsewhere.
                simple(f"{module}_next_upstream", "error", "timeout"),
                simple(f"{module}_next_upstream_tries", "3"),
                simple(f"{module}_connect_timeout", "5s"),
            )
        ),
        # Streams of calls may be silent for long.
        simple("grpc_read_timeout", "1h"),
        simple("grpc_send_timeout", "1h"),
    ]
