"""External names: upstreams whose server is a DNS name, which NGINX resolves while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import quoting, tls_connectors
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    optional_directives,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.traffic_settings import format_time, whole_seconds
from gatehouse.compiler.ir import http as ir
from kube_base.types.ip_addresses import bracketed


def resolver_directives(shares: Sequence[tuple[ir.Cluster, int]]) -> list[Directive]:
    """Return the directives of an upstream with external names; none if it has none.

    All clusters of a Gateway have the same name servers.
    """
    resolutions = (cluster.resolution for cluster, _ in shares)
    resolution = next(filter(None, resolutions), None)
    if resolution is None:
        return []
    servers = [quoting.word(bracketed(address)) for address in resolution.addresses]
    # NGINX reads no fractions of a second here.
    ttl = resolution.cache_ttl
    valid = [f"valid={whole_seconds(max(1.0, ttl))}"] if ttl is not None else []
    family = [] if resolution.ipv6 else ["ipv6=off"]
    timeout = optional_directives({"resolver_timeout": resolution.timeout}, format_time)
    return [simple_directive("resolver", *servers, *valid, *family), *timeout]


def are_supported(
    capabilities: NginxCapabilities, shares: Iterable[tuple[ir.Cluster, int]]
) -> bool:
    """Return whether this NGINX can resolve the external names of an upstream, if it has any."""
    return capabilities.external_names or all(cluster.resolution is None for cluster, _ in shares)


def check_external_names(capabilities: NginxCapabilities, clusters: Iterable[ir.Cluster]) -> None:
    """Raise InvalidValueError if this NGINX cannot serve a cluster with an external name."""
    for cluster in clusters:
        if cluster.resolution is None:
            continue
        if not are_supported(capabilities, [(cluster, 1)]):
            raise InvalidValueError("ExternalName Services require NGINX 1.27.3 or newer")
        if tls_connectors.needs_connector(cluster):
            raise InvalidValueError(
                "subjectAltNames are not supported for ExternalName Services by NGINX; use Envoy"
            )
