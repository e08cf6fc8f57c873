"""Quarantines of all Gateways: fed by reports, stored as inputs of compile passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.input_set import InputSet
from gatehouse.controller.publisher import Publisher
from gatehouse.controller.quarantine import Quarantine
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key

log = structlog.get_logger("gatehouse.controller")

PORT_RETRY_SECONDS = 10.0
"""Time in seconds after which a port that could not be bound is tried again: the program that
holds it is not seen."""

NAMED_MAX = 5
"""Maximum number of objects in a message."""


class Quarantines:
    """The quarantine of each Gateway whose configuration was published."""

    def __init__(
        self,
        publisher: Publisher,
        compilation: Compilation,
        changed: Callable[[], None],
        record: Callable[[Key, str], None],
    ) -> None:
        """``changed`` is called when an input changed only because time has passed. ``record``
        records an Event about a Gateway."""
        self._publisher, self._compilation = publisher, compilation
        self._changed, self._record = changed, record
        self._inputs = InputSet(compilation.put_input)
        self._by_gateway: dict[Key, Quarantine] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def findings(self, gateway: Key) -> tuple[Unsupported, ...]:
        """Return the findings about what is left out of a Gateway."""
        quarantine = self._by_gateway.get(gateway)
        return quarantine.findings if quarantine is not None else ()

    def message(self, gateway: Key) -> str:
        """Return what is left out of a Gateway in one sentence; empty if nothing is."""
        quarantine = self._by_gateway.get(gateway)
        return describe(quarantine.left_out) if quarantine is not None else ""

    def published(self, gateway: Key, configuration: ir.Gateway) -> bool:
        """Store what was published last. Return whether inputs changed."""
        version = self._publisher.report(_name(gateway)).desired
        if not version:
            return False
        quarantine = self._by_gateway.get(gateway)
        if quarantine is None:
            quarantine = self._new(gateway)
            self._by_gateway[gateway] = quarantine
        return quarantine.published(version, configuration) and self._store(gateway, quarantine)

    def _new(self, gateway: Key) -> Quarantine:
        compilation = self._compilation
        return Quarantine(gateway, self._publisher.trace, compilation.spec_of, compilation.reads)

    def reported(self, gateway: Key) -> bool:
        """Process the current report of a Gateway. Return whether inputs changed."""
        quarantine = self._by_gateway.get(gateway)
        if quarantine is None:
            return False
        before = quarantine.left_out
        if not _process(quarantine, self._publisher.report(_name(gateway))):
            return False
        new = tuple(origin for origin in quarantine.left_out if origin not in before)
        if new:
            log.warning("configuration rejected", gateway=_name(gateway), left_out=describe(new))
            self._record(gateway, describe(new))
        self._follow_ports(gateway, quarantine)
        return self._store(gateway, quarantine)

    def object_changed(self, key: Key, *, deleted: bool) -> None:
        """Process a change or deletion of an object that is an input of compile passes."""
        for gateway, quarantine in self._by_gateway.items():
            quarantine.object_changed(key)
            if deleted and quarantine.forget(key):
                self._store(gateway, quarantine)

    def withdraw(self, gateway: Key) -> None:
        """Forget a Gateway that is served no longer."""
        self._by_gateway.pop(gateway, None)
        self._inputs.update(gateway, {})
        timer = self._timers.pop(gateway, None)
        if timer is not None:
            timer.cancel()

    def _store(self, gateway: Key, quarantine: Quarantine) -> bool:
        return self._inputs.update(gateway, quarantine.inputs)

    def _follow_ports(self, gateway: Key, quarantine: Quarantine) -> None:
        if quarantine.ports and gateway not in self._timers:
            self._timers[gateway] = asyncio.get_running_loop().call_later(
                PORT_RETRY_SECONDS, self._retry_ports, gateway
            )

    def _retry_ports(self, gateway: Key) -> None:
        del self._timers[gateway]
        quarantine = self._by_gateway[gateway]
        if quarantine.retry_ports() and self._store(gateway, quarantine):
            self._changed()


def describe(origins: Sequence[Origin]) -> str:
    """Return a sentence that names what is left out; empty if nothing is."""
    objects = tuple(dict.fromkeys(o if o.port else o.whole for o in origins))
    if not objects:
        return ""
    named = ", ".join(str(origin) for origin in objects[:NAMED_MAX])
    more = f" and {len(objects) - NAMED_MAX} more" if len(objects) > NAMED_MAX else ""
    count = f"{len(objects)} object{'s' if len(objects) > 1 else ''}"
    return f"{count} left out because the proxy rejected the configuration: {named}{more}"


def _process(quarantine: Quarantine, report: DataPlaneReport) -> bool:
    if not report.instances:
        return quarantine.abort()
    changed = [
        quarantine.rejected(version, message, instance.proxy, origins)
        for instance in report.instances
        for version, message, origins in _rejections(instance)
    ]
    if not any(instance.rejected for instance in report.instances):
        changed.append(quarantine.confirmed(report.confirmed))
    return any(changed)


def _rejections(instance: InstanceReport) -> list[tuple[str, str, tuple[Origin, ...]]]:
    """Return the rejections of an instance: version, message and origins of what was rejected."""
    found: list[tuple[str, str, tuple[Origin, ...]]] = [
        (instance.desired, rejection.reason, rejection.origins)
        for rejection in instance.rejected
        if all(origin.part or origin.kind == "Secret" for origin in rejection.origins)
    ]
    if instance.rejected_version:
        found.append((instance.rejected_version, instance.rejection, ()))
    return found


def _name(gateway: Key) -> str:
    return f"{gateway[1]}/{gateway[2]}"
