"""Fragments of kube-apiservers, one for each resource that changes independently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gatehouse.compiler.backends.envoy import names
from gatehouse.compiler.backends.envoy.fragments import Fragment, Fragments
from gatehouse.compiler.backends.envoy.kube_apiserver import (
    clusters,
    filter_chains,
    internal_clusters,
    routes,
)
from gatehouse.compiler.backends.failures import reason
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import NO_ORIGIN, Origin
from gatehouse.dataplane.xds.resources import Resource

_PREFIX = "api/"


class Apis:
    """The kube-apiservers of one gateway."""

    def __init__(self, fragments: Fragments) -> None:
        self._fragments = fragments
        self._planned: set[str] = set()
        self._keys: set[str] = set()

    def plan(self, gateway: ir_gateway.Gateway) -> None:
        """Plan the fragments of ``gateway.apis`` and drop obsolete ones."""
        self._planned = set()
        tokens = {item.name: item.content for item in gateway.secrets}
        for cluster in _clusters(gateway.apis):
            # Limits and policies are separate from servers: they change independently.
            secret = tokens.get(cluster.token)
            token = secret.reveal().decode("utf-8", "surrogateescape").strip() if secret else ""
            self._put(f"cluster/{cluster.name}", cluster.origin, (cluster, token), _onward)
        for listener in gateway.apis:
            for cluster in listener.clusters:
                key = f"arrival/{listener.port}/{cluster.name}"
                self._put(key, cluster.origin, (listener.port, cluster), _arrival)
            self._put_port(listener, gateway)
        if gateway.apis:
            self._put("socket", NO_ORIGIN, (), _socket)
        for item in sorted({item.counter for item in gateway.apis if item.counter}):
            self._put(
                f"counter/{item}",
                NO_ORIGIN,
                (item,),
                lambda where: [internal_clusters.counter(where)],
            )
        for key in self._keys - self._planned:
            self._fragments.drop(key)
        self._keys = self._planned

    def _put(
        self, key: str, origin: Origin, inputs: tuple[Any, ...], make: Callable[..., list[Resource]]
    ) -> None:
        self._planned.add(key := _PREFIX + key)
        before = self._fragments.get(key)
        if before is not None and before.inputs == inputs:
            return
        try:
            fragment = Fragment(tuple(make(*inputs)), _unsupported(inputs), inputs=inputs)
        except Exception as error:
            fragment = Fragment((), (Unsupported(origin, reason(error)),), inputs=inputs)
        self._fragments.put(key, fragment)

    def _put_port(self, listener: ir.ApiListener, gateway: ir_gateway.Gateway) -> None:
        """Plan a listener; regenerate it only if a chain is added, removed or changed."""
        self._planned.add(key := f"{_PREFIX}port/{listener.port}")
        chain_inputs = [(each.name, each.hosts, len(filter_chains.certificates(listener, each)))
                 for each in listener.clusters]  # fmt: skip
        inputs = (
            listener.port, len(listener.certificates), listener.counter, gateway.bind_address,
            gateway.edge, chain_inputs, {each.name for each in listener.clusters},
        )  # fmt: skip
        before = self._fragments.get(key)
        if before is None or before.inputs != inputs:
            self._fragments.put(key, _port(listener, gateway, inputs))


def _clusters(listeners: Iterable[ir.ApiListener]) -> Iterator[ir.ApiCluster]:
    """Yield each cluster once: several ports serve the same servers and share their limits."""
    by_name = {each.name: each for listener in listeners for each in listener.clusters}
    yield from by_name.values()


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


def _arrival(port: int, cluster: ir.ApiCluster) -> list[Resource]:
    return [routes.arrival(port, cluster)]


def _unsupported(inputs: tuple[Any, ...]) -> tuple[Unsupported, ...]:
    if not isinstance(inputs[0] if inputs else None, ir.ApiCluster):
        return ()
    api_cluster, token = inputs
    reasons = clusters.unsupported(api_cluster)
    if api_cluster.token and not token:
        reasons = [*reasons, "clientConfig.bearerToken: secret not found"]
    return tuple(Unsupported(api_cluster.origin, each, served=True) for each in reasons)


def _port(
    listener: ir.ApiListener, gateway: ir_gateway.Gateway, inputs: tuple[Any, ...]
) -> Fragment:
    chains, unsupported = [], []
    for cluster in listener.clusters:
        # Without a certificate there is no chain: handshakes fail.
        if not filter_chains.certificates(listener, cluster):
            unsupported.append(Unsupported(cluster.origin, "no server certificate"))
            continue
        try:
            chains.append(filter_chains.cluster_chain(listener, cluster, gateway.edge))
        except Exception as error:
            unsupported.append(Unsupported(cluster.origin, reason(error)))
    resources: list[Resource] = []
    if chains or listener.certificates:
        resources.append(filter_chains.listener(listener, chains, gateway))
    if listener.certificates:
        resources.append(routes.unknown_hosts(listener.port, listener))
    return Fragment(tuple(resources), tuple(unsupported), inputs=inputs)


def certificates(gateway: ir_gateway.Gateway) -> Iterator[tuple[str, str]]:
    """Yield the name of every certificate secret, and of the certificate in it."""
    for listener in gateway.apis:
        for index, certificate in enumerate(listener.certificates):
            yield names.server_certificate(names.api_chain(listener.port, ""), index), certificate
        for cluster in listener.clusters:
            chain = names.api_chain(listener.port, cluster.name)
            for index, certificate in enumerate(filter_chains.certificates(listener, cluster)):
                yield names.server_certificate(chain, index), certificate
    for cluster in _clusters(gateway.apis):
        if cluster.tls is not None and cluster.tls.certificate:
            name = names.backend_certificate(names.servers(cluster.name))
            yield name, cluster.tls.certificate


def trust(gateway: ir_gateway.Gateway) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of every CA secret, of its CA certificates, and whether it is optional.

    A chain refers to the CA certificates of its clients even if there are none.
    """
    for listener in gateway.apis:
        for cluster in listener.clusters:
            if filter_chains.certificates(listener, cluster):
                yield names.api_clients(listener.port, cluster.name), cluster.client_trust, True
    for cluster in _clusters(gateway.apis):
        if cluster.tls is not None and cluster.tls.trust:
            yield names.backend_trust(names.servers(cluster.name)), cluster.tls.trust, False
