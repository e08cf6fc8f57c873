"""Fragments of kube-apiservers, one for each resource that changes independently."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from gatehouse.compiler.backends.configuration import Entries, secret_files
from gatehouse.compiler.backends.envoy import names
from gatehouse.compiler.backends.envoy.kube_apiserver import (
    clusters,
    filter_chains,
    internal_clusters,
    routes,
)
from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.fragments import Fragment, failed
from gatehouse.compiler.backends.source import Source, configuration
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.xds.resources import Resource
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

ArrivalKey = tuple[int, str]
"""Port and name of a cluster."""


def tables(ask: Ask, gateway: Source) -> tuple[Table[Any, Fragment[Resource]], ...]:
    """Return all fragments of the kube-apiservers of a gateway."""
    return (
        ask.map_keys(_cluster, clusters_by_name, gateway, failed),
        ask.map_keys(_arrival, _arrivals, gateway, failed),
        ask.map_keys(_port, _listeners, gateway, failed),
        ask(_shared, gateway),
    )


def clusters_by_name(ask: Ask, gateway: Source) -> Table[str, ir.ApiCluster]:
    """Return each cluster once: several ports serve the same servers and share their limits."""
    apis = configuration(ask, gateway).api_listeners
    return Table((each.name, each) for each in _clusters(apis))


def _clusters(listeners: Iterable[ir.ApiListener]) -> Collection[ir.ApiCluster]:
    return {each.name: each for listener in listeners for each in listener.clusters}.values()


def _cluster(ask: Ask, which: tuple[Source, str]) -> Fragment[Resource] | None:
    """Return the resources towards a cluster. Limits and policies are separate from servers: they
    change independently."""
    gateway, name = which
    cluster = ask.entry(clusters_by_name, gateway, name)
    if cluster is None:
        return None
    secret = Entries(ask, secret_files, gateway).get(cluster.token)
    content = secret.content.reveal() if secret is not None else b""
    token = content.decode("utf-8", "surrogateescape").strip()
    try:
        return Fragment(tuple(_onward(cluster, token)), _unsupported(cluster, token))
    except Exception as error:
        return Fragment((), (unserved(cluster.origin, error),))


def _arrivals(ask: Ask, gateway: Source) -> Table[ArrivalKey, ir.ApiCluster]:
    return Table(
        ((listener.port, cluster.name), cluster)
        for listener in configuration(ask, gateway).api_listeners
        for cluster in listener.clusters
    )


def _arrival(ask: Ask, which: tuple[Source, ArrivalKey]) -> Fragment[Resource] | None:
    gateway, key = which
    cluster = ask.entry(_arrivals, gateway, key)
    if cluster is None:
        return None
    try:
        return Fragment((routes.arrival(key[0], cluster),))
    except Exception as error:
        return Fragment((), (unserved(cluster.origin, error),))


def _shared(ask: Ask, gateway: Source) -> Table[str, Fragment[Resource]]:
    """Return what all kube-apiservers share: the sidecar, and rate limit services by address."""
    apis = configuration(ask, gateway).api_listeners
    counters = {api.counter for api in apis if api.counter}
    fragments = {each: Fragment((internal_clusters.counter(each),)) for each in counters}
    if apis:
        fragments[""] = Fragment(tuple(_socket()))
    return Table(fragments)


def _onward(cluster: ir.ApiCluster, token: str) -> list[Resource]:
    return [
        *clusters.resources(cluster, token),
        *routes.flows(cluster, token),
        routes.reviews(cluster, token),
    ]


def _socket() -> list[Resource]:
    return [
        internal_clusters.sidecar_config(),
        internal_clusters.listener(),
        internal_clusters.reviewer(),
    ]


def _unsupported(cluster: ir.ApiCluster, token: str) -> tuple[Unsupported, ...]:
    reasons = clusters.unsupported(cluster)
    if cluster.token and not token:
        reasons = [*reasons, "clientConfig.bearerToken: secret not found"]
    return tuple(Unsupported(cluster.origin, each, served=True) for each in reasons)


def _listeners(ask: Ask, gateway: Source) -> Table[int, ir.ApiListener]:
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
        for listener in configuration(ask, gateway).api_listeners
    )


def _chain_of(listener: ir.ApiListener, cluster: ir.ApiCluster) -> ir.ApiCluster:
    own = filter_chains.certificates(listener, cluster)
    return ir.ApiCluster(
        cluster.name, cluster.hosts, (), (), certificates=_anonymous(own), origin=cluster.origin
    )


def _anonymous(certificates: Collection[str]) -> tuple[str, ...]:
    """Return as many placeholders: a chain depends on the number of its certificates only."""
    return ("",) * len(certificates)


def _settings(ask: Ask, gateway: Source) -> ir_gateway.Gateway:
    """Return a gateway without listeners: its name and settings."""
    found = configuration(ask, gateway)
    return ir_gateway.Gateway(gateway.name, found.bind_address, settings=found.settings)


def _port(ask: Ask, which: tuple[Source, int]) -> Fragment[Resource] | None:
    gateway, number = which
    listener, settings = ask.entry(_listeners, gateway, number), ask(_settings, gateway)
    if listener is None:
        return None
    chains, unsupported = [], []
    for cluster in listener.clusters:
        # Without a certificate there is no chain: handshakes fail.
        if not filter_chains.certificates(listener, cluster):
            unsupported.append(Unsupported(cluster.origin, "no server certificate"))
            continue
        try:
            chains.append(filter_chains.cluster_chain(listener, cluster, settings.settings))
        except Exception as error:
            unsupported.append(unserved(cluster.origin, error))
    resources: list[Resource] = []
    if chains or listener.certificates:
        resources.append(filter_chains.listener(listener, chains, settings))
    if listener.certificates:
        resources.append(routes.unknown_hosts(number, listener))
    return Fragment(tuple(resources), tuple(unsupported))


def certificates(gateway: ir_gateway.Gateway) -> Iterator[tuple[str, str]]:
    """Yield the name of every certificate secret, and of the certificate in it."""
    for listener in gateway.api_listeners:
        for index, certificate in enumerate(listener.certificates):
            yield names.server_certificate(names.api_chain(listener.port, ""), index), certificate
        for cluster in listener.clusters:
            chain = names.api_chain(listener.port, cluster.name)
            for index, certificate in enumerate(filter_chains.certificates(listener, cluster)):
                yield names.server_certificate(chain, index), certificate
    for cluster in _clusters(gateway.api_listeners):
        if cluster.tls is not None and cluster.tls.certificate:
            name = names.backend_certificate(names.servers(cluster.name))
            yield name, cluster.tls.certificate


def trust(gateway: ir_gateway.Gateway) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of every CA secret, of its CA certificates, and whether it is optional.

    A chain refers to the CA certificates of its clients even if there are none.
    """
    for listener in gateway.api_listeners:
        for cluster in listener.clusters:
            if filter_chains.certificates(listener, cluster):
                yield names.api_clients(listener.port, cluster.name), cluster.client_trust, True
    for cluster in _clusters(gateway.api_listeners):
        if cluster.tls is not None and cluster.tls.trust:
            yield names.backend_trust(names.servers(cluster.name)), cluster.tls.trust, False
