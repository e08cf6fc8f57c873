"""External names: clusters whose endpoint is a DNS name, which Envoy resolves while it runs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components
from envoy.extensions.clusters.common.dns.v3 import dns_pb2
from envoy.extensions.clusters.dns.v3 import dns_cluster_pb2
from envoy.extensions.network.dns_resolver.cares.v3 import cares_dns_resolver_pb2

from gatehouse.compiler.backends.envoy import extensions, quoting
from gatehouse.compiler.backends.envoy.protobufs import build_socket_address, packed
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import NameResolution

_DNS_PORT = 53


def set_name_resolution(
    proto: cluster_pb2.Cluster, resolution: NameResolution, endpoints: Iterable[ir.Endpoint]
) -> None:
    """Let Envoy resolve the endpoints of a cluster at the name servers of the data plane."""
    proto.ClearField("type")
    proto.ClearField("eds_cluster_config")
    proto.cluster_type.name = "envoy.cluster.dns"
    proto.cluster_type.typed_config.CopyFrom(packed(_dns_cluster(resolution)))
    # A name server that does not answer must not delay the start of the other clusters.
    proto.wait_for_warm_on_init.value = False
    proto.load_assignment.cluster_name = proto.name
    locality = proto.load_assignment.endpoints.add()
    for endpoint in endpoints:
        address = build_socket_address(endpoint.address, endpoint.port)
        locality.lb_endpoints.add(endpoint=components.Endpoint(address=address))


def _dns_cluster(resolution: NameResolution) -> dns_cluster_pb2.DnsCluster:
    resolver = cares_dns_resolver_pb2.CaresDnsResolverConfig(
        resolvers=[build_socket_address(host, _DNS_PORT) for host in resolution.addresses]
    )
    # No search domains of the Pod: a name means the same on every data plane.
    resolver.dns_resolver_options.no_default_search_domain = True
    if resolution.timeout is not None:
        resolver.query_timeout_seconds.value = max(1, math.ceil(resolution.timeout))
    family = dns_pb2.ALL if resolution.ipv6 else dns_pb2.V4_ONLY
    proto = dns_cluster_pb2.DnsCluster(
        dns_lookup_family=family,
        respect_dns_ttl=resolution.cache_ttl is None,
        typed_dns_resolver_config=extensions.extension(
            "envoy.network.dns_resolver.cares", resolver
        ),
    )
    if resolution.cache_ttl is not None:
        proto.dns_refresh_rate.CopyFrom(quoting.duration_of(resolution.cache_ttl))
    return proto
