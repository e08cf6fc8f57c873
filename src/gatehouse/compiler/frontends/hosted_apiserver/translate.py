"""Translation of HostedAPIServers to additions to a Gateway's IR.

A hostname that a TLSRoute also has belongs to the HostedAPIServer, because its list of allowed
sources must not be bypassed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

import msgspec

from gatehouse.compiler.frontends.contribution import Contribution
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import ListenerKey
from gatehouse.compiler.frontends.gateway_api.attachment.virtual_hosts import (
    HostnameKey,
    entries_of_protocol,
)
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import listener_specs
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import (
    HTTP_CONNECT,
    PROXY_PROTOCOL,
)
from gatehouse.compiler.frontends.gateway_api.listeners.trusted_proxies import trusted
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    GatewayCluster,
    service_cluster,
)
from gatehouse.compiler.frontends.gateway_api.translate import (
    gateway_clusters,
    gateway_stream_hosts,
    gateway_streams,
)
from gatehouse.compiler.frontends.hosted_apiserver.attachment import (
    HostedAttachment,
    ListenerAttachment,
    attachment_of,
)
from gatehouse.compiler.frontends.hosted_apiserver.claims import parsed_spec
from gatehouse.compiler.frontends.hosted_apiserver.inputs import hosted_of_gateway
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.grouping import entry_count
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

_Named = tuple[str, Key]
"""A hostname and the HostedAPIServer that serves it."""

_Address = tuple[int, str]
"""A port, and the advertised address or CONNECT destination that it serves."""

_AddressOf = Callable[[ListenerAttachment], str]
"""Returns the address of an attachment; empty: not of this kind."""

_ADVERTISED: Callable[[ListenerAttachment], str] = attrgetter("address")
_CONNECT: Callable[[ListenerAttachment], str] = attrgetter("destination")

_Cluster = tuple[str, ClusterKey]


def with_hosted_apiservers(
    ask: Ask, key: Key, gateway: ir.GatewayConfiguration
) -> ir.GatewayConfiguration:
    """Return the IR of a Gateway with the hostnames and clusters of its HostedAPIServers.

    ``gateway``: the IR from its routes.
    """
    if not ask.read(hosted_of_gateway(key)):
        return gateway
    return msgspec.structs.replace(
        gateway,
        l4_listeners=ask(_streams, key),
        clusters=ask(_clusters, key).values(),
    )


def hosted_contribution(ask: Ask, key: Key) -> Contribution:
    """Return the listeners for node proxies of hosted clusters."""
    return Contribution(
        proxy_protocol_listeners=ask(gateway_tunnels, key),
        http_connect_listeners=ask(gateway_connect_listeners, key),
    )


def attached_hosted(ask: Ask, key: Key) -> dict[ListenerKey, int]:
    """Return the number of objects attached to each listener of a Gateway."""
    return dict(ask(_counts, key))


def _counts(ask: Ask, key: Key) -> Table[ListenerKey, int]:

    def listeners_of(_: Key, hosted: HostedAttachment) -> Iterable[ListenerKey]:
        return (
            attachment.listener for attachment in hosted.attachments if attachment.gateway == key
        )

    return ask.group_by(ask(_hosted_attachments, key), listeners_of, entry_count)


def gateway_tunnels(ask: Ask, key: Key) -> tuple[ir.ProxyProtocolListener, ...]:
    """Return the PROXY protocol listeners of a Gateway, sorted by port."""
    ports = {
        s.port for s in ask(listener_specs, key) if s.protocol == PROXY_PROTOCOL and s.accepted
    }
    proxies = ask(trusted, key)
    if isinstance(proxies, str) or not ports:
        return ()
    destinations = ask.map(_destination, ask(_addresses, key, _ADVERTISED))
    return tuple(
        ir.ProxyProtocolListener(
            port, destinations.between((port, ""), (port + 1, "")).values(), proxies
        )
        for port in sorted(ports)
    )


def gateway_connect_listeners(ask: Ask, key: Key) -> tuple[ir.HttpConnectListener, ...]:
    """Return the HTTP CONNECT listeners of a Gateway, sorted by port."""
    ports = {s.port for s in ask(listener_specs, key) if s.protocol == HTTP_CONNECT and s.accepted}
    proxies = ask(trusted, key)
    if isinstance(proxies, str) or not ports:
        return ()
    destinations = ask.map(_connect_destination, ask(_connect_names, key))
    return tuple(
        ir.HttpConnectListener(
            port, destinations.between((port, ""), (port + 1, "")).values(), proxies
        )
        for port in sorted(ports)
    )


def _hosted_attachments(ask: Ask, key: Key) -> Table[Key, HostedAttachment]:
    return ask.map(attachment_of, ask.read(hosted_of_gateway(key)))


def _streams(ask: Ask, key: Key) -> tuple[ir.L4Listener, ...]:
    hosts = ask(_hosts, key)
    return tuple(
        ir.L4Listener(port, protocol, entries_of_protocol(hosts, port, protocol).values())
        for port, protocol in (
            (gateway_stream.port, gateway_stream.protocol)
            for gateway_stream in ask(gateway_streams, key)
        )
    )


def _hosts(ask: Ask, key: Key) -> Table[HostnameKey, ir.L4Host]:
    return ask.merge((ask.map(_host, ask(_names, key)), ask(gateway_stream_hosts, key)))


def _names(ask: Ask, key: Key) -> Table[HostnameKey, _Named]:

    def names_of(_: Key, hosted: HostedAttachment) -> Iterable[HostnameKey]:
        for attachment in hosted.attachments:
            if attachment.gateway == key and attachment.host:
                yield (attachment.port, "TLS", attachment.host, attachment.listener)

    return ask.group_by(
        ask(_hosted_attachments, key), names_of, lambda name, owners: (name[2], owners[0])
    )


def _host(ask: Ask, named: _Named) -> ir.L4Host:
    host, owner = named
    hosted = ask(attachment_of, owner)
    backends = (ir.L4Backend(cluster_name(hosted.cluster)),) if hosted.cluster else ()
    sources = ask(parsed_spec, owner).sources
    return ir.L4Host(host, backends, sources=sources, origin=object_of(owner))


def _addresses(ask: Ask, key: Key, address_of: _AddressOf) -> Table[_Address, Key]:
    """Return the first HostedAPIServer with each address of one kind."""

    def addresses_of(_: Key, hosted: HostedAttachment) -> Iterable[_Address]:
        for attachment in hosted.attachments:
            address = address_of(attachment)
            if attachment.gateway == key and address:
                yield (attachment.port, address)

    return ask.group_by(ask(_hosted_attachments, key), addresses_of, lambda _, owners: owners[0])


def _destination(ask: Ask, owner: Key) -> ir.Destination | None:
    hosted, attachment = ask(parsed_spec, owner), ask(attachment_of, owner)
    if attachment.cluster is None:
        return None
    name = cluster_name(attachment.cluster)
    return ir.Destination(hosted.address, hosted.port, name, hosted.sources, object_of(owner))


def _connect_names(ask: Ask, key: Key) -> Table[_Address, _Named]:
    return ask.derive(ask(_addresses, key, _CONNECT), lambda address, owner: (address[1], owner))


def _connect_destination(ask: Ask, named: _Named) -> ir.ConnectDestination | None:
    name, owner = named
    cluster = ask(attachment_of, owner).cluster
    if cluster is None:
        return None
    sources = ask(parsed_spec, owner).sources
    return ir.ConnectDestination(name, cluster_name(cluster), sources, object_of(owner))


def _clusters(ask: Ask, key: Key) -> Table[_Cluster, Cluster]:
    own = ask.map(passthrough_cluster, ask(_clusters_in_use, key))
    return ask.merge((own, ask(gateway_clusters, key)))


def _clusters_in_use(ask: Ask, key: Key) -> Table[_Cluster, GatewayCluster]:

    def clusters_of(_: Key, hosted: HostedAttachment) -> Iterable[_Cluster]:
        if hosted.cluster is not None and any(
            attachment.gateway == key for attachment in hosted.attachments
        ):
            yield (cluster_name(hosted.cluster), hosted.cluster)

    return ask.group_by(
        ask(_hosted_attachments, key), clusters_of, lambda named, _: (key, named[1])
    )


def cluster_name(key: ClusterKey) -> str:
    """Return the name of a Service's cluster for HostedAPIServers. Routes have another one."""
    return f"h{key.name[1:]}"


def passthrough_cluster(ask: Ask, place: GatewayCluster) -> Cluster:
    """Return the cluster of a Service for TLS passthrough. BackendTLSPolicies do not apply."""
    cluster = ask(service_cluster, *place)
    return Cluster(
        cluster_name(place[1]),
        cluster.endpoints,
        "tcp",
        settings=cluster.settings,
        origin=cluster.origin,
    )
