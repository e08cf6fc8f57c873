"""Applies file sets to NGINX by an endpoint update, or by a reload with rollback."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from gatehouse.agent.nginx import confirmation
from gatehouse.agent.nginx.apply_errors import ApplyError
from gatehouse.agent.nginx.apply_steps import ApplyResult, ApplyStep, OnStep, Steps, failed_result
from gatehouse.agent.nginx.manifests import EMPTY_MANIFEST, Manifest, ManifestEntry
from gatehouse.agent.nginx.paths import NginxPaths
from gatehouse.agent.nginx.revision_sidecars import RevisionSidecars
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.staging import Stager
from gatehouse.agent.nginx.supervisor import NginxSupervisor
from gatehouse.agent.nginx.upstreams import UpdateRejectedError, Upstreams, only_endpoints_differ
from gatehouse.agent.sidecars import SidecarProcess
from gatehouse.dataplane.features import NGINX_REJECTED
from kube_base.runtime.backoff import BackoffPolicy

log = structlog.get_logger("gatehouse.agent")

SEED_REMOVAL_IDLE_SECONDS = 5.0
"""Time in seconds without an apply before a reload that only removes obsolete seeds."""

RESYNC = BackoffPolicy(first=10.0, maximum=60.0)
"""Delay between comparisons of NGINX's endpoints. It grows with each failed comparison."""

Fetch = Callable[[Sequence[ManifestEntry]], Awaitable[None]]
"""Downloads missing contents into the store. Raises :class:`ApplyError` if it cannot."""


class Applier:
    """Applies one manifest at a time; concurrent calls wait."""

    def __init__(
        self,
        stager: Stager,
        paths: NginxPaths,
        revisions: RevisionStore,
        supervisor: NginxSupervisor,
        upstreams: Upstreams,
        sidecars: Sequence[SidecarProcess],
        on_step: OnStep = lambda _step: None,
    ) -> None:
        self.confirmed: str | None = None
        """Version confirmed to be served with its endpoints. None: unknown."""
        self.seen: str | None = None
        """Version that the workers report. Empty: NGINX runs without a file set. None: unknown."""
        self.reloads = 0
        self.endpoint_updates = 0
        """Number of endpoint updates without a reload."""
        self.applies = self.failures = 0
        """Number of applies, and of those that failed."""
        self.steps = Steps(on_step)
        self._stager = stager
        self._paths = paths
        self._revisions = revisions
        self._supervisor = supervisor
        self._confirm = functools.partial(
            confirmation.wait_confirmed, supervisor, paths.version_socket
        )
        self._upstreams = upstreams
        self._sidecars = RevisionSidecars(sidecars, revisions)
        self._lock = asyncio.Lock()
        self._load_seconds = confirmation.UNKNOWN_LOAD_SECONDS
        """Time in seconds in which NGINX read its files the last time."""
        self._applied_at = 0.0
        supervisor.before_start = self._seed

    async def start(self) -> None:
        """Adopt a running NGINX, or select the newest revision that passes the test."""
        await asyncio.to_thread(self._revisions.prepare)
        adopted = await self._supervisor.adopt()
        current = self._revisions.current()
        if not adopted or current is None:
            await self._select_revision()
            current = self._revisions.current()
        assert current is not None
        self._upstreams.adopt(self._revisions.manifest(current))
        self._sidecars.adopt()
        await self._sidecars.update()

    async def ensure_serving(self) -> None:
        """Ensure that the current revision is served. Call while the supervisor runs."""
        current = self._revisions.current()
        assert current is not None
        manifest = self._revisions.manifest(current)
        position = self._supervisor.error_log.position()
        served = await confirmation.served_version(self._paths.version_socket)
        old: frozenset[int] = frozenset()
        if self._supervisor.running and served is not None and served[0] != manifest.served:
            # The previous agent was killed between switching the link and reloading.
            old = await self._supervisor.reload()
        error = await self._confirm(manifest.served, old, position, confirmation.BASE_SECONDS)
        if error:
            await self._recover(current, error)
            return
        self.seen = manifest.served
        with contextlib.suppress(UpdateRejectedError):
            await self._push_endpoints(manifest)
        log.info("serving", version=manifest.version)
        await asyncio.to_thread(self._revisions.keep, current)
        if manifest.nameserver != self._upstreams.port:
            # Another process has the port that its upstreams query.
            await self._reload(manifest)

    async def _recover(self, current: int, error: str) -> None:
        """Return to the last known good revision if the current one was never confirmed."""
        good = self._revisions.last_known_good()
        log.warning("revision not served", revision=current, last_known_good=good, error=error)
        if good in (None, current) or error.startswith(confirmation.TIMEOUT_MESSAGE):
            return
        self._upstreams.adopt(self._revisions.manifest(good))
        await self._roll_back(good, confirmation.BASE_SECONDS)

    async def drop_seeds(self) -> None:
        """Remove seeds by a reload once NGINX no longer needs them, until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            async with self._lock:
                current = self._revisions.current()
                idle = time.monotonic() - self._applied_at
                if current is None or idle < SEED_REMOVAL_IDLE_SECONDS:
                    continue
                manifest = self._revisions.manifest(current)
                if not self._upstreams.seeds_obsolete(manifest):
                    continue
                result = await self._reload(manifest)
                self._applied_at = time.monotonic()
                log.info("seeds removed", upstreams=len(manifest.seeds), error=result.error)

    async def reconcile_endpoints(self) -> None:
        """Correct endpoints that others changed in a running NGINX, until cancelled."""
        failures = 0
        while True:
            await asyncio.sleep(RESYNC.delay(failures + 1))
            async with self._lock:
                current = self._revisions.current()
                if current is None or self.seen is None or not self._supervisor.running:
                    continue
                try:
                    await self._push_endpoints(self._revisions.manifest(current))
                    failures = 0
                except UpdateRejectedError:
                    failures += 1

    async def run_exclusively(self, operation: Callable[[], Awaitable[ApplyResult]]) -> ApplyResult:
        """Run another operation on NGINX while nothing is being applied."""
        async with self._lock:
            return await operation()

    async def _push_endpoints(self, manifest: Manifest) -> None:
        """Synchronize the endpoints of a loaded revision. Raises UpdateRejectedError."""
        try:
            await self._upstreams.reconcile(manifest)
        except (UpdateRejectedError, OSError, ValueError) as error:
            log.warning("endpoints not synchronized", error=str(error))
            raise UpdateRejectedError(str(error)) from error
        if manifest.served == self.seen:
            self.confirmed = manifest.version

    async def _select_revision(self) -> None:
        good, numbers = self._revisions.last_known_good(), self._revisions.numbers()
        # A revision that was only staged or tested may be what killed the previous agent.
        for number in sorted(numbers, key=lambda number: (number == good, number), reverse=True):
            try:
                self._revisions.activate(await self._recreated(number))
            except (ApplyError, OSError, msgspec.DecodeError) as error:
                log.warning("revision skipped", revision=number, error=str(error))
                continue
            return
        staged = await self._stage(EMPTY_MANIFEST)
        self._revisions.activate(staged)

    async def _recreated(self, number: int) -> int:
        """Return a revision with the files of `number` that passes the test.

        The main file is generated again because binary, user or run directory may have changed. If
        the disk accepts no new revision, the result is `number` itself.
        """
        try:
            staged = await self._stage(self._revisions.manifest(number))
        except OSError as error:
            log.warning("revision not recreated", revision=number, error=str(error))
            await asyncio.to_thread(self._stager.test, number)
            return number
        return staged

    def _seed(self) -> None:
        """Write the current endpoints as seeds for a new master, which has resolved none yet."""
        current = self._revisions.current()
        assert current is not None
        manifest = self._revisions.manifest(current)
        self._upstreams.before_restart(manifest)
        seeds = self._upstreams.seeds(manifest)
        if seeds != manifest.seeds:
            try:
                self._revisions.activate(self._stager.stage(manifest, seeds, self._upstreams.port))
            except OSError as error:
                # Start anyway: NGINX queries the newest endpoints right after its start.
                log.warning("seeds not updated before start", error=str(error))

    async def apply(self, manifest: Manifest, fetch: Fetch) -> ApplyResult:
        """Apply `manifest`. Never raises for an error that a configuration can cause."""
        async with self._lock:
            if manifest.version == self.confirmed and self._is_current(manifest):
                return ApplyResult("Config apply successful, no files to change")
            self.applies += 1
            result = await self._apply(manifest, fetch)
            self.failures += bool(result.error)
            return result

    async def _apply(self, manifest: Manifest, fetch: Fetch) -> ApplyResult:
        self.steps.begin()
        try:
            missing = await asyncio.to_thread(self._revisions.missing, manifest.entries)
            await fetch(missing)
            self.steps.reached(ApplyStep.FETCHED)
            log.info("files fetched", files=len(missing), bytes=sum(file.size for file in missing))
            if manifest.trial:
                # What is served stays.
                staged = await self._stage(manifest)
                await asyncio.to_thread(self._revisions.remove, staged)
                return ApplyResult("Config test successful")
            updated = await self._update(manifest)
        except (ApplyError, UpdateRejectedError, ValueError) as error:
            # Fetched contents stay, so that a retry need not fetch them again.
            return failed_result(error)
        except OSError as error:
            await asyncio.to_thread(self._revisions.sweep, self._revisions.numbers())
            return failed_result(error)
        return ApplyResult("Config apply successful") if updated else await self._reload(manifest)

    async def _update(self, manifest: Manifest) -> bool:
        """Update endpoints without a reload. Return False if a reload is needed."""
        current = self._revisions.current()
        if current is None or self.seen is None or not self._supervisor.running:
            return False
        running = self._revisions.manifest(current)
        if running.served != self.seen or not only_endpoints_differ(running, manifest):
            return False
        if not self._upstreams.can_update_without_reload(running, manifest):
            return False
        updated = msgspec.structs.replace(
            running, version=manifest.version, entries=manifest.entries, loaded=running.served
        )
        # Write to disk first: after a kill the next agent must not serve the old endpoints again.
        self._revisions.update_in_place(current, updated)
        self.steps.reached(ApplyStep.AMENDED)
        await self._sidecars.update_pools(running, manifest)
        if not await self._upstreams.update(manifest):
            return False
        self.steps.reached(ApplyStep.TAKEN)
        self.confirmed = manifest.version
        self.endpoint_updates += 1
        log.info("endpoints updated", version=manifest.version, seconds=self.steps.seconds)
        return True

    async def _reload(self, manifest: Manifest) -> ApplyResult:
        try:
            staged = await self._stage(manifest, self._loaded())
            await self._sidecars.prepare(staged)
            self.steps.reached(ApplyStep.ACCOMPANIED)
            self._upstreams.before_reload(manifest)
        except (ApplyError, OSError, ValueError) as error:
            return failed_result(error)
        self._applied_at = time.monotonic()
        timeout = confirmation.timeout_seconds(self._load_seconds)
        result = await self._activate(staged, manifest.version, timeout)
        if result.error:
            self._upstreams.reload_failed()
            return result
        try:
            await self._upstreams.after_reload(self._revisions.manifest(staged))
        except UpdateRejectedError as error:
            return failed_result(error)
        self.confirmed = manifest.version
        self._applied_at = time.monotonic()
        return result

    async def _activate(self, staged: int, version: str, seconds: float) -> ApplyResult:
        previous = self._revisions.current()
        position = self._supervisor.error_log.position()
        try:
            self._revisions.activate(staged)
        except OSError as error:
            await self._abandon()
            return failed_result(error)
        self.steps.reached(ApplyStep.SWITCHED)
        self.reloads += 1
        old = await self._supervisor.reload()
        self.steps.reached(ApplyStep.RELOADED)
        on_first = functools.partial(self.steps.reached, ApplyStep.ANSWERED)
        failure = await self._confirm(version, old, position, seconds, on_first)
        if not failure:
            self.steps.reached(ApplyStep.CONFIRMED)
            self._load_seconds = self.steps.seconds[ApplyStep.ANSWERED]
            self.seen, self.confirmed = version, None
            await self._sidecars.update()
            await asyncio.to_thread(self._revisions.keep, staged)
            self.steps.reached(ApplyStep.SWEPT)
            log.info("configuration applied", version=version, seconds=self.steps.seconds)
            return ApplyResult("Config apply successful")
        # Show paths as the control plane names them.
        failure = failure.replace(f"{self._paths.main_conf.parent}/", "")
        log.warning("apply failed", version=version, error=failure)
        self.steps.reached(ApplyStep.REFUSED)
        assert previous is not None
        timed_out = failure.startswith(confirmation.TIMEOUT_MESSAGE)
        what = "Config apply failed" if timed_out else NGINX_REJECTED
        if reason := await self._roll_back(previous, seconds):
            text = f"config apply error: {failure}\nrollback error: {reason}"
            return ApplyResult(f"{what}, rollback failed", text)
        return ApplyResult(f"{what}, rollback successful", failure)

    async def _roll_back(self, previous: int, seconds: float) -> str:
        """Activate the previous revision. Return why it is not served, empty if it is."""
        try:
            self._revisions.activate(previous)
        except OSError as error:
            return str(error)
        self.steps.reached(ApplyStep.RETURNED)
        restored = await self._restore(self._revisions.manifest(previous), seconds)
        await self._abandon()
        return "" if restored else "the previous version is not served"

    async def _restore(self, manifest: Manifest, seconds: float) -> bool:
        served = await confirmation.served_version(self._paths.version_socket)
        if served is not None and served[0] == manifest.served:
            # NGINX failed before it changed anything, so the old workers never stopped.
            if self.seen == manifest.served:
                return True
        else:
            self.seen = self.confirmed = None
            position = self._supervisor.error_log.position()
            old = await self._supervisor.reload()
            if await self._confirm(manifest.served, old, position, seconds):
                return False
        self.seen = manifest.served
        with contextlib.suppress(UpdateRejectedError):
            await self._push_endpoints(manifest)
        return True

    async def _abandon(self) -> None:
        """Keep the current revision and remove obsolete ones."""
        await self._sidecars.update()
        await asyncio.to_thread(self._revisions.sweep, [self._revisions.current()])

    def served(self) -> Manifest:
        """Return the confirmed manifest, or an empty one while that is unknown."""
        current = self._revisions.current()
        if current is None or self.confirmed is None:
            return EMPTY_MANIFEST
        manifest = self._revisions.manifest(current)
        return manifest if manifest.version == self.confirmed else EMPTY_MANIFEST

    def _is_current(self, manifest: Manifest) -> bool:
        current = self._revisions.current()
        return current is not None and self._revisions.manifest(current).same(manifest)

    def _loaded(self) -> int | None:
        """Return the revision that NGINX is known to have loaded, if any."""
        current = self._revisions.current()
        if current is None or not self._supervisor.running:
            return None
        return current if self._revisions.manifest(current).served == self.seen else None

    async def _stage(self, manifest: Manifest, loaded: int | None = None) -> int:
        """Create and test a revision. Return its number.

        `loaded`: the revision that NGINX has. Then only what differs is tested if that is enough.
        """
        seeds = await asyncio.to_thread(self._upstreams.seeds, manifest)
        staged = await asyncio.to_thread(self._stager.stage, manifest, seeds, self._upstreams.port)
        self.steps.reached(ApplyStep.STAGED)
        try:
            if loaded is None or not await asyncio.to_thread(
                self._stager.test_change, staged, loaded
            ):
                started_at = time.monotonic()
                await asyncio.to_thread(self._stager.test, staged)
                self._load_seconds = time.monotonic() - started_at
        except BaseException:
            await asyncio.to_thread(self._revisions.remove, staged)
            raise
        self.steps.reached(ApplyStep.TESTED)
        return staged
