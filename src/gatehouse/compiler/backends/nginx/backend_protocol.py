"""How a cluster is spoken to: which module, which version of HTTP, which TLS."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import names, quoting, tls_connectors
from gatehouse.compiler.backends.nginx.directives import Directive, simple
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.backends.nginx.route_context import Context
from gatehouse.compiler.ir import http as ir


def module_of(cluster: ir.Cluster) -> str:
    """Give the module whose directives speak to a cluster."""
    return "grpc" if cluster.protocol == "grpc" else "proxy"


def pass_directive(cluster: ir.Cluster, upstream: str, path: str = "") -> Directive:
    """Give the directive that sends a request on its way."""
    secure = "" if cluster.tls is None or tls_connectors.connected(cluster) else "s"
    if cluster.protocol == "grpc":
        return simple("grpc_pass", quoting.word(f"grpc{secure}://{upstream}"))
    return simple("proxy_pass", quoting.word(f"http{secure}://{upstream}{path}"))


def http_version(context: Context, cluster: ir.Cluster) -> list[Directive]:
    """Give the version of HTTP that a backend is spoken to in. Raises UnwritableError."""
    tls_connectors.check(context.capabilities, [cluster])
    if cluster.protocol != "h2c":
        return []
    if not context.capabilities.http2_upstreams:
        raise InvalidValueError("HTTP/2 to backends needs NGINX 1.29.4 or newer")
    return [simple("proxy_http_version", "2")]


def tls_directives(module: str, cluster: ir.Cluster) -> list[Directive]:
    """Give the directives of one location or stream server: none, if a connector speaks TLS."""
    wanted = cluster.tls
    if wanted is None or tls_connectors.connected(cluster):
        return []

    def said(name: str, *words: str) -> Directive:
        return simple(f"{module}_ssl_{name}", *words)

    found = [
        said("server_name", "on"),
        said("name", quoting.text(wanted.server_name)),
        said("verify", "on"),
        said("verify_depth", "10"),
        said("protocols", "TLSv1.2", "TLSv1.3"),
        said("trusted_certificate", names.trust_file(wanted.trust)),
    ]
    if wanted.certificate:
        found += [
            said("certificate", names.certificate_file(wanted.certificate, "crt")),
            said("certificate_key", names.certificate_file(wanted.certificate, "key")),
        ]
    return found
