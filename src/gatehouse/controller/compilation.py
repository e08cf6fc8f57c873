"""From changed objects to IR and statuses: the snapshot and the passes over it."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from gatehouse.compiler.frontends import combined, gateway_api, hosted_apiserver, upstream_cluster
from gatehouse.compiler.ir import gateway as ir
from gatehouse.controller import provisioning_plan
from gatehouse.controller.provisioner.manifests import Plan
from gatehouse.incremental import query
from gatehouse.incremental.table import Table

log = structlog.get_logger("gatehouse.controller")


class CompiledGateway(msgspec.Struct, frozen=True):
    """What is to be served for a Gateway."""

    controller: str
    """The one that its class names."""
    gateway: ir.Gateway | None
    """None: it cannot be served yet."""


class CompileResult(msgspec.Struct, frozen=True):
    """What one pass over the snapshot found. In tables, what is unchanged is the same object."""

    gateways: Table[query.Key, CompiledGateway] = msgspec.field(default_factory=Table)
    """Every Gateway that is ours."""
    plans: Table[query.Key, Plan] = msgspec.field(default_factory=Table)
    """How the data plane of each of them is to be run."""
    statuses: Table[query.Key, combined.Status] = msgspec.field(default_factory=Table)
    """The wanted status of every object we speak about."""
    attached: Table[query.Key, tuple[query.Key, ...]] = msgspec.field(default_factory=Table)
    """For each route, or object of a guest, the Gateways that serve it."""
    fetches: tuple[gateway_api.Fetch, ...] = ()
    """What is to be fetched from elsewhere."""
    records: Table[query.Key, hosted_apiserver.Records] = msgspec.field(default_factory=Table)
    """What is to be published in the DNS, by the HostedAPIServer that wants it."""
    allocations: Table[query.Key, upstream_cluster.Allocation] = msgspec.field(
        default_factory=Table
    )
    """How limits that span data planes are spread, by UpstreamCluster."""
    moments: Table[query.Key, tuple[int, ...]] = msgspec.field(default_factory=Table)
    """When something is to be said anew though nothing changes, by the object concerned; seconds
    since 1970."""


class Compilation:
    """The objects as last seen and everything computed from them."""

    def __init__(self, settings: gateway_api.Settings) -> None:
        self._engine = query.Engine(query.Snapshot(combined.INDEXES))
        self._engine.commit({gateway_api.SETTINGS_KEY: settings})
        self._frozen = False

    def put(self, kind: str, key: tuple[str, str], raw: Mapping[str, Any] | None) -> bool:
        """Take in an object as the API server gave it (None: it is gone).

        Returns whether anything that matters to a compile changed.
        """
        value = None if raw is None else combined.decode(kind, raw)
        return bool(self._engine.commit({(kind, *key): value}))

    def put_input(self, key: query.Key, value: Any) -> bool:
        """Take in an input that is no Kubernetes object; as :meth:`put`."""
        return bool(self._engine.commit({key: value}))

    def reads(self, key: query.Key) -> bool:
        """Whether the last pass read an input, so that a change of it matters."""
        return self._engine.reads(key)

    def run(self) -> CompileResult:
        """Make one pass. The garbage collector rests meanwhile (3.6 times faster at 40,000)."""
        gc.disable()
        try:
            with self._engine.compile() as ask:
                found = _collect(ask)
        finally:
            gc.enable()
        if not self._frozen and found.gateways:
            gc.freeze()
            self._frozen = True
        return found


def _collect(ask: query.Ask) -> CompileResult:
    return CompileResult(
        gateways=ask(_gateways, ""),
        plans=ask(_plans, ""),
        statuses=ask(_statuses, ""),
        attached=ask(_attached, ""),
        fetches=ask(gateway_api.fetches, ""),
        records=ask(_records, ""),
        allocations=ask(_allocations, ""),
        moments=ask(_moments, ""),
    )


def _gateways(ask: query.Ask, _: str) -> Table[query.Key, CompiledGateway]:
    return ask.map(_served, ask(gateway_api.gateways, ""))


def _served(ask: query.Ask, key: query.Key) -> CompiledGateway:
    (gateway,) = ask.each(combined.compile_gateway, (key,), _failed)
    return CompiledGateway(ask(gateway_api.controller_of, key), gateway)


def _plans(ask: query.Ask, _: str) -> Table[query.Key, Plan]:
    return ask.map(provisioning_plan.plan, ask(gateway_api.gateways, ""))


def _statuses(ask: query.Ask, _: str) -> Table[query.Key, combined.Status]:
    return ask.map(combined.status, ask(combined.subjects, ""), _failed)


def _attached(ask: query.Ask, _: str) -> Table[query.Key, tuple[query.Key, ...]]:
    return ask.map(combined.gateways_of, ask(combined.subjects, ""), _failed)


def _records(ask: query.Ask, _: str) -> Table[query.Key, hosted_apiserver.Records]:
    return ask.map(hosted_apiserver.records, ask.read(hosted_apiserver.HOSTED), _failed)


def _allocations(ask: query.Ask, _: str) -> Table[query.Key, upstream_cluster.Allocation]:
    keys = ask.read(upstream_cluster.CLUSTERS)
    return ask.map(upstream_cluster.allocation, keys, _failed)


def _moments(ask: query.Ask, _: str) -> Table[query.Key, tuple[int, ...]]:
    keys = ask.read(upstream_cluster.CLUSTERS)
    return ask.map(upstream_cluster.certificate_times, keys, _failed)


def _failed(key: query.Key, error: Exception) -> None:
    """Give nothing: an object that nobody was prepared for must not stop the others' traffic."""
    log.error("not compiled", kind=key[0], namespace=key[1], name=key[2], exc_info=error)
