"""Settings of all ports: client address and HTTP versions."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import compression, names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple_directive, switch
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from kube_base.types.ip_addresses import bracketed

PROXY_HEADER_BYTES = 4096
"""Maximum size in bytes of a PROXY protocol header: that of NGINX for TLS and streams. Plain HTTP
ports read the header into the buffer for request headers."""


def addresses(edge: ir.DataPlaneSettings, bind_address: str, port: int) -> list[str]:
    """Return the addresses to listen on. ``bind_address`` empty: every address."""
    if bind_address:
        return [quoting.word(f"{bracketed(bind_address)}:{port}")]
    listen = [str(port)] if edge.ipv4 else []
    return listen + ([quoting.word(f"[::]:{port}")] if edge.ipv6 else [])


def proxied(edge: ir.DataPlaneSettings) -> tuple[str, ...]:
    """Return the ``listen`` parameters for connections with a PROXY protocol header."""
    client_address = edge.client_address
    return (
        ("proxy_protocol",) if client_address and client_address.source == "proxy-protocol" else ()
    )


def unsupported_paths(edge: ir.DataPlaneSettings) -> list[UnsupportedSetting]:
    """Return the setting of paths that NGINX does not support."""
    if edge.merge_slashes:
        return []
    why = (
        "not supported by NGINX, which compares routes with the decoded path, in which slashes are "
        "merged, and sends the path of the client"
    )
    return [UnsupportedSetting(edge.source("merge_slashes"), why)]


def header_buffers(edge: ir.DataPlaneSettings) -> Directive:
    """Return the buffers for the headers of a request. Each line must fit into one."""
    if edge.header_bytes is None:
        return simple_directive("large_client_header_buffers", "4", "64k")
    # All lines fit into one buffer. The second one is for a request that begins in the buffer of
    # the one before it.
    return simple_directive("large_client_header_buffers", "2", str(edge.header_bytes))


def long_headers(edge: ir.DataPlaneSettings) -> list[Directive]:
    """Return the directives of a server that answer 431 to headers above the limit, as Envoy does.

    NGINX itself answers 400. The server may be the default one, as the hostname may be unknown.
    """
    if edge.header_bytes is None:
        return []
    answer = (simple_directive("return", "431"),)
    return [
        simple_directive("error_page", "494", "=", names.LONG_HEADERS),
        block("location", (names.LONG_HEADERS,), answer),
    ]


def http(edge: ir.DataPlaneSettings) -> list[Directive]:
    """Return the directives of the ``http`` context."""
    return [
        *_error_log(edge),
        simple_directive("server_tokens", "on" if edge.nginx.exposes_version else "off"),
        *_client_address(edge.client_address),
        *(compression.gzip(edge.compression) if edge.compression is not None else []),
    ]


def stream_directives(edge: ir.DataPlaneSettings) -> list[Directive]:
    """Return the directives of the ``stream`` context."""
    client_address = edge.client_address
    if client_address is None or client_address.source != "proxy-protocol":
        return _error_log(edge)
    return [
        *_error_log(edge),
        *(
            simple_directive("set_real_ip_from", quoting.word(cidr))
            for cidr in client_address.trusted
        ),
    ]


def _error_log(edge: ir.DataPlaneSettings) -> list[Directive]:
    """Return the directive for messages about requests. The agent writes stderr to its log."""
    if not edge.nginx.error_level:
        return []
    return [simple_directive("error_log", "stderr", quoting.word(edge.nginx.error_level))]


def _client_address(client_address: ir.ClientAddress | None) -> list[Directive]:
    if client_address is None:
        return []
    proxy_protocol = client_address.source == "proxy-protocol"
    header = "proxy_protocol" if proxy_protocol else "X-Forwarded-For"
    size = simple_directive("client_header_buffer_size", str(PROXY_HEADER_BYTES))
    return [
        *([size] if proxy_protocol else []),
        *(
            simple_directive("set_real_ip_from", quoting.word(cidr))
            for cidr in client_address.trusted
        ),
        simple_directive("real_ip_header", header),
        simple_directive("real_ip_recursive", switch(client_address.nginx.recursive)),
    ]
