"""Protocol to a cluster: NGINX module, HTTP version and TLS."""

from __future__ import annotations

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import (
    external_names,
    names,
    picked_pools,
    quoting,
    tls_connectors,
)
from gatehouse.compiler.backends.nginx.directives import Directive, simple_directive
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext
from gatehouse.compiler.ir import http as ir


def module_of(cluster: ir.Cluster) -> str:
    """Return the NGINX module that proxies to a cluster."""
    return "grpc" if cluster.protocol == "grpc" else "proxy"


def pass_directive(cluster: ir.Cluster, upstream: str, path: str = "") -> Directive:
    """Return the directive that forwards a request."""
    secure = "" if cluster.tls is None or tls_connectors.needs_connector(cluster) else "s"
    if cluster.protocol == "grpc":
        return simple_directive("grpc_pass", quoting.word(f"grpc{secure}://{upstream}"))
    return simple_directive("proxy_pass", quoting.word(f"http{secure}://{upstream}{path}"))


def http_version(context: NginxRouteContext, cluster: ir.Cluster) -> list[Directive]:
    """Return the directive for the HTTP version to a backend. Raises InvalidValueError."""
    tls_connectors.check_connector(context.capabilities, [cluster])
    external_names.check_external_names(context.capabilities, [cluster])
    picked_pools.check_pool(context.capabilities, cluster)
    if cluster.protocol != "h2c" or cluster.picker is not None:
        # The picker client has HTTP/1.1 towards NGINX.
        return []
    if not context.capabilities.http2_upstreams:
        raise InvalidValueError("HTTP/2 to backends requires NGINX 1.29.4 or newer")
    return [simple_directive("proxy_http_version", "2")]


def tls_directives(module: str, cluster: ir.Cluster) -> list[Directive]:
    """Return the TLS directives of a location or stream server; none if a connector does TLS."""
    tls = cluster.tls
    if tls is None or tls_connectors.needs_connector(cluster):
        return []

    def ssl(name: str, *words: str) -> Directive:
        return simple_directive(f"{module}_ssl_{name}", *words)

    directives = [
        ssl("server_name", "on"),
        ssl("name", quoting.quote_text_literal(tls.server_name)),
        ssl("verify", "on"),
        ssl("verify_depth", "10"),
        ssl("protocols", "TLSv1.2", "TLSv1.3"),
        ssl("trusted_certificate", names.trust_file(tls.trust)),
    ]
    if tls.certificate:
        directives += [
            ssl("certificate", names.certificate_file(tls.certificate, "crt")),
            ssl("certificate_key", names.certificate_file(tls.certificate, "key")),
        ]
    return directives
