"""Where requests arrive, and where they go on: two kinds of scopes.

A request arrives in the scope of its port and cluster. The script moves it to the scope of a flow
schema, where the header ``x-gh-way`` says which servers may answer, and how: ``l`` for a
long-running request, which no limit of requests under way counts, ``m`` for one that may change
something, ``u`` for one that may leave HTTP. A schema's bucket belongs to its scope, so that only
its own changes fill it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from envoy.config.route.v3 import route_components_pb2 as components
from envoy.config.route.v3 import route_pb2, scoped_route_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from google.protobuf import any_pb2

from gatehouse.compiler.backends.envoy import headers, names, quoting, retries
from gatehouse.compiler.backends.envoy.kube_apiserver import (
    clusters,
    flow_control,
    policy_metadata,
    stats,
)
from gatehouse.compiler.backends.envoy.protobufs import number, packed, truth, written
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import SCOPE, Resource

WAY = f"{names.OURS}way"

_UNSEEN = "connect-failure,refused-stream"
"""What no server has seen is tried again."""

_AGAIN = 4
"""So often, and elsewhere. A lost server has the fewest requests, and would be taken again until
Envoy's main thread has told its workers that it is out, which a busy machine puts off."""

_Tls = components.RouteMatch.TlsContextMatchOptions
_CERTIFICATES = {
    "proven": _Tls(presented=truth(True), validated=truth(True)),
    "shown": _Tls(presented=truth(True)),
    "": None,
}
"""What a client's certificate is, by the end of a route's name: the script reads the name anyway,
and asks a connection for its certificate only where there is one to believe."""

_ADDRESS = quoting.regex(r"(?:\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\])(?::\d*)?")
"""A ``Host`` that is an IP address, with or without a port (RFC 3986, section 3.2.2)."""

ELSEWHERE = "this connection is for another host"

REVIEWS = (
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
)

_OURS = (
    "authorization", names.SCOPE_HEADER, WAY, "x-envoy-external-address", "x-envoy-internal",
)  # fmt: skip
"""Taken away before a request leaves Envoy."""


_ENABLED = components.FilterConfig(config=any_pb2.Any())


def arrival(port: int, cluster: ir.ApiCluster) -> Resource:
    """Give the scope in which requests for a cluster arrive. Only the script leads out of it."""
    told, limits = policy_metadata.policy_metadata(cluster), tuple(flow_control.filters(cluster))
    host = components.VirtualHost(name="served", domains=[_host(each) for each in cluster.hosts])
    _serve(host, told, limits, _any())
    # Who is told an address and tls-server-name asks for the address. The handshake chose already.
    others = components.VirtualHost(name="addresses", domains=["*"])
    address = _any()
    address.headers.add(name=":authority").string_match.safe_regex.CopyFrom(_ADDRESS)
    _serve(others, told, limits, address)
    refused = others.routes.add(match=_any())
    refused.typed_per_filter_config[names.SCRIPT].CopyFrom(_silent())
    refused.direct_response.status = 421
    refused.direct_response.body.inline_string = ELSEWHERE
    return _scope(names.api_scope(port, cluster.name), [host, others], (names.api(cluster.name),))


def _serve(host: Any, told: Any, limits: Iterable[str], match: Any) -> None:
    """Let the script decide of what a virtual host matches; ``told``: what it knows of policies.

    ``limits``: the filters that the cluster's limits need.
    """
    host.metadata.filter_metadata[names.SCRIPT].update({"served": told})
    # Envoy chooses its filters by the route at which a request arrives.
    for each in limits:
        host.typed_per_filter_config[each].CopyFrom(packed(_ENABLED))
    version = policy_metadata.version(told)
    for shown, tls in _CERTIFICATES.items():
        route = host.routes.add(name=f"{version}/{shown}", match=match)
        if tls is not None:
            route.match.tls_context.CopyFrom(tls)
        route.direct_response.status = 500
        route.direct_response.body.inline_string = "the request could not be understood"


def nowhere(port: int, listener: ir.ApiListener) -> Resource:
    """Give the scope of connections that asked for a name that no cluster has."""
    hosts = sorted({_host(each) for cluster in listener.clusters for each in cluster.hosts})
    found = [_answering(["*"], 503, "")]
    if hosts:
        found.append(_answering(hosts, 421, ELSEWHERE))
    return _scope(names.api_scope(port, ""), found)


def flows(cluster: ir.ApiCluster, token: str) -> Iterator[Resource]:
    """Give the scopes in which requests go on: one for each schema, one for those of none."""
    schemas = {each.name: each for each in cluster.schemas}
    for name in sorted({each.schema for each in cluster.policies}):
        yield _flow(cluster, name, schemas.get(name), token)


def _flow(cluster: ir.ApiCluster, name: str, schema: ir.FlowSchema | None, token: str) -> Resource:
    host = components.VirtualHost(name="flow", domains=["*"])
    host.request_headers_to_remove.extend(_OURS)
    host.typed_per_filter_config[stats.FILTER].CopyFrom(packed(stats.keeping()))
    if token:
        host.request_headers_to_add.append(headers.option("authorization", clusters.bearer(token)))
    if schema is not None and isinstance(schema.limit, ir.TokenBucket):
        host.typed_per_filter_config[flow_control.BUCKET].CopyFrom(
            packed(flow_control.bucket(schema.limit))
        )
    host.retry_policy.CopyFrom(_again(_UNSEEN))
    counted = name if schema is not None and isinstance(schema.limit, ir.InFlight) else ""
    subsets = {policy_metadata.subset(each) for each in cluster.policies if each.schema == name}
    for subset in sorted(subsets):
        for kind in ("", "l", "m", "lm", "u", "lu"):
            target = names.servers(
                cluster.name, "" if "l" in kind else counted, upgrades="u" in kind
            )
            route = _onward(cluster, subset, kind, target)
            if schema is not None:
                route.metadata.filter_metadata[names.SCRIPT].update(
                    {"limited": quoting.text(flow_control.refusal(cluster, schema))}
                )
                if schema.shared is not None:
                    route.route.rate_limits.append(
                        flow_control.shared_limit(cluster.name, schema.name, schema.shared)
                    )
            host.routes.append(route)
    return _scope(
        names.flow_scope(cluster.name, name), [host], (names.api(cluster.name),), secret=bool(token)
    )


def _onward(cluster: ir.ApiCluster, subset: str, kind: str, target: str) -> Any:
    route = components.Route(match=_any())
    said = route.match.headers.add(name=WAY)
    if subset or kind:
        said.string_match.exact = subset + kind
    else:
        said.present_match = False
    forwarded(route, cluster, target)
    if kind in ("", "l"):
        route.route.retry_policy.CopyFrom(_again(f"{_UNSEEN},reset"))
    if subset:
        chosen = route.route.metadata_match.filter_metadata["envoy.lb"]
        chosen.update({clusters.SUBSET: subset})
    return route


def _again(reasons: str) -> Any:
    made = components.RetryPolicy(retry_on=reasons, num_retries=number(_AGAIN))
    return retries.elsewhere(made)


def forwarded(route: Any, cluster: ir.ApiCluster, target: str) -> None:
    """Send a route's requests on, for as long as they take."""
    route.route.cluster = target
    route.route.timeout.CopyFrom(quoting.seconds(0))
    route.route.idle_timeout.CopyFrom(quoting.seconds(0))
    path = clusters.prefix(cluster)
    if path:
        route.route.prefix_rewrite = quoting.path(path) + "/"


def reviews(cluster: ir.ApiCluster, token: str) -> Resource:
    """Give the scope of what the reviewer asks a cluster: reviews, as the gateway itself."""
    host = components.VirtualHost(name="reviews", domains=["*"])
    host.request_headers_to_remove.extend(_OURS)
    if token:
        host.request_headers_to_add.append(headers.option("authorization", clusters.bearer(token)))
    host.retry_policy.CopyFrom(retries.harmless())
    for path in REVIEWS:
        route = host.routes.add(match=components.RouteMatch(path=path))
        method = route.match.headers.add(name=":method")
        method.string_match.exact = "POST"
        forwarded(route, cluster, names.servers(cluster.name))
        route.route.timeout.CopyFrom(quoting.seconds(10))
        if route.route.prefix_rewrite:
            route.route.prefix_rewrite = quoting.path(clusters.prefix(cluster)) + path
    refused = host.routes.add(match=_any())
    refused.direct_response.status = 403
    name = names.upstream_scope(cluster.name)
    return _scope(name, [host], (names.api(cluster.name),), secret=bool(token))


def _any() -> Any:
    return components.RouteMatch(prefix="/")


def _host(name: str) -> str:
    return quoting.hostname(name).lower()


def _answering(domains: list[str], code: int, said: str) -> Any:
    host = components.VirtualHost(name=str(code), domains=domains)
    host.typed_per_filter_config[names.SCRIPT].CopyFrom(_silent())
    route = host.routes.add(match=_any())
    route.direct_response.status = code
    route.direct_response.body.inline_string = said
    return host


def _silent() -> Any:
    return packed(lua_pb2.LuaPerRoute(disabled=True))


def _scope(
    name: str, hosts: Iterable[Any], origins: tuple[str, ...] = (), *, secret: bool = False
) -> Resource:
    made = scoped_route_pb2.ScopedRouteConfiguration(
        name=name,
        route_configuration=route_pb2.RouteConfiguration(
            name=name,
            virtual_hosts=hosts,
            ignore_port_in_host_matching=True,
            validate_clusters=truth(False),
        ),
    )
    made.key.fragments.add(string_key=name)
    return Resource.make(SCOPE, name, written(made), origins=origins, secret=secret)
