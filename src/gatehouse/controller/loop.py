"""The main loop: collects what happened, runs a pass, and lets everything follow from it.

What can happen: objects changed (an informer), a data plane reported (the transport), a Gateway
could not be provisioned, or a moment passed of which an object speaks. Each is noted and wakes the
loop; a pass takes in all that was noted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from gatehouse.apis.resources import Resource
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.upstream_cluster import replicas
from gatehouse.controller import programmed_condition
from gatehouse.controller.compilation import Compilation, CompiledGateway, CompileResult
from gatehouse.controller.deadlines import Deadlines
from gatehouse.controller.deferred_status import DeferredStatuses
from gatehouse.controller.metrics import compile_duration_histogram
from gatehouse.controller.provisioner.manifests import Plan
from gatehouse.controller.publisher import Publisher
from gatehouse.controller.status_writer import StatusWriter
from gatehouse.incremental.query import Key
from gatehouse.kube.store import Changes

log = structlog.get_logger("gatehouse.controller")

DEBOUNCE_SECONDS = 0.01
"""Seconds of quiet awaited after a change, so that one `kubectl apply` becomes one pass."""

IDLE_SECONDS = 0.05
"""Seconds after the last pass in which nothing happened: what comes then is taken up at once, and
what comes with it is in the next pass."""

INITIAL_FETCH_TIMEOUT_SECONDS = 5.0
"""Seconds that a controller that begins waits for what objects refer to by URL."""

MAX_DEBOUNCE_SECONDS = 0.1
"""Seconds after which a pass runs even though changes keep coming."""

REPORT_PAUSE_FACTOR = 3.0
"""How many times as long as a turn that only took in reports nothing is done about more of them:
thousands come at once, and agents, informers and status writes are to have most of the time."""

MAX_REPORT_PAUSE_SECONDS = 1.0
"""Seconds."""


class Loop:
    """One per controller; everything in it runs in the event loop's thread."""

    def __init__(
        self,
        compilation: Compilation,
        publisher: Publisher,
        statuses: StatusWriter,
        provision: Callable[[Mapping[Key, Plan | None]], None],
        fetch: Callable[[tuple[gateway_api.Fetch, ...]], None],
        follow: Callable[[CompileResult], None] = lambda _: None,
    ) -> None:
        """``provision`` is told what Gateways are to have whenever that changes, and None of one
        that is ours no more; ``follow``, what each new pass found.
        """
        self._compilation = compilation
        self._publisher = publisher
        self._statuses = statuses
        self._provision = provision
        self._fetch = fetch
        self._follow = follow
        self._woken = asyncio.Event()
        self._urged = asyncio.Event()
        """Something else than a report happened."""
        self._unfetched: set[Key] = set()
        self._stale = True
        """Whether an input changed since the last pass."""
        self._last = CompileResult()
        self._changed_gateways: set[Key] = set()
        """Gateways of which there is something new: what they serve, reports, trouble."""
        self._generations: dict[Key, int] = {}
        """Of all Gateways that there are."""
        self._programmed: dict[Key, programmed_condition.ProgrammedState] = {}
        self._trouble: dict[Key, programmed_condition.ProvisioningError | None] = {}
        self._connected: dict[Key, int] = {}
        """The number of instances of each Gateway."""
        self._asked: dict[Key, tuple[int, int]] = {}
        """The generation of each Gateway that was compiled, and the first bundle that holds it."""
        self._holding = DeferredStatuses()
        self._moments = Deadlines(compilation.put_input)
        self._compiled_at = -IDLE_SECONDS
        """When the last pass ended, by the monotonic clock."""
        self.passes = 0
        """Passes run so far."""
        self.compile_duration = compile_duration_histogram()
        """Duration of these passes."""

    def on_changes(self, resource: Resource, changes: Changes) -> None:
        """Take in changed objects from an informer."""
        changed = False
        for key, change in changes.items():
            changed |= self._compilation.put(resource.kind, key, change.new)
            if resource.kind == "Gateway":
                self._note_generation((resource.kind, *key), change.new)
            self._statuses.enqueue((resource.kind, *key))
        if changed:
            self._changed()

    def _note_generation(self, gateway: Key, raw: Mapping[str, Any] | None) -> None:
        before = self._generations.pop(gateway, None)
        if raw is not None:
            self._generations[gateway] = raw.get("metadata", {}).get("generation", 0)
        if before != self._generations.get(gateway):
            self._changed_gateways.add(gateway)

    def reported(self) -> tuple[int, int]:
        """Give the number of Gateways that are ours, and that of their connected instances."""
        return len(self._last.gateways), sum(self._connected.values())

    def on_provisioned(
        self, gateway: tuple[str, str], trouble: programmed_condition.ProvisioningError | None
    ) -> None:
        """Note that a Gateway's data plane was provisioned, or why it was not."""
        key = ("Gateway", *gateway)
        if self._trouble.get(key) != trouble:
            self._trouble[key] = trouble
            self._changed_gateways.add(key)
            self._urged.set()
            self._woken.set()

    def on_fetched(self, fetch: gateway_api.Fetch, found: gateway_api.Fetched | None) -> None:
        """Take in what was fetched; None: it is not wanted any more."""
        self._unfetched.discard(fetch.key)
        if self._compilation.put_input(fetch.key, found):
            self._changed()

    def on_bundle(self, bundle: gateway_api.CRDVersions) -> None:
        """Take in which Gateway API the cluster has."""
        if self._compilation.put_input(gateway_api.CRD_VERSIONS_KEY, bundle):
            self._changed()

    def _changed(self) -> None:
        self._stale = True
        self._urged.set()
        self._woken.set()

    def on_report(self, gateway: str) -> None:
        """Note that a data plane reported."""
        self._changed_gateways.add(("Gateway", *gateway.split("/")))
        self._woken.set()

    async def run(self) -> None:
        """Run passes for ever. The caller waits with this until every informer has synced."""
        await self._fetch_first()
        self._woken.set()
        while True:
            await self._next()
            self._woken.clear()
            urged = self._urged.is_set()
            self._urged.clear()
            started = time.monotonic()
            self._run_once()
            if not urged:
                await self._throttle(time.monotonic() - started)

    async def _throttle(self, turn: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(REPORT_PAUSE_FACTOR * turn, MAX_REPORT_PAUSE_SECONDS)):
                await self._urged.wait()

    async def _fetch_first(self) -> None:
        """Publish nothing without what is fetched: data planes still have what we had before."""
        fetches = self._compilation.run().fetches
        self._unfetched = {fetch.key for fetch in fetches}
        self._fetch(fetches)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INITIAL_FETCH_TIMEOUT_SECONDS):
                while self._unfetched:
                    self._woken.clear()
                    await self._woken.wait()

    async def _next(self) -> None:
        release = self._holding.next_release()
        waits = [] if release is None else [max(0.0, release - time.monotonic())]
        waits += self._moments.next_wakeups()
        try:
            async with asyncio.timeout(min(waits, default=None)):
                await self._woken.wait()
        except TimeoutError:
            return
        started = time.monotonic()
        if started - self._compiled_at >= IDLE_SECONDS:
            return
        while self._woken.is_set() and time.monotonic() - started < MAX_DEBOUNCE_SECONDS:
            self._woken.clear()
            await asyncio.sleep(DEBOUNCE_SECONDS)
        self._woken.set()

    def _run_once(self) -> None:
        started = time.perf_counter()
        self._evaluate(self._last)
        self._stale |= self._moments.update(self._last.moments)
        found = self._published(self._last)
        self._stale |= self._moments.update(found.moments)
        if self._stale:
            # What a data plane cannot do, whether it has it already, and which moments matter, is
            # known only now.
            found = self._published(found)
        self._write(found)
        self._changed_gateways.clear()
        if plans := {key: plan for key, _, plan in self._last.plans.diff(found.plans)}:
            self._provision(plans)
        if found.fetches != self._last.fetches:
            self._fetch(found.fetches)
        if found is not self._last:
            self._follow(found)
        self._last = found
        log.debug("pass", number=self.passes, seconds=round(time.perf_counter() - started, 4))

    def _published(self, before: CompileResult) -> CompileResult:
        found = self._compiled(before)
        if found is not before:
            self._changed_gateways |= {key for key, _, _ in before.gateways.diff(found.gateways)}
        for key in sorted(self._changed_gateways):
            if key in found.gateways:
                self._publish(key, found.gateways[key])
            else:
                self._withdraw(key)
        self._evaluate(found)
        return found

    def _compiled(self, before: CompileResult) -> CompileResult:
        """Give the newest pass; reports alone, which are many, make no new one."""
        if not self._stale:
            return before
        with self.compile_duration.time():
            found = self._compilation.run()
        self._stale = False
        self._compiled_at = time.monotonic()
        self.passes += 1
        return found

    def _publish(self, key: Key, served: CompiledGateway) -> None:
        if served.gateway is not None:
            refused = self._publisher.publish(served.gateway, served.controller)
            if self._compilation.put_input(_unsupported(key), gateway_api.Unsupported(refused)):
                self._changed()
        generation = self._generations.get(key, 0)
        if key not in self._asked or self._asked[key][0] != generation:
            self._asked[key] = (generation, max(1, self._publisher.latest_number(_name(key))))

    def _withdraw(self, key: Key) -> None:
        """Serve a Gateway no more; what was known of it stays known while the object is there."""
        self._publisher.withdraw(_name(key))
        self._asked.pop(key, None)
        self._connected.pop(key, None)
        if key not in self._generations:
            self._programmed.pop(key, None)
            self._trouble.pop(key, None)
            for told in (_unsupported(key), _programming(key), replicas(key)):
                self._compilation.put_input(told, None)

    def _evaluate(self, found: CompileResult) -> None:
        """Let the reports change the inputs ``Programming``; a change asks for another pass."""
        for key in sorted(self._changed_gateways):
            if key not in found.gateways:
                continue
            generation, first = self._asked[key]
            standing = programmed_condition.evaluate(
                self._programmed.get(key),
                self._publisher.report(_name(key)),
                generation,
                self._trouble.get(key),
                served=self._publisher.confirmed_number(_name(key)) >= first,
            )
            self._programmed[key] = standing
            if self._compilation.put_input(_programming(key), standing.state):
                self._changed()
            self._count(key)

    def _count(self, key: Key) -> None:
        """Let the data planes be known where limits are divided among them."""
        connected, names = replicas(key), self._publisher.report(_name(key)).names
        self._connected[key] = len(names)
        if self._compilation.put_input(connected, names) and self._compilation.reads(connected):
            self._changed()

    def _write(self, found: CompileResult) -> None:
        """Hand over new statuses; a route's waits until the change it speaks of is in traffic."""
        now = time.monotonic()
        if found is not self._last:
            self._hold(found, now)

        def served(key: Key) -> int | None:
            return self._served(key) if key in found.gateways else None

        for key, status in self._holding.release_ready(self._changed_gateways, served, now):
            self._statuses.set_desired(key, status)

    def _hold(self, found: CompileResult, now: float) -> None:
        for key, _, status in self._last.statuses.diff(found.statuses):
            if status is not None:
                serving = found.attached.get(key, ())
                awaited = {each: self._publisher.latest_number(_name(each)) for each in serving}
                self._holding.defer(key, status, awaited, now)
            else:
                self._holding.discard(key)
                self._statuses.forget(key)

    def _served(self, key: Key) -> int:
        """Give the newest bundle of a Gateway that need not be waited for."""
        if programmed_condition.is_settled(self._publisher.report(_name(key))):
            return self._publisher.latest_number(_name(key))
        return self._publisher.confirmed_number(_name(key))


def _unsupported(key: Key) -> Key:
    return ("Unsupported", *key[1:])


def _programming(key: Key) -> Key:
    return ("Programming", *key[1:])


def _name(key: Key) -> str:
    return f"{key[1]}/{key[2]}"
