"""Queries that read the IR of a gateway, so that a fragment depends only on the parts it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from gatehouse.compiler.backends.fragments import Output, OutputSet
from gatehouse.compiler.backends.source import GatewaySource, gateway_configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster, Endpoint, VirtualHost
from gatehouse.incremental.query import Ask, Engine, Key, Snapshot
from gatehouse.incremental.table import Table

V = TypeVar("V")
W = TypeVar("W", bound=OutputSet[Any])

ANY_ENDPOINT = Endpoint("0.0.0.0", 1)  # noqa: S104 - never used as an address
"""Stands for the endpoints of a cluster where only their presence matters."""

PortHostname = tuple[int, str]
"""Port and hostname of a virtual host."""


IR: Key = ("IR",)
CAPABILITIES: Key = ("Capabilities",)
"""Inputs of :class:`Incremental`."""


class Incremental(Generic[W]):
    """Runs the queries of a back end for one gateway repeatedly, on an engine of their own.

    The result depends on the last input only; the cost depends on what changed since then.
    """

    def __init__(
        self, output: Callable[[Ask, GatewaySource], Output[Any, W]], capabilities: Any
    ) -> None:
        """``output`` is the query for everything. ``capabilities`` are those of the proxy."""
        self._output = output
        self._engine = Engine(Snapshot())
        self._engine.commit({CAPABILITIES: capabilities})

    def run(self, gateway: ir.GatewayConfiguration) -> Output[Any, W]:
        """Return the output for ``gateway``."""
        self._engine.commit({IR: gateway})
        with self._engine.compile() as ask:
            return ask(self._output, GatewaySource(gateway.name, _input, IR, CAPABILITIES))


def _input(ask: Ask, key: Key) -> Any:
    return ask.read(key)


def all_virtual_hosts(ask: Ask, gateway: GatewaySource) -> Table[PortHostname, VirtualHost]:
    """Return the virtual hosts of all ports of a gateway."""
    by_port = {
        listener.port: listener.virtual_hosts
        for listener in gateway_configuration(ask, gateway).listeners
    }
    return ask.by_name(by_port, lambda port, host: (port, host.hostname))


def entries_of_port(hosts: Table[PortHostname, Any], port: int) -> Table[PortHostname, Any]:
    """Return the entries of a port."""
    return hosts.between((port, ""), (port + 1, ""))


def all_clusters(ask: Ask, gateway: GatewaySource) -> Table[str, Cluster]:
    """Return the clusters of a gateway by name."""
    return ask.by_key(gateway_configuration(ask, gateway).clusters, attrgetter("name"))


def endpoint_count(ask: Ask, gateway: GatewaySource) -> int:
    """Return the number of endpoints of all clusters."""
    return ask.total(ask(all_clusters, gateway), lambda cluster: len(cluster.endpoints))


class Entries(Mapping[str, V]):
    """The entries of a table that a query returns. A query depends on those that it looks up."""

    def __init__(
        self, ask: Ask, table: Callable[[Ask, GatewaySource], Table[str, V]], gateway: GatewaySource
    ) -> None:
        self._ask, self._table, self._gateway = ask, table, gateway

    def _find(self, name: str) -> V | None:
        return self._ask.entry(self._table, self._gateway, key=name)

    def __getitem__(self, name: str) -> V:
        value = self._find(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._ask(self._table, self._gateway))

    def __len__(self) -> int:
        return len(self._ask(self._table, self._gateway))


class Clusters(Entries[Cluster]):
    """The clusters of a gateway by name."""

    def __init__(self, ask: Ask, gateway: GatewaySource) -> None:
        super().__init__(ask, all_clusters, gateway)


class ClusterReferences(Clusters):
    """The clusters of a gateway as routes refer to them: their endpoints are not known, only
    whether there are any."""

    def _find(self, name: str) -> Cluster | None:
        return self._ask(_without_endpoints, self._gateway, name)


def _without_endpoints(ask: Ask, gateway: GatewaySource, name: str) -> Cluster | None:
    cluster = ask.entry(all_clusters, gateway, key=name)
    if cluster is None or not cluster.endpoints:
        return cluster
    return msgspec.structs.replace(cluster, endpoints=(ANY_ENDPOINT,))


def secret_files(ask: Ask, gateway: GatewaySource) -> Table[str, ir.SecretFile]:
    """Return the secrets of a gateway by name."""
    return Table((secret.name, secret) for secret in gateway_configuration(ask, gateway).secrets)
