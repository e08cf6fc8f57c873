"""Fragments of kube-apiservers, one for each resource that changes independently."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from gatehouse.compiler.backends.configuration import Entries, secret_files
from gatehouse.compiler.backends.envoy import names, shared_limits, traces
from gatehouse.compiler.backends.envoy.kube_apiserver import (
    clusters,
    filter_chains,
    internal_clusters,
    routes,
)
from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.fragments import Fragment, entry_fragment, failed_fragment
from gatehouse.compiler.backends.source import GatewaySource, capabilities, gateway_configuration
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.xds import runtime_limits
from gatehouse.dataplane.xds.resources import XdsResource
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

ArrivalKey = tuple[int, str]
"""Port and name of a cluster."""


def tables(ask: Ask, gateway: GatewaySource) -> tuple[Table[Any, Fragment[XdsResource]], ...]:
    """Return all fragments of the kube-apiservers of a gateway."""
    return (
        ask.map_keys(_cluster, clusters_by_name, gateway, failed_fragment),
        ask.map_keys(_arrival, _arrivals, gateway, failed_fragment),
        ask.map_keys(_port, _listeners, gateway, failed_fragment),
        ask(_shared, gateway),
    )


def clusters_by_name(ask: Ask, gateway: GatewaySource) -> Table[str, ir.ApiCluster]:
    """Return each cluster once: several ports serve the same servers and share their limits."""
    apis = gateway_configuration(ask, gateway).api_listeners
    return Table((cluster.name, cluster) for cluster in _clusters(apis))


def _clusters(listeners: Iterable[ir.ApiListener]) -> Collection[ir.ApiCluster]:
    return {
        cluster.name: cluster for listener in listeners for cluster in listener.clusters
    }.values()


def _cluster(ask: Ask, gateway: GatewaySource, name: str) -> Fragment[XdsResource] | None:
    """Return the resources towards a cluster. Limits and policies are separate from servers: they
    change independently."""
    cluster = ask.entry(clusters_by_name, gateway, key=name)
    if cluster is None:
        return None
    secret = Entries(ask, secret_files, gateway).get(cluster.token)
    content = secret.content.reveal() if secret is not None else b""
    token = content.decode("utf-8", "surrogateescape").strip()
    try:
        runtime = capabilities(ask, gateway).runtime_limits
        resources = _onward(cluster, token, runtime=runtime)
        return Fragment(tuple(resources), _unsupported(cluster, token))
    except Exception as error:
        return Fragment((), (unserved(cluster.origin, error),))


def _arrivals(ask: Ask, gateway: GatewaySource) -> Table[ArrivalKey, ir.ApiCluster]:
    return Table(
        ((listener.port, cluster.name), cluster)
        for listener in gateway_configuration(ask, gateway).api_listeners
        for cluster in listener.clusters
    )


def _arrival(ask: Ask, _gateway: GatewaySource, key: ArrivalKey) -> Fragment[XdsResource] | None:
    port, _ = key

    def resources(cluster: ir.ApiCluster) -> list[XdsResource]:
        return [routes.arrival_scope(port, cluster)]

    return entry_fragment(ask, _arrivals, _gateway, key, resources)


def _shared(ask: Ask, gateway: GatewaySource) -> Table[str, Fragment[XdsResource]]:
    """Return what all kube-apiservers share: the sidecar, and rate limit services by address."""
    configuration = gateway_configuration(ask, gateway)
    apis, export = configuration.api_listeners, configuration.settings.traces
    counters = {*(api.counter for api in apis), configuration.counter} - {""}
    fragments = {
        counter: Fragment((shared_limits.rate_limit_cluster(counter),)) for counter in counters
    }
    if apis:
        fragments[""] = Fragment(tuple(_socket()))
    if apis and capabilities(ask, gateway).runtime_limits:
        limits: dict[str, int] = {}
        shared: dict[str, runtime_limits.SharedLimit] = {}
        for cluster in _clusters(apis):
            limits |= clusters.runtime_limits(cluster)
            shared |= clusters.shared_limits(cluster)
        fragments["limits"] = Fragment(
            (runtime_limits.limits_resource(limits, shared, traces.runtime_values(export)),)
        )
    return Table(fragments)


def _onward(cluster: ir.ApiCluster, token: str, *, runtime: bool) -> list[XdsResource]:
    return [
        *clusters.cluster_resources(cluster, token, runtime=runtime),
        *routes.flows(cluster),
        routes.reviews(cluster),
    ]


def _socket() -> list[XdsResource]:
    return [
        internal_clusters.sidecar_config(),
        internal_clusters.reviewer_listener(),
        internal_clusters.reviewer(),
    ]


def _unsupported(cluster: ir.ApiCluster, token: str) -> tuple[Unsupported, ...]:
    reasons = clusters.unsupported_servers(cluster)
    if cluster.token and not token:
        reasons = [*reasons, "clientConfig.bearerToken: secret not found"]
    return tuple(Unsupported(cluster.origin, reason, served=True) for reason in reasons)


def _listeners(ask: Ask, gateway: GatewaySource) -> Table[int, ir.ApiListener]:
    """Return the listeners with only those fields of their clusters on which chains depend."""
    return Table(
        (
            listener.port,
            msgspec.structs.replace(
                listener,
                clusters=tuple(_chain_of(listener, cluster) for cluster in listener.clusters),
                certificates=_anonymous(listener.certificates),
            ),
        )
        for listener in gateway_configuration(ask, gateway).api_listeners
    )


def _chain_of(listener: ir.ApiListener, cluster: ir.ApiCluster) -> ir.ApiCluster:
    own = filter_chains.server_certificates(listener, cluster)
    return ir.ApiCluster(
        cluster.name, cluster.hosts, (), (), certificates=_anonymous(own), origin=cluster.origin
    )


def _anonymous(certificates: Collection[str]) -> tuple[str, ...]:
    """Return as many placeholders: a chain depends on the number of its certificates only."""
    return ("",) * len(certificates)


def _settings(ask: Ask, gateway: GatewaySource) -> ir_gateway.GatewayConfiguration:
    """Return a gateway without listeners: its name and settings."""
    configuration = gateway_configuration(ask, gateway)
    return ir_gateway.GatewayConfiguration(
        gateway.name, configuration.bind_address, settings=configuration.settings
    )


def _port(ask: Ask, gateway: GatewaySource, number: int) -> Fragment[XdsResource] | None:
    listener, settings = ask.entry(_listeners, gateway, key=number), ask(_settings, gateway)
    if listener is None:
        return None
    chains, unsupported = [], []
    for cluster in listener.clusters:
        # Without a certificate there is no chain: handshakes fail.
        if not filter_chains.server_certificates(listener, cluster):
            unsupported.append(Unsupported(cluster.origin, "no server certificate"))
            continue
        try:
            chains.append(filter_chains.cluster_chain(listener, cluster, settings.settings))
        except Exception as error:
            unsupported.append(unserved(cluster.origin, error))
    resources: list[XdsResource] = []
    if chains or listener.certificates:
        resources.append(filter_chains.build_listener(listener, chains, settings))
    if listener.certificates:
        resources.append(routes.unknown_hosts(number, listener))
    return Fragment(tuple(resources), tuple(unsupported))


def cluster_certificate_secrets(
    gateway: ir_gateway.GatewayConfiguration,
) -> Iterator[tuple[str, str]]:
    """Yield the name of every certificate secret, and of the certificate in it."""
    for listener in gateway.api_listeners:
        for index, certificate in enumerate(listener.certificates):
            yield names.server_certificate(names.api_chain(listener.port, ""), index), certificate
        for cluster in listener.clusters:
            chain = names.api_chain(listener.port, cluster.name)
            for index, certificate in enumerate(
                filter_chains.server_certificates(listener, cluster)
            ):
                yield names.server_certificate(chain, index), certificate
    for cluster in _clusters(gateway.api_listeners):
        if cluster.tls is not None and cluster.tls.certificate:
            name = names.backend_certificate(names.servers_cluster_name(cluster.name))
            yield name, cluster.tls.certificate


def cluster_trust_secrets(
    gateway: ir_gateway.GatewayConfiguration,
) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of every CA secret, of its CA certificates, and whether it is optional.

    A chain refers to the CA certificates of its clients even if there are none.
    """
    for listener in gateway.api_listeners:
        for cluster in listener.clusters:
            if filter_chains.server_certificates(listener, cluster):
                yield names.api_clients(listener.port, cluster.name), cluster.client_trust, True
    for cluster in _clusters(gateway.api_listeners):
        if cluster.tls is not None and cluster.tls.trust:
            yield (
                names.backend_trust(names.servers_cluster_name(cluster.name)),
                cluster.tls.trust,
                False,
            )
