"""Scopes of requests for kube-apiservers: on arrival, and of flow schemas.

A request arrives in the scope of its port and cluster. The script moves it to the scope of a flow
schema, where the header ``x-gh-way`` says which servers may answer, and how: ``l`` for a
long-running request, which concurrency limits above 0 do not count, ``m`` for one that may change
something, ``u`` for one that may leave HTTP. The token bucket of a schema belongs to its scope, so
that only its own changes refill it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from google.protobuf import any_pb2, struct_pb2

from gatehouse.compiler.backends.envoy import names, quoting, retries
from gatehouse.compiler.backends.envoy.kube_apiserver import (
    clusters,
    flow_control,
    policy_metadata,
    stats,
)
from gatehouse.compiler.backends.envoy.protobufs import packed, truth, wrap_number
from gatehouse.compiler.backends.envoy.scope_resources import scope_resource
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import XdsResource

WAY = f"{names.HEADER_PREFIX}way"

_SAFE_FAILURES = "connect-failure,refused-stream"
"""Retry requests that no server has received."""

_RETRIES = 4
"""Number of retries, on other servers. A failed server has the fewest requests, and would be
selected again until Envoy's main thread has notified its workers, which is delayed on a busy
machine."""

_Tls = components.RouteMatch.TlsContextMatchOptions
_CERTIFICATES = {
    "proven": _Tls(presented=truth(True), validated=truth(True)),
    "shown": _Tls(presented=truth(True)),
    "": None,
}
"""TLS match of a client's certificate, by suffix of the route name. The script reads the name
anyway, and reads a connection's certificate only if there is a verified one."""

_ADDRESS = quoting.regex(r"(?:\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\])(?::\d*)?")
"""Matches a ``Host`` that is an IP address, with or without a port (RFC 3986, section 3.2.2)."""

MISDIRECTED = "this connection is for another host"

REVIEWS = (
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
)

_INTERNAL_HEADERS = (
    "authorization", names.SCOPE_HEADER, WAY, "x-envoy-external-address", "x-envoy-internal",
)  # fmt: skip
"""Headers removed before a request leaves Envoy."""


_ENABLED = components.FilterConfig(config=any_pb2.Any())


def arrival_scope(port: int, cluster: ir.ApiCluster) -> XdsResource:
    """Build the scope in which requests for a cluster arrive. Only the script leads out of it."""
    metadata, filters = (
        policy_metadata.policy_metadata(cluster),
        tuple(flow_control.limit_filters(cluster)),
    )
    host = components.VirtualHost(
        name="served", domains=[_host(hostname) for hostname in cluster.hosts]
    )
    _serve(host, metadata, filters, _any())
    # Clients with tls-server-name and an address send the address as Host. SNI already selected the
    # cluster.
    others = components.VirtualHost(name="addresses", domains=["*"])
    address = _any()
    address.headers.add(name=":authority").string_match.safe_regex.CopyFrom(_ADDRESS)
    _serve(others, metadata, filters, address)
    misdirected = others.routes.add(match=_any())
    misdirected.typed_per_filter_config[names.SCRIPT].CopyFrom(_script_disabled())
    misdirected.direct_response.status = 421
    misdirected.direct_response.body.inline_string = MISDIRECTED
    return scope_resource(names.api_scope(port, cluster.name), [host, others], (cluster.origin,))


def _serve(
    host: components.VirtualHost,
    metadata: struct_pb2.Struct,
    filters: Iterable[str],
    match: components.RouteMatch,
) -> None:
    """Let the script process what a virtual host matches; ``metadata``: its configuration.

    ``filters``: filters that the cluster's limits need.
    """
    host.metadata.filter_metadata[names.SCRIPT].update({"served": metadata})
    # Envoy selects its filters by the route on arrival.
    for filter_name in filters:
        host.typed_per_filter_config[filter_name].CopyFrom(packed(_ENABLED))
    version = policy_metadata.script_version(metadata)
    for certificate, tls in _CERTIFICATES.items():
        route = host.routes.add(name=f"{version}/{certificate}", match=match)
        if tls is not None:
            route.match.tls_context.CopyFrom(tls)
        route.direct_response.status = 500
        route.direct_response.body.inline_string = "the request could not be understood"


def unknown_hosts(port: int, listener: ir.ApiListener) -> XdsResource:
    """Build the scope of connections with an unknown SNI."""
    hosts = sorted({_host(host) for cluster in listener.clusters for host in cluster.hosts})
    virtual_hosts = [_respond(["*"], 503, "")]
    if hosts:
        virtual_hosts.append(_respond(hosts, 421, MISDIRECTED))
    return scope_resource(names.api_scope(port, ""), virtual_hosts)


def flows(cluster: ir.ApiCluster) -> Iterator[XdsResource]:
    """Yield the scopes of flow schemas: one for each schema, and one without."""
    schemas = {schema.name: schema for schema in cluster.schemas}
    for name in sorted({policy.schema for policy in cluster.policies}):
        yield _flow(cluster, name, schemas.get(name))


def _flow(cluster: ir.ApiCluster, name: str, schema: ir.FlowSchema | None) -> XdsResource:
    host = components.VirtualHost(name="flow", domains=["*"])
    host.request_headers_to_remove.extend(_INTERNAL_HEADERS)
    host.typed_per_filter_config[stats.FILTER_STATE_FILTER].CopyFrom(packed(stats.store_filter()))
    if schema is not None and isinstance(schema.limit, ir.TokenBucket):
        host.typed_per_filter_config[flow_control.BUCKET].CopyFrom(
            packed(flow_control.bucket(schema.limit))
        )
    host.retry_policy.CopyFrom(_retry_policy(_SAFE_FAILURES))
    limited = name if schema is not None and isinstance(schema.limit, ir.InFlight) else ""
    rejects_all = schema is not None and schema.limit == ir.InFlight(0)
    subsets = {
        policy_metadata.subset(policy) for policy in cluster.policies if policy.schema == name
    }
    for subset in sorted(subsets):
        for kind in ("", "l", "m", "lm", "u", "lu"):
            copy = limited if rejects_all or "l" not in kind else ""
            target = names.servers_cluster_name(cluster.name, copy, upgrades="u" in kind)
            route = _onward(cluster, subset, kind, target)
            if schema is not None:
                route.metadata.filter_metadata[names.SCRIPT].update(
                    {"limited": quoting.check_text(flow_control.limit_message(cluster, schema))}
                )
                if schema.shared is not None:
                    route.route.rate_limits.append(
                        flow_control.shared_limit(cluster.name, schema.name, schema.shared)
                    )
            host.routes.append(route)
    return scope_resource(names.flow_scope(cluster.name, name), [host], (cluster.origin,))


def _onward(cluster: ir.ApiCluster, subset: str, kind: str, target: str) -> components.Route:
    route = components.Route(match=_any())
    header = route.match.headers.add(name=WAY)
    if subset or kind:
        header.string_match.exact = subset + kind
    else:
        header.present_match = False
    _forward(route, cluster, target)
    if kind in ("", "l"):
        route.route.retry_policy.CopyFrom(_retry_policy(f"{_SAFE_FAILURES},reset"))
    if subset:
        chosen = route.route.metadata_match.filter_metadata["envoy.lb"]
        chosen.update({clusters.SUBSET: subset})
    return route


def _retry_policy(reasons: str) -> components.RetryPolicy:
    proto = components.RetryPolicy(retry_on=reasons, num_retries=wrap_number(_RETRIES))
    return retries.elsewhere(proto)


def _forward(route: components.Route, cluster: ir.ApiCluster, target: str) -> None:
    """Forward the requests of a route without a timeout."""
    route.route.cluster = target
    route.route.timeout.CopyFrom(quoting.duration_of(0))
    route.route.idle_timeout.CopyFrom(quoting.duration_of(0))
    path = clusters.prefix(cluster)
    if path:
        route.route.prefix_rewrite = quoting.path(path) + "/"


def reviews(cluster: ir.ApiCluster) -> XdsResource:
    """Build the scope of the reviewer's requests to a cluster, sent with the gateway's
    credentials."""
    host = components.VirtualHost(name="reviews", domains=["*"])
    host.request_headers_to_remove.extend(_INTERNAL_HEADERS)
    host.retry_policy.CopyFrom(retries.safe_policy())
    for path in REVIEWS:
        route = host.routes.add(match=components.RouteMatch(path=path))
        method = route.match.headers.add(name=":method")
        method.string_match.exact = "POST"
        _forward(route, cluster, names.servers_cluster_name(cluster.name))
        route.route.timeout.CopyFrom(quoting.duration_of(10))
        if route.route.prefix_rewrite:
            route.route.prefix_rewrite = quoting.path(clusters.prefix(cluster)) + path
    forbidden = host.routes.add(match=_any())
    forbidden.direct_response.status = 403
    return scope_resource(names.upstream_scope(cluster.name), [host], (cluster.origin,))


def _any() -> components.RouteMatch:
    return components.RouteMatch(prefix="/")


def _host(name: str) -> str:
    return quoting.check_hostname(name).lower()


def _respond(domains: list[str], code: int, body: str) -> components.VirtualHost:
    host = components.VirtualHost(name=str(code), domains=domains)
    host.typed_per_filter_config[names.SCRIPT].CopyFrom(_script_disabled())
    route = host.routes.add(match=_any())
    route.direct_response.status = code
    route.direct_response.body.inline_string = body
    return host


def _script_disabled() -> any_pb2.Any:
    return packed(lua_pb2.LuaPerRoute(disabled=True))
