"""Settings of all ports: client address, HTTP versions and compression."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import quoting
from gatehouse.compiler.backends.nginx.directives import Directive, simple
from gatehouse.compiler.ir import settings as ir


def addresses(edge: ir.DataPlaneSettings, bind_address: str, port: int) -> list[str]:
    """Return the addresses to listen on. ``bind_address`` empty: every address."""
    if bind_address:
        host = f"[{bind_address}]" if ":" in bind_address else bind_address
        return [quoting.word(f"{host}:{port}")]
    listen = [str(port)] if edge.ipv4 else []
    return listen + ([quoting.word(f"[::]:{port}")] if edge.ipv6 else [])


def proxied(edge: ir.DataPlaneSettings) -> tuple[str, ...]:
    """Return the ``listen`` parameters for connections with a PROXY protocol header."""
    client_address = edge.client_address
    return (
        ("proxy_protocol",) if client_address and client_address.source == "proxy-protocol" else ()
    )


def http(edge: ir.DataPlaneSettings) -> list[Directive]:
    """Return the directives of the ``http`` context."""
    return [
        simple("server_tokens", "on" if edge.exposes_version else "off"),
        *_client_address(edge.client_address),
        *(_compression(edge.compression) if edge.compression is not None else []),
    ]


def stream(edge: ir.DataPlaneSettings) -> list[Directive]:
    """Return the directives of the ``stream`` context."""
    client_address = edge.client_address
    if client_address is None or client_address.source != "proxy-protocol":
        return []
    return [simple("set_real_ip_from", quoting.word(each)) for each in client_address.trusted]


def _client_address(client_address: ir.ClientAddress | None) -> list[Directive]:
    if client_address is None:
        return []
    header = "proxy_protocol" if client_address.source == "proxy-protocol" else "X-Forwarded-For"
    return [
        *(simple("set_real_ip_from", quoting.word(each)) for each in client_address.trusted),
        simple("real_ip_header", header),
        simple("real_ip_recursive", "on" if client_address.recursive else "off"),
    ]


def _compression(compression: ir.Compression) -> list[Directive]:
    directives = [simple("gzip", "on")]
    if compression.level is not None:
        directives.append(simple("gzip_comp_level", str(compression.level)))
    if compression.min_length is not None:
        directives.append(simple("gzip_min_length", str(compression.min_length)))
    if compression.types:
        directives.append(
            simple("gzip_types", *(quoting.literal(each) for each in compression.types))
        )
    if compression.buffers is not None:
        directives.append(
            simple("gzip_buffers", str(compression.buffers.number), str(compression.buffers.size))
        )
    if compression.vary is not None:
        directives.append(simple("gzip_vary", "on" if compression.vary else "off"))
    if compression.http_version:
        directives.append(simple("gzip_http_version", quoting.word(compression.http_version)))
    if compression.disabled:
        directives.append(
            simple("gzip_disable", *(quoting.literal(each) for each in compression.disabled))
        )
    if compression.proxied:
        directives.append(
            simple("gzip_proxied", *(quoting.word(each) for each in compression.proxied))
        )
    return directives
