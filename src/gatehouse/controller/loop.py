"""The main loop: collects changes, runs compile passes and distributes their results.

Inputs: changed objects (informers), reports of data planes (transports), results of provisioning,
fetched URLs and deadlines that passed. Each is stored and wakes the loop. A pass takes in all
inputs stored until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog

from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller import outputs
from gatehouse.controller.absences import Absences
from gatehouse.controller.alarm import Alarm
from gatehouse.controller.backend_reports import BackendReports
from gatehouse.controller.compilation import Compilation, CompiledGateway, CompileResult
from gatehouse.controller.deadlines import Deadlines
from gatehouse.controller.gateway_states import UNPUBLISHED, GatewayState
from gatehouse.controller.metrics import compile_duration_histogram
from gatehouse.controller.outputs import published_name
from gatehouse.controller.programmed_condition import (
    ProvisioningError,
    evaluate_programmed,
    incomplete_now,
)
from gatehouse.controller.provisioner.manifests import ProvisioningPlan
from gatehouse.controller.publisher import Publisher
from gatehouse.controller.quarantines import Quarantines
from gatehouse.controller.report_inputs import ReportInputs
from gatehouse.controller.status_release import StatusRelease
from gatehouse.controller.status_writer import StatusWriter
from gatehouse.incremental.query import Key
from gatehouse.kube.store import Changes
from kube_base.runtime.time_limits import scaled
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.controller")

COMPILE_DEBOUNCE_SECONDS = 0.01
"""Quiet period in seconds after a change, so that one `kubectl apply` becomes one pass."""

IDLE_SECONDS = 0.05
"""Seconds since the last pass after which the loop is idle. The first change after that is compiled
immediately; changes that come with it are in the next pass."""

INITIAL_FETCH_TIMEOUT_SECONDS = scaled(5.0)
"""Maximum time in seconds to wait for fetched URLs before the first publication."""

PREPARE_SECONDS = 10.0
"""Pause in seconds between compile passes of a standby."""

MAX_DEBOUNCE_SECONDS = 0.1
"""Maximum delay of a pass in seconds while changes keep coming."""

REPORT_PAUSE_FACTOR = 3.0
"""Pause after a report-only pass, as a multiple of its duration. Thousands of reports may come at
once; agents, informers and status writes must get most of the CPU time."""

MAX_REPORT_PAUSE_SECONDS = 1.0
"""Upper limit of that pause in seconds."""


class Loop:
    """The main loop of a controller. All of it runs in the thread of the event loop."""

    def __init__(
        self,
        compilation: Compilation,
        publisher: Publisher,
        statuses: StatusWriter,
        provision: Callable[[Mapping[Key, ProvisioningPlan | None]], None],
        fetch: Callable[[tuple[gateway_api.UrlFetch, ...]], None],
        follow: Callable[[CompileResult], None] = lambda _: None,
        record_rejection: Callable[[Key, str], None] = lambda _, __: None,
        record_backend: Callable[[Key, str], None] = lambda _, __: None,
        changed_at: Callable[[Key], str] = lambda _: "",
    ) -> None:
        """Create it with empty inputs; :meth:`run` starts it.

        ``provision`` gets changed provisioning plans, None for Gateways not managed any longer.
        ``fetch`` gets changed URLs to fetch, and ``follow`` the result of each new compile pass.
        ``record_rejection``, ``record_backend``: record Events of a Gateway and a backend.
        ``changed_at`` returns when an object changed last; empty if that is not known.
        """
        self._compilation, self._publisher, self._statuses = compilation, publisher, statuses
        self._provision, self._fetch, self._follow = provision, fetch, follow
        self._wake_up = asyncio.Event()
        self._alarm = Alarm(self._wake_up)
        self._input_changed = asyncio.Event()
        """Set by all inputs except reports."""
        self._unfetched: set[Key] = set()
        """URLs of the first pass that are not fetched yet."""
        self._stale = True
        """True if an input of the compilation changed since the last pass."""
        self._last = CompileResult()
        self._changed_gateways: set[Key] = set()
        """Gateways with a new configuration, report or provisioning result."""
        self._states: defaultdict[Key, GatewayState] = defaultdict(GatewayState)
        """By Gateway that exists or is served."""
        self._status_release = StatusRelease(statuses, publisher)
        self._deadlines = Deadlines(compilation.put_input)
        self._absences = Absences()
        self._backend_reports = BackendReports(compilation.put_input, record_backend)
        self._report_inputs = ReportInputs(compilation, publisher)
        compilation.put_input(outputs.BACK_ENDS, publisher.back_ends)
        self._quarantines = Quarantines(
            publisher, compilation, self._changed, record_rejection, changed_at=changed_at
        )
        self._compiled_at = -IDLE_SECONDS
        """End of the last pass on the monotonic clock, in seconds."""
        self.passes, self.compile_duration = 0, compile_duration_histogram()
        """Number of compile passes so far, and their duration."""

    def on_changes(self, resource: Resource, changes: Changes) -> None:
        """Store changed objects from an informer."""
        changed = False
        for key, change in changes.items():
            if _is_replaced(*change):
                changed |= self._begin_anew((resource.kind, *key))
            is_input = self._compilation.put(resource.kind, key, change.new)
            changed |= is_input
            self._quarantines.object_seen((resource.kind, *key), change.new, changed=is_input)
            if resource.kind == "Gateway":
                self._set_generation((resource.kind, *key), change.new)
            self._statuses.enqueue((resource.kind, *key))
        if changed:
            self._changed()

    def _begin_anew(self, key: Key) -> bool:
        """Forget the state of an object that was deleted, which another of its name does not have.

        Return whether the object had a status.
        """
        if self._last.statuses.get(key) is None:
            return False
        self._status_release.begin_anew(key)
        if key[0] == "Gateway":
            self._unpublished(key).programmed = None
            self._changed_gateways.add(key)
            self._compilation.put_input(_programming(key), None)
        return True

    def _set_generation(self, gateway: Key, raw: Mapping[str, Any] | None) -> None:
        state, before = self._states[gateway], self._states[gateway].generation
        state.generation = raw.get("metadata", {}).get("generation", 0) if raw is not None else None
        if before != state.generation:
            self._changed_gateways.add(gateway)

    def reported(self) -> tuple[int, int]:
        """Return the number of managed Gateways and that of their connected instances."""
        return len(self._last.gateways), sum(state.instances for state in self._states.values())

    def on_provisioned(self, gateway: tuple[str, str], error: ProvisioningError | None) -> None:
        """Store that a Gateway's data plane was provisioned (None), or why it was not."""
        key = ("Gateway", *gateway)
        if self._states[key].provisioning_error != error:
            self._states[key].provisioning_error = error
            self._changed_gateways.add(key)
            self._input_changed.set()
            self._wake_up.set()

    def on_fetched(self, fetch: gateway_api.UrlFetch, fetched: gateway_api.Fetched | None) -> None:
        """Store a fetched URL; None if it is not desired any longer."""
        self._unfetched.discard(fetch.key)
        if self._compilation.put_input(fetch.key, fetched):
            self._changed()

    def on_crd_versions(self, versions: gateway_api.CRDVersions) -> None:
        """Store the versions of Gateway API's CRDs."""
        if self._compilation.put_input(gateway_api.CRD_VERSIONS_KEY, versions):
            self._changed()

    def on_availability(self, kind: str, reason: str) -> None:
        """Store why the API server does not serve or allow a kind; empty if it does."""
        if self._compilation.put_input(gateway_api.unavailable_kind_key(kind), reason or None):
            self._changed()

    def _changed(self) -> None:
        self._stale = True
        self._input_changed.set()
        self._wake_up.set()

    def on_report(self, gateway: str) -> None:
        """Store that a data plane of ``gateway`` (namespace/name) reported."""
        self._changed_gateways.add(("Gateway", *gateway.split("/")))
        self._wake_up.set()

    def prepare(self) -> None:
        """Compile what the informers have, without any effect.

        Nothing else runs during the first pass over many objects. A leader would miss the renewal
        of its Lease meanwhile, and so would the next one.
        """
        self._input_changed.clear()
        self._compilation.prepare()

    async def stay_prepared(self) -> None:
        """Compile changes from time to time until cancelled."""
        while True:
            await self._input_changed.wait()
            await asyncio.sleep(PREPARE_SECONDS)
            self.prepare()

    async def run(self) -> None:
        """Run passes until cancelled. Start it only after every informer has synchronized."""
        await self._fetch_first()
        self._wake_up.set()
        while True:
            await self._wait_for_input()
            self._wake_up.clear()
            input_changed = self._input_changed.is_set()
            self._input_changed.clear()
            started = time.monotonic()
            self._run_once()
            if not input_changed:
                await self._throttle(time.monotonic() - started)

    async def _throttle(self, pass_seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                min(REPORT_PAUSE_FACTOR * pass_seconds, MAX_REPORT_PAUSE_SECONDS)
            ):
                await self._input_changed.wait()

    async def _fetch_first(self) -> None:
        """Wait for fetches before the first publication; data planes keep their configuration."""
        fetches = self._compilation.run().fetches
        self._unfetched = {fetch.key for fetch in fetches}
        self._fetch(fetches)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INITIAL_FETCH_TIMEOUT_SECONDS):
                while self._unfetched:
                    self._wake_up.clear()
                    await self._wake_up.wait()

    async def _wait_for_input(self) -> None:
        release = self._status_release.next_release()
        delays = [] if release is None else [max(0.0, release - time.monotonic())]
        delays += self._deadlines.next_wakeups() + self._backend_reports.next_wakeups()
        delays += self._absences.next_wakeups()
        self._alarm.set(delays)
        await self._wake_up.wait()
        started = time.monotonic()
        if started - self._compiled_at >= IDLE_SECONDS:
            return
        while self._wake_up.is_set() and time.monotonic() - started < MAX_DEBOUNCE_SECONDS:
            self._wake_up.clear()
            await asyncio.sleep(COMPILE_DEBOUNCE_SECONDS)
        self._wake_up.set()

    def _run_once(self) -> None:
        started = time.perf_counter()
        self._changed_gateways.update(self._absences.ended())
        self._evaluate(self._last, self._changed_gateways)
        self._stale |= self._deadlines.update(self._last.deadlines)
        result = self._compile_and_publish(self._last)
        self._stale |= self._deadlines.update(result.deadlines)
        self._stale |= self._backend_reports.update(result.backend_problems)
        if self._stale:
            # Reports of instances, rejections or new deadlines are inputs of a second pass.
            result = self._compile_and_publish(result)
        self._status_release.update(self._last, result, self._changed_gateways)
        self._changed_gateways.clear()
        if plans := {key: plan for key, _, plan in self._last.plans.diff(result.plans)}:
            self._provision(plans)
        if result.fetches != self._last.fetches:
            self._fetch(result.fetches)
        if result is not self._last:
            self._follow(result)
        self._last = result
        seconds = round(time.perf_counter() - started, 4)
        log.debug("compile pass finished", number=self.passes, seconds=seconds)

    def _compile_and_publish(self, previous: CompileResult) -> CompileResult:
        result = self._compile(previous)
        self._stale |= self._quarantines.seed(previous.gateways, result.gateways)
        result = self._compile(result)
        changed = {key for key, _, _ in previous.gateways.diff(result.gateways)}
        changed |= self._quarantines.unpublished
        if result is not previous:
            # What is left out may be released although the configuration does not differ.
            changed |= self._quarantines.holding
        self._changed_gateways |= changed
        for key in sorted(self._changed_gateways):
            if key not in result.gateways:
                self._withdraw(key)
                continue
            if key in changed:
                self._publish(key, result.gateways[key])
            if self._has_new_generation(key):
                changed.add(key)
        self._evaluate(result, changed)
        return result

    def _compile(self, previous: CompileResult) -> CompileResult:
        """Return the result of a new pass, or ``previous`` if no input changed (only reports)."""
        if not self._stale:
            return previous
        with self.compile_duration.time():
            result = self._compilation.run()
        self._stale = False
        self._compiled_at = time.monotonic()
        self.passes += 1
        return result

    def _publish(self, key: Key, compiled: CompiledGateway) -> None:
        name = published_name(key)
        if compiled.gateway is not None and compiled.published is not None:
            self._publisher.publish(
                name, compiled.controller, compiled.output, trial=compiled.trial
            )
            if self._quarantines.published(key, compiled.published, compiled.gateway):
                self._changed()

    def _has_new_generation(self, key: Key) -> bool:
        """Return whether a Gateway's generation is new, and is in its newest publication first."""
        state = self._states[key]
        generation = state.generation or 0
        if state.first_publication[0] == generation:
            return False
        state.first_publication = (
            generation,
            max(1, self._publisher.latest_number(published_name(key))),
        )
        return True

    def _withdraw(self, key: Key) -> None:
        """Stop serving a Gateway. Its inputs stay until the object is deleted."""
        self._publisher.withdraw(published_name(key))
        self._quarantines.withdraw(key)
        state = self._unpublished(key)
        state.instances = 0
        if state.generation is None:
            del self._states[key]
            self._report_inputs.forget(key)
            self._compilation.put_input(_programming(key), None)

    def _unpublished(self, key: Key) -> GatewayState:
        """Return the state of a Gateway after the end of its publication."""
        self._absences.forget(key)
        state = self._states[key]
        state.first_publication = UNPUBLISHED
        return state

    def _evaluate(self, result: CompileResult, gateways: Collection[Key]) -> None:
        """Update the inputs that follow from reports. A change requires another pass."""
        for key in sorted(gateways):
            if key not in result.gateways:
                continue
            state, name = self._states[key], published_name(key)
            (generation, first), report = state.first_publication, self._publisher.report(name)
            released = self._quarantines.reported(key, report)
            state.instances = len(report.instances)
            before = state.programmed or self._quarantines.stored_state(key)
            awaited = self._absences.is_awaited(
                key,
                connected=bool(report.instances),
                programmed=before.state.programmed or state.programmed is None,
            )
            state.programmed = evaluate_programmed(
                before,
                report,
                generation,
                state.provisioning_error,
                served=self._publisher.confirmed_number(name, report) >= first,
                awaited=awaited,
                incomplete=incomplete_now(self._quarantines.message(key), result.gateways[key]),
            )
            changed = self._compilation.put_input(_programming(key), state.programmed.state)
            changed |= self._report_inputs.update(
                key, result.gateways[key].controller, report, self._quarantines.findings(key)
            )
            if released or changed:
                self._changed()


def _is_replaced(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Return whether an object was deleted, also if there is another one of its name."""
    return new is None or (
        old is not None and old["metadata"].get("uid") != new["metadata"].get("uid")
    )


def _programming(key: Key) -> Key:
    return ("Programming", *key[1:])
