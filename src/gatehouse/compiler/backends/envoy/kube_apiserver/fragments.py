"""The build plan of kube-apiservers: a part for each thing that changes by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gatehouse.compiler.backends.envoy import names
from gatehouse.compiler.backends.envoy.fragments import Fragment, Fragments, Unsupported
from gatehouse.compiler.backends.envoy.kube_apiserver import (
    clusters,
    filter_chains,
    internal_clusters,
    routes,
)
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import Resource

_PREFIX = "api/"


class Apis:
    """The kube-apiservers of one gateway."""

    def __init__(self, fragments: Fragments) -> None:
        self._fragments = fragments
        self._wanted: set[str] = set()
        self._held: set[str] = set()

    def plan(self, gateway: ir_gateway.Gateway) -> None:
        """Plan everything of ``gateway.apis``, and drop what is not of it any more."""
        self._wanted = set()
        tokens = {each.name: each.content for each in gateway.secrets}
        for cluster in _clusters(gateway.apis):
            # What a cluster is asked for, and by whom, is one thing; where it answers another.
            found = tokens.get(cluster.token)
            token = found.reveal().decode("utf-8", "surrogateescape").strip() if found else ""
            self._put(f"cluster/{cluster.name}", cluster.name, (cluster, token), _onward)
        for listener in gateway.apis:
            for cluster in listener.clusters:
                key = f"arrival/{listener.port}/{cluster.name}"
                self._put(key, cluster.name, (listener.port, cluster), _arrival)
            self._put_port(listener, gateway)
        if gateway.apis:
            self._put("socket", "", (), _socket)
        for each in sorted({each.counter for each in gateway.apis if each.counter}):
            self._put(
                f"counter/{each}", "", (each,), lambda where: [internal_clusters.counter(where)]
            )
        for key in self._held - self._wanted:
            self._fragments.drop(key)
        self._held = self._wanted

    def _put(
        self, key: str, cluster: str, seen: tuple[Any, ...], make: Callable[..., list[Resource]]
    ) -> None:
        self._wanted.add(key := _PREFIX + key)
        before = self._fragments.get(key)
        if before is not None and before.seen == seen:
            return
        try:
            made = Fragment(tuple(make(*seen)), _left_out(cluster, seen), seen=seen)
        except InvalidValueError as error:
            made = Fragment((), ((names.unserved(cluster), str(error)),), seen=seen)
        self._fragments.put(key, made)

    def _put_port(self, listener: ir.ApiListener, gateway: ir_gateway.Gateway) -> None:
        """Plan a listener, again only when a chain comes, goes or is another."""
        self._wanted.add(key := f"{_PREFIX}port/{listener.port}")
        shown = [(each.name, each.hosts, len(filter_chains.certificates(listener, each)))
                 for each in listener.clusters]  # fmt: skip
        seen = (
            listener.port, len(listener.certificates), listener.counter, gateway.bind_address,
            gateway.edge, shown, {each.name for each in listener.clusters},
        )  # fmt: skip
        before = self._fragments.get(key)
        if before is None or before.seen != seen:
            self._fragments.put(key, _port(listener, gateway, seen))


def _clusters(listeners: Iterable[ir.ApiListener]) -> Iterator[ir.ApiCluster]:
    """Give each cluster once: several ports serve the same servers, and share their limits."""
    found = {each.name: each for listener in listeners for each in listener.clusters}
    yield from found.values()


def _onward(cluster: ir.ApiCluster, token: str) -> list[Resource]:
    return [
        *clusters.resources(cluster, token),
        *routes.flows(cluster, token),
        routes.reviews(cluster, token),
    ]


def _socket() -> list[Resource]:
    return [
        internal_clusters.companion(),
        internal_clusters.listener(),
        internal_clusters.reviewer(),
    ]


def _arrival(port: int, cluster: ir.ApiCluster) -> list[Resource]:
    return [routes.arrival(port, cluster)]


def _left_out(cluster: str, seen: tuple[Any, ...]) -> Unsupported:
    if not isinstance(seen[0] if seen else None, ir.ApiCluster):
        return ()
    found, token = seen
    why = clusters.unsupported(found)
    if found.token and not token:
        why = [*why, "clientConfig.bearerToken: there is no such secret"]
    return tuple((names.api(cluster), each) for each in why)


def _port(listener: ir.ApiListener, gateway: ir_gateway.Gateway, seen: tuple[Any, ...]) -> Fragment:
    made, unsupported = [], []
    for cluster in listener.clusters:
        # Who has nothing to show is not spoken to.
        if not filter_chains.certificates(listener, cluster):
            unsupported.append((names.unserved(cluster.name), "there is no certificate to show"))
            continue
        try:
            made.append(filter_chains.of_cluster(listener, cluster, gateway.edge))
        except InvalidValueError as error:
            unsupported.append((names.unserved(cluster.name), str(error)))
    found: list[Resource] = []
    if made or listener.certificates:
        found.append(filter_chains.listener(listener, made, gateway))
    if listener.certificates:
        found.append(routes.nowhere(listener.port, listener))
    return Fragment(tuple(found), tuple(unsupported), seen=seen)


def certificates(gateway: ir_gateway.Gateway) -> Iterator[tuple[str, str]]:
    """Give the name of every secret that is a certificate, and of what is in it."""
    for listener in gateway.apis:
        for place, wanted in enumerate(listener.certificates):
            yield names.server_certificate(names.api_chain(listener.port, ""), place), wanted
        for cluster in listener.clusters:
            chain = names.api_chain(listener.port, cluster.name)
            for place, wanted in enumerate(filter_chains.certificates(listener, cluster)):
                yield names.server_certificate(chain, place), wanted
    for cluster in _clusters(gateway.apis):
        if cluster.tls is not None and cluster.tls.certificate:
            name = names.backend_certificate(names.servers(cluster.name))
            yield name, cluster.tls.certificate


def trust(gateway: ir_gateway.Gateway) -> Iterator[tuple[str, str, bool]]:
    """Give the name of every secret that is a bundle, of what is in it, and if it is optional.

    A chain asks for its clients' authorities whether there are any or not.
    """
    for listener in gateway.apis:
        for cluster in listener.clusters:
            if filter_chains.certificates(listener, cluster):
                yield names.api_clients(listener.port, cluster.name), cluster.client_trust, True
    for cluster in _clusters(gateway.apis):
        if cluster.tls is not None and cluster.tls.trust:
            yield names.backend_trust(names.servers(cluster.name)), cluster.tls.trust, False
