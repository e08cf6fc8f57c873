"""The snapshot of all objects and the compile passes that turn it into IR and statuses."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from gatehouse.compiler.backends.fragments import Output
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.frontends.gateway_api.backend_problems import backend_problems
from gatehouse.compiler.frontends.kinds import DEADLINE_SUBJECTS, OwnedKind
from gatehouse.compiler.ir import gateway as ir
from gatehouse.controller import outputs, provisioning_plan
from gatehouse.controller.backend_reports import Problems
from gatehouse.controller.frozen_heap import FrozenHeap
from gatehouse.controller.held_back import held_back_key
from gatehouse.controller.provisioner.manifests import ProvisioningPlan
from gatehouse.controller.records import StatusRecords
from gatehouse.incremental import query
from gatehouse.incremental.table import Table

log = structlog.get_logger("gatehouse.controller")


class CompiledGateway(msgspec.Struct, frozen=True):
    """A compiled Gateway and the controller name that selects its pipeline."""

    controller: str
    """The ``controllerName`` of its GatewayClass."""
    gateway: ir.GatewayConfiguration | None
    """None if it cannot be served yet."""
    published: ir.GatewayConfiguration | None = None
    """The configuration without what is held back during a search."""
    output: Output[Any, Any] | None = None
    """None if it cannot be served yet, or no instance has connected."""
    trial: bool = False
    """True if no instance that serves may get the output."""


class CompileResult(msgspec.Struct, frozen=True):
    """Result of one compile pass. Unchanged values in tables are the same object as before."""

    gateways: Table[query.Key, CompiledGateway] = msgspec.field(default_factory=Table)
    """All Gateways that this controller manages."""
    plans: Table[query.Key, ProvisioningPlan] = msgspec.field(default_factory=Table)
    """Provisioning plan of each of them."""
    statuses: Table[query.Key, combined.Status] = msgspec.field(default_factory=Table)
    """Desired status of every object whose status this controller writes."""
    attached: Table[query.Key, tuple[query.Key, ...]] = msgspec.field(default_factory=Table)
    """Gateways that serve each route or other attached object."""
    fetches: tuple[gateway_api.UrlFetch, ...] = ()
    """URLs to fetch."""
    owned: Mapping[OwnedKind, Table[query.Key, Any]] = {}
    """By owned kind, the desired state by owner."""
    backend_problems: Table[query.Key, Problems] = msgspec.field(default_factory=Table)
    """Backends without endpoints, by Gateway."""
    deadlines: Table[query.Key, tuple[int, ...]] = msgspec.field(default_factory=Table)
    """Points in time at which a status changes without a change of input, by object. Unix
    seconds."""


class Compilation:
    """The snapshot of objects as last seen and the incremental engine that compiles it."""

    def __init__(
        self, settings: gateway_api.ControllerSettings, heap: FrozenHeap | None = None
    ) -> None:
        """``heap``: of a process that runs this controller only."""
        self._engine = query.Engine(query.Snapshot(combined.INDEXES))
        self._engine.commit(
            {
                gateway_api.SETTINGS_KEY: settings,
                gateway_api.BACK_END_FINDINGS_KEY: outputs.unsupported_findings,
            }
        )
        self._heap = heap
        self._records = StatusRecords()

    def put(self, kind: str, key: tuple[str, str], raw: Mapping[str, Any] | None) -> bool:
        """Store an object as read from the API server; None removes it.

        Return whether anything that matters to a compile pass changed.
        """
        value = None if raw is None else combined.decode_object(kind, raw)
        changes = {(kind, *key): value, **self._records.read((kind, *key), raw)}
        return bool(self._engine.commit(changes))

    def put_input(self, key: query.Key, value: Any) -> bool:
        """Store an input that is not a Kubernetes object. Return as :meth:`put`."""
        return bool(self._engine.commit({key: value}))

    def spec_of(self, key: query.Key) -> Any:
        """Return the spec of an object as last seen; None if it does not exist."""
        return getattr(self._engine.snapshot.get(key), "spec", None)

    def reads(self, key: query.Key) -> bool:
        """Return whether the last pass read an input, so that a change of it matters."""
        return self._engine.reads(key)

    def run(self) -> CompileResult:
        """Run one compile pass.

        The garbage collector is disabled meanwhile (3.6 times faster with 40,000 objects).
        """
        result = self._compile()
        self._engine.commit(self._records.update(result.statuses))
        self._freeze(result)
        return result

    def prepare(self) -> None:
        """Compile without a result, so that the next pass compiles only later changes."""
        self._freeze(self._compile())

    def _freeze(self, result: CompileResult) -> None:
        if self._heap is not None and result.gateways:
            self._heap.after_pass(len(self._engine.snapshot))

    def _compile(self) -> CompileResult:
        gc.disable()
        try:
            with self._engine.compile() as ask:
                return _collect(ask)
        finally:
            gc.enable()


def _collect(ask: query.Ask) -> CompileResult:
    return CompileResult(
        gateways=ask(_gateways, ""),
        plans=ask(_plans, ""),
        statuses=ask(_statuses, ""),
        attached=ask(_attached, ""),
        fetches=ask(gateway_api.fetches),
        owned={owned: ask(_owned, owned) for _, owned in combined.KINDS.owned},
        backend_problems=ask(_backend_problems, ""),
        deadlines=ask(_deadlines, ""),
    )


def _gateways(ask: query.Ask, _: str) -> Table[query.Key, CompiledGateway]:
    return ask.map(_compiled_gateway, ask(gateway_api.gateways))


def _compiled_gateway(ask: query.Ask, key: query.Key) -> CompiledGateway:
    (gateway,) = ask.each(combined.compile_combined_gateway, (key,), _failed)
    published, output, held = None, None, None
    if gateway is not None:
        held = ask.read(held_back_key(key))
        (published,) = ask.each(outputs.published_gateway, (key,), _failed)
        (output,) = ask.each(outputs.gateway_output, (key,), _failed)
    controller, trial = ask(gateway_api.class_controller, key), held is not None and held.trial
    return CompiledGateway(controller, gateway, published, output, trial)


def _plans(ask: query.Ask, _: str) -> Table[query.Key, ProvisioningPlan]:
    return ask.map(provisioning_plan.plan_provisioning, ask(gateway_api.gateways))


def _statuses(ask: query.Ask, _: str) -> Table[query.Key, combined.Status]:
    return ask.map(combined.desired_status, ask(combined.status_subjects), _failed)


def _attached(ask: query.Ask, _: str) -> Table[query.Key, tuple[query.Key, ...]]:
    return ask.map(combined.gateways_of_attached, ask(combined.status_subjects), _failed)


def _owned(ask: query.Ask, kind: OwnedKind) -> Table[query.Key, Any]:
    return ask.map(kind.desired, ask.read(kind.owners), _failed)


def _backend_problems(ask: query.Ask, _: str) -> Table[query.Key, Problems]:
    return ask.map(backend_problems, ask(gateway_api.gateways), _failed)


def _deadlines(ask: query.Ask, _: str) -> Table[query.Key, tuple[int, ...]]:
    return ask.map(combined.deadlines, ask.read(DEADLINE_SUBJECTS), _failed)


def _failed(key: query.Key, error: Exception) -> None:
    """Log the error. One object that cannot be compiled must not stop the traffic of others."""
    log.error("compilation failed", kind=key[0], namespace=key[1], name=key[2], exc_info=error)
