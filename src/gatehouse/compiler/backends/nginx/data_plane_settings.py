"""How clients are met on every port: who they are, which HTTP is spoken, what is compressed."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import quoting
from gatehouse.compiler.backends.nginx.directives import Directive, simple
from gatehouse.compiler.ir import settings as ir


def addresses(edge: ir.DataPlaneSettings, bind_address: str, port: int) -> list[str]:
    """Give what a server listens on; ``bind_address`` empty: every address."""
    if bind_address:
        host = f"[{bind_address}]" if ":" in bind_address else bind_address
        return [quoting.word(f"{host}:{port}")]
    found = [str(port)] if edge.ipv4 else []
    return found + ([quoting.word(f"[::]:{port}")] if edge.ipv6 else [])


def proxied(edge: ir.DataPlaneSettings) -> tuple[str, ...]:
    """Give the words of ``listen`` for connections that begin with who the client is."""
    known = edge.client_address
    return ("proxy_protocol",) if known and known.source == "proxy-protocol" else ()


def http(edge: ir.DataPlaneSettings) -> list[Directive]:
    """Give the directives of all of ``http``."""
    return [
        simple("server_tokens", "on" if edge.server_tokens else "off"),
        *_client_address(edge.client_address),
        *(_compression(edge.compression) if edge.compression is not None else []),
    ]


def stream(edge: ir.DataPlaneSettings) -> list[Directive]:
    """Give the directives of all of ``stream``."""
    known = edge.client_address
    if known is None or known.source != "proxy-protocol":
        return []
    return [simple("set_real_ip_from", quoting.word(each)) for each in known.trusted]


def _client_address(known: ir.ClientAddress | None) -> list[Directive]:
    if known is None:
        return []
    header = "proxy_protocol" if known.source == "proxy-protocol" else "X-Forwarded-For"
    return [
        *(simple("set_real_ip_from", quoting.word(each)) for each in known.trusted),
        simple("real_ip_header", header),
        simple("real_ip_recursive", "on" if known.recursive else "off"),
    ]


def _compression(wanted: ir.Compression) -> list[Directive]:
    found = [simple("gzip", "on")]
    if wanted.level is not None:
        found.append(simple("gzip_comp_level", str(wanted.level)))
    if wanted.min_length is not None:
        found.append(simple("gzip_min_length", str(wanted.min_length)))
    if wanted.types:
        found.append(simple("gzip_types", *(quoting.literal(each) for each in wanted.types)))
    if wanted.buffers is not None:
        found.append(simple("gzip_buffers", str(wanted.buffers.number), str(wanted.buffers.size)))
    if wanted.vary is not None:
        found.append(simple("gzip_vary", "on" if wanted.vary else "off"))
    if wanted.http_version:
        found.append(simple("gzip_http_version", quoting.word(wanted.http_version)))
    if wanted.disabled:
        found.append(simple("gzip_disable", *(quoting.literal(each) for each in wanted.disabled)))
    if wanted.proxied:
        found.append(simple("gzip_proxied", *(quoting.word(each) for each in wanted.proxied)))
    return found
