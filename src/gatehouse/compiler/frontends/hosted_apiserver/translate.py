"""Translation of HostedAPIServers to additions to a Gateway's IR.

A hostname that a TLSRoute also has belongs to the HostedAPIServer, because its list of allowed
sources must not be bypassed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.frontends.contribution import Contribution
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import Listener
from gatehouse.compiler.frontends.gateway_api.attachment.virtual_hosts import Name, of_port
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import listener_specs
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import PROXY_PROTOCOL
from gatehouse.compiler.frontends.gateway_api.listeners.trusted_proxies import trusted
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import ClusterKey, cluster
from gatehouse.compiler.frontends.gateway_api.translate import (
    gateway_clusters,
    gateway_stream_hosts,
    gateway_streams,
)
from gatehouse.compiler.frontends.hosted_apiserver.attachment import HostedAttachment, attachment_of
from gatehouse.compiler.frontends.hosted_apiserver.claims import parsed_spec
from gatehouse.compiler.frontends.hosted_apiserver.inputs import of_gateway
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster
from gatehouse.incremental.grouping import Grouping, Union, group_by, union
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

_Named = tuple[str, Key]
"""A hostname and the HostedAPIServer that serves it."""

_Address = tuple[int, str]
_Cluster = tuple[str, ClusterKey]


def with_hosted_apiservers(ask: Ask, key: Key, gateway: ir.Gateway) -> ir.Gateway:
    """Return the IR of a Gateway with the hostnames and clusters of its HostedAPIServers.

    ``gateway``: the IR from its routes.
    """
    if not ask.read(of_gateway(key)):
        return gateway
    return msgspec.structs.replace(
        gateway,
        l4_listeners=ask(_streams, key),
        clusters=ask(_clusters, key).whole.values(),
    )


def contribution(ask: Ask, key: Key) -> Contribution:
    """Return the PROXY protocol listeners for hosted clusters."""
    return Contribution(proxy_protocol_listeners=ask(gateway_tunnels, key))


def attached(ask: Ask, key: Key) -> dict[Listener, int]:
    """Return the number of objects attached to each listener of a Gateway."""
    return dict(ask(_counts, key).groups)


def _counts(ask: Ask, key: Key) -> Grouping[Key, Key, HostedAttachment, Listener, int]:
    return group_by(ask.last(), ask(_hosted_attachments, key), _listeners_of, _count, key)


def _listeners_of(gateway: Key, _: Key, found: HostedAttachment) -> Iterable[Listener]:
    return (each.listener for each in found.attachments if each.gateway == gateway)


def _count(_: Key, __: Listener, owners: tuple[Key, ...]) -> int:
    return len(owners)


def gateway_tunnels(ask: Ask, key: Key) -> tuple[ir.ProxyProtocolListener, ...]:
    """Return the PROXY protocol listeners of a Gateway, sorted by port."""
    ports = {
        s.port for s in ask(listener_specs, key) if s.protocol == PROXY_PROTOCOL and s.accepted
    }
    proxies = ask(trusted, key)
    if isinstance(proxies, str) or not ports:
        return ()
    found = ask.map(_destination, ask(_addresses, key).groups)
    return tuple(
        ir.ProxyProtocolListener(port, found.between((port, ""), (port + 1, "")).values(), proxies)
        for port in sorted(ports)
    )


def _hosted_attachments(ask: Ask, key: Key) -> Table[Key, HostedAttachment]:
    return ask.map(attachment_of, ask.read(of_gateway(key)))


def _streams(ask: Ask, key: Key) -> tuple[ir.L4Listener, ...]:
    hosts = ask(_hosts, key).whole
    return tuple(
        ir.L4Listener(port, protocol, of_port(hosts, port, protocol).values())
        for port, protocol in ((each.port, each.protocol) for each in ask(gateway_streams, key))
    )


def _hosts(ask: Ask, key: Key) -> Union[Name, ir.L4Host]:
    own = ask.map(_host, ask(_names, key).groups)
    return union(ask.last(), (own, ask(gateway_stream_hosts, key)))


def _names(ask: Ask, key: Key) -> Grouping[Key, Key, HostedAttachment, Name, _Named]:
    return group_by(ask.last(), ask(_hosted_attachments, key), _names_of, _named, key)


def _names_of(gateway: Key, _: Key, found: HostedAttachment) -> Iterable[Name]:
    for each in found.attachments:
        if each.gateway == gateway and each.host:
            yield (each.port, "TLS", each.host, each.listener)


def _named(_: Key, name: Name, owners: tuple[Key, ...]) -> _Named:
    return name[2], owners[0]


def _host(ask: Ask, named: _Named) -> ir.L4Host:
    host, owner = named
    found = ask(attachment_of, owner)
    backends = (ir.L4Backend(cluster_name(found.cluster)),) if found.cluster else ()
    return ir.L4Host(host, backends, sources=ask(parsed_spec, owner).sources)


def _addresses(ask: Ask, key: Key) -> Grouping[Key, Key, HostedAttachment, _Address, Key]:
    return group_by(ask.last(), ask(_hosted_attachments, key), _addresses_of, _first_owner, key)


def _addresses_of(gateway: Key, _: Key, found: HostedAttachment) -> Iterable[_Address]:
    for each in found.attachments:
        if each.gateway == gateway and each.address:
            yield (each.port, each.address)


def _first_owner(_: Key, __: _Address, owners: tuple[Key, ...]) -> Key:
    return owners[0]


def _destination(ask: Ask, owner: Key) -> ir.Destination | None:
    hosted, found = ask(parsed_spec, owner), ask(attachment_of, owner)
    if found.cluster is None:
        return None
    name = cluster_name(found.cluster)
    return ir.Destination(hosted.address, hosted.port, name, hosted.sources)


def _clusters(ask: Ask, key: Key) -> Union[_Cluster, Cluster]:
    own = ask.map(passthrough_cluster, ask(_clusters_in_use, key).groups)
    return union(ask.last(), (own, ask(gateway_clusters, key)))


def _clusters_in_use(
    ask: Ask, key: Key
) -> Grouping[Key, Key, HostedAttachment, _Cluster, ClusterKey]:
    return group_by(ask.last(), ask(_hosted_attachments, key), _clusters_of, _cluster_of, key)


def _clusters_of(gateway: Key, _: Key, found: HostedAttachment) -> Iterable[_Cluster]:
    if found.cluster is not None and any(each.gateway == gateway for each in found.attachments):
        yield (cluster_name(found.cluster), found.cluster)


def _cluster_of(_: Key, named: _Cluster, __: object) -> ClusterKey:
    return named[1]


def cluster_name(key: ClusterKey) -> str:
    """Return the name of a Service's cluster for HostedAPIServers. Routes have another one."""
    return f"h{key.name[1:]}"


def passthrough_cluster(ask: Ask, key: ClusterKey) -> Cluster:
    """Return the cluster of a Service for TLS passthrough. BackendTLSPolicies do not apply."""
    found = ask(cluster, key)
    return Cluster(
        cluster_name(key), found.endpoints, "tcp", settings=found.settings, origin=found.origin
    )
