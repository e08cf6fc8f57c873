"""Traffic that a Gateway serves, as a table of entries that can be compared. No I/O.

An entry is a port, a hostname on a port, or a match of a route. It has a target: where the traffic
goes. Endpoints are no part of it, since they change without a change of objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.gateway import GatewayConfiguration, L4Host, Listener
from gatehouse.dataplane.origin import NO_ORIGIN, Origin

_PORT = re.compile(r"-(\d+)-[0-9a-f]+$")

EntryType = Literal["port", "host", "route"]


class TrafficEntry(msgspec.Struct, frozen=True, order=True):
    """A port, host or match that a Gateway serves. The same entry may get another target."""

    gateway: str
    """``namespace/name``."""
    port: int
    protocol: str
    type: EntryType
    host: str = ""
    """Hostname or destination; empty: all others."""
    match: str = ""
    """Match of a route; empty for all requests of the host."""


class TrafficTarget(msgspec.Struct, frozen=True):
    """Destination of the traffic of an entry."""

    text: str = ""
    """Backends with weights, or the answer of the Gateway; empty for ports and hosts."""
    object: str = ""
    """Object that the entry comes from; empty for ports."""
    rest: Any = None
    """Everything else about the entry, such as filters and policies, for comparisons."""


Traffic = Mapping[TrafficEntry, TrafficTarget]


class TrafficChange(msgspec.Struct, frozen=True, rename="camel"):
    """A difference between the traffic before and after a change of objects."""

    change: Literal["added", "removed", "target", "settings"]
    """``target``: other backends. ``settings``: the same backends, with other filters, policies or
    timeouts."""
    entry: TrafficEntry
    before: str = ""
    """Target before."""
    after: str = ""
    """Target after."""
    object: str = ""
    """Object that the entry comes from now, or came from."""


def compare_traffic(before: Traffic, after: Traffic) -> tuple[TrafficChange, ...]:
    """Return the differences, sorted. Routes of an added or removed host or port are listed too."""
    changes = []
    for entry in sorted({*before, *after}):
        old, new = before.get(entry), after.get(entry)
        if old is None and new is not None:
            changes.append(TrafficChange("added", entry, "", new.text, new.object))
        elif new is None and old is not None:
            changes.append(TrafficChange("removed", entry, old.text, "", old.object))
        elif old is not None and new is not None and old.text != new.text:
            changes.append(TrafficChange("target", entry, old.text, new.text, new.object))
        elif old is not None and new is not None and old.rest != new.rest:
            changes.append(TrafficChange("settings", entry, old.text, new.text, new.object))
    return tuple(changes)


def traffic_of(gateway: GatewayConfiguration) -> dict[TrafficEntry, TrafficTarget]:
    """Return everything that a Gateway serves. Of equal matches the first one counts."""
    result: dict[TrafficEntry, TrafficTarget] = {}
    clusters = {cluster.name: cluster for cluster in gateway.clusters}
    for entry, target in _entries(gateway, clusters):
        result.setdefault(entry, target)
    return result


_Clusters = Mapping[str, http.Cluster]
_Entries = Iterator[tuple[TrafficEntry, TrafficTarget]]


def _entries(gateway: GatewayConfiguration, clusters: _Clusters) -> _Entries:
    name = gateway.name
    for listener in gateway.listeners:
        yield from _http(name, listener, clusters)
    for l4 in gateway.l4_listeners:
        yield TrafficEntry(name, l4.port, l4.protocol, "port"), TrafficTarget()
        for host in l4.hosts:
            entry = TrafficEntry(name, l4.port, l4.protocol, "route", host.hostname)
            rest = (host.sources, bool(host.certificates))
            yield entry, TrafficTarget(l4_text(host, clusters), _name(host.origin), rest)
    for api in gateway.api_listeners:
        yield TrafficEntry(name, api.port, "HTTPS", "port"), TrafficTarget()
        for cluster in api.clusters:
            servers = ", ".join(server.name for server in cluster.servers) or "no server"
            dispatch = (cluster.policies, cluster.schemas, cluster.denied)
            target = TrafficTarget(servers, f"UpstreamCluster {cluster.name}", dispatch)
            for hostname in cluster.hosts:
                yield TrafficEntry(name, api.port, "HTTPS", "route", hostname), target
    yield from _destinations(gateway, clusters)


def _destinations(gateway: GatewayConfiguration, clusters: _Clusters) -> _Entries:
    name = gateway.name
    for proxied in gateway.proxy_protocol_listeners:
        yield TrafficEntry(name, proxied.port, "PROXY", "port"), TrafficTarget()
        for item in proxied.destinations:
            entry = TrafficEntry(
                name, proxied.port, "PROXY", "route", f"{item.address}:{item.port}"
            )
            text = _cluster(clusters, item.cluster)
            yield entry, TrafficTarget(text, _name(item.origin), item.sources)
    for connect in gateway.http_connect_listeners:
        yield TrafficEntry(name, connect.port, "CONNECT", "port"), TrafficTarget()
        for named in connect.destinations:
            entry = TrafficEntry(name, connect.port, "CONNECT", "route", named.name)
            text = _cluster(clusters, named.cluster)
            yield entry, TrafficTarget(text, _name(named.origin), named.sources)


def _http(name: str, listener: Listener, clusters: _Clusters) -> _Entries:
    port, protocol = listener.port, listener.protocol
    validation = listener.client_validation
    required = validation.required if validation is not None else None
    yield TrafficEntry(name, port, protocol, "port"), TrafficTarget(rest=required)
    for host in listener.virtual_hosts:
        yield TrafficEntry(name, port, protocol, "host", host.hostname), TrafficTarget()
        for route in host.routes:
            entry = TrafficEntry(
                name, port, protocol, "route", host.hostname, match_text(route.match)
            )
            own = [clusters[used] for used in sorted(route.clusters) if used in clusters]
            rest = (
                _comparable(route),
                [(cluster.name, cluster.tls, cluster.settings) for cluster in own],
            )
            target = action_text(route.action, clusters)
            yield entry, TrafficTarget(target, _name(route.origin), rest)


def _comparable(route: http.Route) -> http.Route:
    """Return a route without the names that do not matter to requests."""
    action = route.action
    if isinstance(action, http.Forward):
        backends = [msgspec.structs.replace(one, cluster="", weight=1) for one in action.backends]
        action = msgspec.structs.replace(action, backends=tuple(backends), failing=0)
    return msgspec.structs.replace(route, name="", action=action, origin=NO_ORIGIN)


def match_text(match: http.Match) -> str:
    """Return a match as text, such as ``GET /api*, header x-version: 2``."""
    path = match.path
    match path:
        case http.PathExact(value):
            text = f"= {value}"
        case http.PathPrefix(value):
            text = f"{value.rstrip('/')}/*"
        case http.PathRegex(value):
            text = f"~ {value}"
    parts = [f"{match.method} {text}" if match.method else text]
    for kind, items in (("header", match.headers), ("query parameter", match.query)):
        for item in items:
            parts.append(f"{kind} {item.name}{' ~ ' if item.regex else ': '}{item.value}")
    return ", ".join(parts)


def action_text(action: http.Action, clusters: Mapping[str, http.Cluster]) -> str:
    """Return an action as text: backends with weights, or the answer of the Gateway.

    ``clusters``: those of the Gateway, by name.
    """
    match action:
        case http.Respond(status):
            return f"answer {status}"
        case http.Redirect():
            fields = (action.scheme, action.hostname, action.port, action.path)
            parts = [str(getattr(field, "value", field)) for field in fields if field is not None]
            return " ".join([f"redirect {action.status}", *parts])
        case http.Forward():
            weights = [
                (_cluster(clusters, backend.cluster), backend.weight) for backend in action.backends
            ]
            return _weighted([*weights, *([("answer 500", action.failing)] * bool(action.failing))])


def l4_text(host: L4Host, clusters: Mapping[str, http.Cluster]) -> str:
    """Return the backends of an L4 hostname with their weights. ``clusters``: by name."""
    weights = [(_cluster(clusters, backend.cluster), backend.weight) for backend in host.backends]
    rejected = [("rejected", host.rejected)] if host.rejected else []
    return _weighted([*weights, *rejected]) or "rejected"


def _weighted(weights: list[tuple[str, int]]) -> str:
    if len(weights) == 1:
        return weights[0][0]
    return ", ".join(f"{text} (weight {weight})" for text, weight in weights)


def _cluster(clusters: _Clusters, name: str) -> str:
    cluster = clusters.get(name)
    if cluster is None:
        return name
    return f"{cluster.origin.whole}{_service_port(cluster)}"


def _service_port(cluster: http.Cluster) -> str:
    """Return the port in the name of a cluster; empty if a long name has no room for it, and for an
    InferencePool."""
    match, origin = _PORT.search(cluster.name), cluster.origin
    if match is None:
        return ""
    number, kind = int(match[1]), origin.kind
    key = ClusterKey(origin.namespace, origin.name, number, cluster.protocol, kind)
    return f":{key.port}" if key.port and key.name == cluster.name else ""


def _name(origin: Origin) -> str:
    return str(origin) if origin != NO_ORIGIN else ""
