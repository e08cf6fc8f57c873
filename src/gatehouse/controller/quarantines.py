"""Quarantines of all Gateways and external machines: fed by reports, stored as inputs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import structlog

from gatehouse.compiler.frontends.gateway_api import CREDENTIAL_KINDS
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.compilation import CompiledGateway
from gatehouse.controller.input_set import InputSet
from gatehouse.controller.outputs import published_name
from gatehouse.controller.programmed_condition import ProgrammedState
from gatehouse.controller.provisioner.names import FIELD_MANAGER, MANAGED_BY_LABEL
from gatehouse.controller.publisher import Publisher
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.stored_verdicts import StatusHistory, StoredVerdicts
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table

log = structlog.get_logger("gatehouse.controller")

MIN_RETRY_SECONDS = 1.0
"""Minimum time in seconds until a verdict is tried again that could not be when it was due."""

LEFT_OUT = "left out because the proxy rejected the configuration"
"""Part of the message of a Gateway's condition, before the names of the objects."""

TRIED_AGAIN = "rejected objects are tried again"
"""Message of a Gateway's condition while nothing else is left out."""

MAX_NAMED_OBJECTS = 5
"""Maximum number of objects in a message."""


def process_report(quarantine: Quarantine, report: DataPlaneReport) -> bool:
    """Process the report of a Gateway: one instance that rejects a version is sufficient."""
    serving, trials = report.serving, report.takes_trials
    changed = [quarantine.connected(report.proxies, serving=serving, trials=trials)]
    instances, confirmed = report.instances, report.confirmed
    if quarantine.trial:
        instances = tuple(instance for instance in instances if instance.takes_trials)
        confirmed = frozenset(instance.confirmed for instance in instances)
    if not instances:
        return quarantine.abort()
    changed += [
        quarantine.rejected(version, message, instance.proxy, origins)
        for instance in instances
        for version, message, origins in _rejections(instance)
    ]
    rejected = [
        rejection.origins for instance in instances for rejection in instance.lasting_rejections
    ]
    changed.append(quarantine.confirmed(confirmed, rejected))
    return any(changed)


def _rejections(instance: InstanceReport) -> list[tuple[str, str, tuple[Origin, ...]]]:
    """Return the rejections of an instance: version, message and origins of what was rejected."""
    rejections: list[tuple[str, str, tuple[Origin, ...]]] = [
        (instance.desired, rejection.reason, rejection.origins)
        # An object that is named is tried before what may be in a listener.
        for rejection in sorted(instance.lasting_rejections, key=lambda one: one.origins[0].port)
        # Before it has confirmed the rest, it may still report an older version.
        if instance.confirmed == instance.desired
        and all(
            origin.part or origin.port or origin.kind in CREDENTIAL_KINDS
            for origin in rejection.origins
        )
    ]
    if instance.rejected_version:
        rejections.append((instance.rejected_version, instance.rejection, ()))
    return rejections


class Compiler(Protocol):
    """The methods of a compilation that quarantines use."""

    def put_input(self, key: Key, value: Any) -> bool:
        """Store an input; None removes it. Return whether it changed."""

    def spec_of(self, key: Key) -> Any:
        """Return the present spec of an object; None if it does not exist."""

    def reads(self, key: Key) -> bool:
        """Return whether the last pass read an input."""


class Quarantines:
    """The quarantine of each Gateway, or load balancer, whose configuration was published."""

    def __init__(
        self,
        publisher: Publisher,
        compiler: Compiler,
        changed: Callable[[], None],
        record: Callable[[Key, str], None],
        name_of: Callable[[Key], str] = published_name,
        history: Callable[[Key], StatusHistory] | None = None,
        changed_at: Callable[[Key], str] = lambda _: "",
    ) -> None:
        """``changed`` is called when an input changed only because time has passed. ``record``
        records an Event about a Gateway. ``name_of`` returns the name by which it is published.
        ``history`` returns the history of an object; by default, statuses tell it. ``changed_at``
        returns when an object changed last; empty if that is not known."""
        self._publisher, self._compiler = publisher, compiler
        self._changed, self._record = changed, record
        self._name_of = name_of
        self._inputs = InputSet(compiler.put_input)
        self._by_gateway: dict[Key, Quarantine] = {}
        self.holding: set[Key] = set()
        """Gateways of which something is left out."""
        self.unpublished: set[Key] = set()
        """Gateways to publish with new inputs, whether their configuration differs or not."""
        self._changes, self._verdicts = ChangeLog(), StoredVerdicts()
        self._history = history or self._verdicts.history
        self._changed_at = changed_at
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def findings(self, gateway: Key) -> tuple[Unsupported, ...]:
        """Return the findings about what is left out of a Gateway."""
        quarantine = self._by_gateway.get(gateway)
        return quarantine.findings if quarantine is not None else ()

    def message(self, gateway: Key) -> str:
        """Return what is left out of a Gateway in one sentence; empty if nothing is."""
        quarantine = self._by_gateway.get(gateway)
        if quarantine is None:
            return ""
        return describe(quarantine.left_out) or (TRIED_AGAIN if quarantine.retrying else "")

    def stored_state(self, gateway: Key) -> ProgrammedState:
        """Return the state of a Gateway that an earlier controller stored in its status."""
        return self._verdicts.programmed_state(gateway)

    def published(
        self,
        gateway: Key,
        configuration: ir.GatewayConfiguration,
        compiled: ir.GatewayConfiguration,
    ) -> bool:
        """Store what was published last. Return whether inputs changed.

        ``compiled``: the configuration before parts were held back.
        """
        self.unpublished.discard(gateway)
        version = self._publisher.report(self._name_of(gateway)).desired
        if not version:
            return False
        quarantine = self._by_gateway.get(gateway)
        if quarantine is None:
            quarantine = self._new(gateway)
            self._by_gateway[gateway] = quarantine
        changed = quarantine.published(version, configuration, compiled)
        return changed and self._store(gateway, quarantine)

    def seed(self, before: Table[Key, CompiledGateway], now: Table[Key, CompiledGateway]) -> bool:
        """Leave out of new Gateways what an earlier controller left out.

        Return whether inputs changed.
        """
        changed = False
        for key, _, compiled in before.diff(now):
            if compiled is None or compiled.gateway is None or key in self._by_gateway:
                continue
            quarantine = self._by_gateway[key] = self._new(key)
            if quarantine.seed(compiled.gateway, self._verdicts.rejections(key)):
                changed |= self._store(key, quarantine)
        return changed

    def _new(self, gateway: Key) -> Quarantine:
        compiler = self._compiler
        return Quarantine(
            gateway,
            partial(self._publisher.trace, self._name_of(gateway)),
            compiler.spec_of,
            compiler.reads,
            self._changes,
            self._history,
            changed_at=self._changed_at,
        )

    def reported(self, gateway: Key, report: DataPlaneReport) -> bool:
        """Process the report of a Gateway. Return whether inputs changed."""
        quarantine = self._by_gateway.get(gateway)
        if quarantine is None:
            return False
        before = quarantine.left_out
        if not process_report(quarantine, report):
            return False
        new = tuple(origin for origin in quarantine.left_out if origin not in before)
        if new:
            log.warning(
                "configuration rejected", gateway=self._name_of(gateway), left_out=describe(new)
            )
            self._record(gateway, describe(new))
        return self._store(gateway, quarantine)

    def object_seen(self, key: Key, raw: Mapping[str, Any] | None, *, changed: bool) -> None:
        """Process an object as read from the API server; None for ``raw``: deleted.

        ``changed``: it is an input of compile passes that changed.
        """
        self._verdicts.record(key, raw)
        if changed:
            labels = ((raw or {}).get("metadata") or {}).get("labels") or {}
            own = labels.get(MANAGED_BY_LABEL) == FIELD_MANAGER
            self.object_changed(key, deleted=raw is None, own=own)

    def object_changed(self, key: Key, *, deleted: bool, own: bool = False) -> None:
        """Process a change or deletion of an object that is an input of compile passes.

        ``own``: Gatehouse wrote it, such as the Service of a Gateway, whose ports change when a
        verdict ends. So no verdict is tried again because of it.
        """
        self._changes.record(key)
        for gateway in tuple(self.holding):
            quarantine = self._by_gateway[gateway]
            released = deleted and quarantine.forget(key)
            if not own and quarantine.verdicts.depends_on(key):
                quarantine.verdicts.hurry()
            elif not released:
                continue
            if self._store(gateway, quarantine):
                # What says that something is left out changes although the configuration may not.
                self.unpublished.add(gateway)

    def withdraw(self, gateway: Key) -> None:
        """Forget a Gateway that is served no longer."""
        self._by_gateway.pop(gateway, None)
        self.holding.discard(gateway)
        self.unpublished.discard(gateway)
        self._inputs.update(gateway, {})
        timer = self._timers.pop(gateway, None)
        if timer is not None:
            timer.cancel()

    def _store(self, gateway: Key, quarantine: Quarantine) -> bool:
        self._follow_retries(gateway, quarantine)
        inputs = quarantine.inputs
        (self.holding.add if inputs else self.holding.discard)(gateway)
        if quarantine.unpublished:
            self.unpublished.add(gateway)
        return self._inputs.update(gateway, inputs) or quarantine.unpublished

    def _follow_retries(self, gateway: Key, quarantine: Quarantine) -> None:
        """Set the timer of the next attempt to use what is left out of a Gateway."""
        timer, due = self._timers.pop(gateway, None), quarantine.verdicts.next_retry
        if timer is not None:
            timer.cancel()
        if due is not None:
            delay = max(due - time.monotonic(), MIN_RETRY_SECONDS)
            loop = asyncio.get_running_loop()
            self._timers[gateway] = loop.call_later(delay, self._retry, gateway)

    def _retry(self, gateway: Key) -> None:
        del self._timers[gateway]
        quarantine = self._by_gateway[gateway]
        if not quarantine.retry():
            self._follow_retries(gateway, quarantine)
        elif self._store(gateway, quarantine):
            self._changed()


def describe(origins: Sequence[Origin]) -> str:
    """Return a sentence that names what is left out; empty if nothing is."""
    objects = tuple(dict.fromkeys(o if o.port else o.whole for o in origins))
    if not objects:
        return ""
    named = ", ".join(str(origin) for origin in objects[:MAX_NAMED_OBJECTS])
    more = (
        f" and {len(objects) - MAX_NAMED_OBJECTS} more" if len(objects) > MAX_NAMED_OBJECTS else ""
    )
    count = f"{len(objects)} object{'s' if len(objects) > 1 else ''}"
    return f"{count} {LEFT_OUT}: {named}{more}"
