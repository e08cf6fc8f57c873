"""From a wanted set of files to what NGINX serves: by name, by a confirmed reload, or back."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from gatehouse.agent.nginx import confirmation, upstreams
from gatehouse.agent.nginx.apply_steps import ApplyResult, OnStep, Step, Steps
from gatehouse.agent.nginx.manifests import Entry, Manifest
from gatehouse.agent.nginx.paths import Places
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.staging import ApplyError, Stager
from gatehouse.agent.nginx.supervisor import Supervisor
from gatehouse.agent.nginx.upstreams import UpdateRejectedError, Upstreams
from gatehouse.agent.sidecars import SidecarError, SidecarProcess

log = structlog.get_logger("gatehouse.agent")

SEED_REMOVAL_IDLE_SECONDS = 5.0
"""How long nothing is to be applied before a reload only leaves out what is needed no more."""

RESYNC_SECONDS = 10.0
STEP_MAX = 60.0
"""Seconds between looks at what NGINX has: always, and after failures."""

EMPTY = Manifest(version="", entries=())


def _failed(error: Exception) -> ApplyResult:
    return ApplyResult("Config apply failed", str(error) or type(error).__name__)


Fetch = Callable[[Sequence[Entry]], Awaitable[None]]
"""Brings missing contents into the store; raises :class:`ApplyError` if it cannot."""


class Applier:
    """Applies one manifest at a time; the caller sees to that."""

    def __init__(
        self,
        stager: Stager,
        places: Places,
        generations: RevisionStore,
        supervisor: Supervisor,
        known: Upstreams,
        companions: Sequence[SidecarProcess],
        on_step: OnStep = lambda _step: None,
    ) -> None:
        self.confirmed: str | None = None
        """The version seen to be served, with its endpoints; None: that is not known."""
        self.seen: str | None = None
        """The version that workers answer with; empty: that without any bundle."""
        self.reloads = 0
        self.endpoint_updates = 0
        """How often endpoints reached NGINX without a reload."""
        self.applies = self.failures = 0
        """How often something new was asked for, and how often that could not be served."""
        self.steps = Steps(on_step)
        self._stager = stager
        self._places = places
        self._generations = generations
        self._supervisor = supervisor
        self._confirm = functools.partial(
            confirmation.wait_confirmed, supervisor, places.version_socket
        )
        self._live = known
        self._companions = companions
        self._turn = asyncio.Lock()
        self._applied_at = 0.0
        supervisor.before_start = self._seed

    async def start(self) -> None:
        """Adopt a running NGINX, or choose the generation to start with: the last that passes."""
        await asyncio.to_thread(self._generations.prepare)
        adopted = await self._supervisor.adopt()
        current = self._generations.current()
        if not adopted or current is None:
            await self._select_revision()
            current = self._generations.current()
        assert current is not None
        self._live.adopt(self._generations.manifest(current))
        for companion in self._companions:
            companion.adopt()
        await self._update_sidecars()

    async def ensure_serving(self) -> None:
        """See to it that the current generation is served; call when the supervisor runs."""
        current = self._generations.current()
        assert current is not None
        manifest = self._generations.manifest(current)
        position = self._supervisor.error_log.position()
        answer = await confirmation.served_version(self._places.version_socket)
        old: frozenset[int] = frozenset()
        if self._supervisor.running and answer is not None and answer[0] != manifest.served:
            # The agent was killed between swapping the link and reloading.
            old = self._supervisor.reload()
        error = await self._confirm(manifest.served, old, position, confirmation.BASE_SECONDS)
        if error:
            await self._recover(current, error)
            return
        self.seen = manifest.served
        with contextlib.suppress(UpdateRejectedError):
            await self._push_endpoints(manifest)
        log.info("serving", version=manifest.version)
        former = [number for number in self._generations.numbers() if number < current]
        await asyncio.to_thread(self._generations.keep, current, *former[-1:])
        if manifest.nameserver != self._live.port:
            # Somebody else has the port at which its upstreams ask.
            await self._reload(manifest)

    async def _recover(self, current: int, error: str) -> None:
        """Go back to what was served, if the agent was killed before it knew that this is not."""
        proven = self._generations.last_known_good()
        log.warning("not serving", generation=current, proven=proven, reason=error)
        if proven in (None, current) or error.startswith(confirmation.TIMEOUT_MESSAGE):
            return
        self._live.adopt(self._generations.manifest(proven))
        await self._roll_back(proven, confirmation.BASE_SECONDS)

    async def drop_seeds(self) -> None:
        """Reload without what upstreams began with once they need it no more, until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            async with self._turn:
                current = self._generations.current()
                if (
                    current is None
                    or time.monotonic() - self._applied_at < SEED_REMOVAL_IDLE_SECONDS
                ):
                    continue
                manifest = self._generations.manifest(current)
                if not self._live.seeds_obsolete(manifest):
                    continue
                outcome = await self._reload(manifest)
                self._applied_at = time.monotonic()
                log.info("seeds left out", upstreams=len(manifest.seeds), error=outcome.error)

    async def reconcile_endpoints(self) -> None:
        """Set right, again and again, what others change in a running NGINX, until cancelled."""
        pause = RESYNC_SECONDS
        while True:
            await asyncio.sleep(pause)
            async with self._turn:
                current = self._generations.current()
                if current is None or self.seen is None or not self._supervisor.running:
                    continue
                try:
                    await self._push_endpoints(self._generations.manifest(current))
                    pause = RESYNC_SECONDS
                except UpdateRejectedError:
                    pause = min(2 * pause, STEP_MAX)

    async def run_exclusively(self, act: Callable[[], Awaitable[ApplyResult]]) -> ApplyResult:
        """Do something else to NGINX, when nothing is being applied."""
        async with self._turn:
            return await act()

    async def _push_endpoints(self, manifest: Manifest) -> None:
        """See to it that NGINX has the endpoints of a generation whose text it has."""
        try:
            await self._live.reconcile(manifest)
        except (UpdateRejectedError, OSError, ValueError) as error:
            log.warning("endpoints not in step", reason=str(error))
            raise UpdateRejectedError(str(error)) from error
        if manifest.served == self.seen:
            self.confirmed = manifest.version

    async def _select_revision(self) -> None:
        proven, numbers = self._generations.last_known_good(), self._generations.numbers()
        # One that was only made, or only tested, may be what the former agent died of.
        for number in sorted(numbers, key=lambda each: (each == proven, each), reverse=True):
            try:
                self._generations.activate(await self._renewed(number))
            except (ApplyError, OSError, msgspec.DecodeError) as error:
                log.warning("generation passed over", number=number, reason=str(error))
                continue
            return
        staged, _ = await self._stage(EMPTY)
        self._generations.activate(staged)

    async def _renewed(self, number: int) -> int:
        """Give one like ``number`` that passes: itself, if the disk takes no other.

        The main file is written anew: binary, user or run directory may have changed.
        """
        try:
            staged, _ = await self._stage(self._generations.manifest(number))
        except OSError as error:
            log.warning("generation not made anew", number=number, reason=str(error))
            await asyncio.to_thread(self._stager.test, number)
            return number
        return staged

    def _seed(self) -> None:
        """Have a new master begin with the endpoints there are now: it has learned none yet."""
        current = self._generations.current()
        assert current is not None
        manifest = self._generations.manifest(current)
        self._live.before_restart(manifest)
        seeds = self._live.seeds(manifest)
        if seeds != manifest.seeds:
            try:
                self._generations.activate(self._stager.make(manifest, seeds, self._live.port))
            except OSError as error:
                # Better late, for it asks at once, than not at all.
                log.warning("nginx begins without the newest endpoints", reason=str(error))

    async def apply(self, manifest: Manifest, fetch: Fetch) -> ApplyResult:
        """Apply ``manifest``; never raises for what a configuration can cause."""
        async with self._turn:
            if manifest.version == self.confirmed and self._is_current(manifest):
                return ApplyResult("Config apply successful, no files to change")
            self.applies += 1
            outcome = await self._apply(manifest, fetch)
            self.failures += bool(outcome.error)
            return outcome

    async def _apply(self, manifest: Manifest, fetch: Fetch) -> ApplyResult:
        self.steps.begin()
        try:
            missing = await asyncio.to_thread(self._generations.missing, manifest.entries)
            await fetch(missing)
            self.steps.reached(Step.FETCHED)
            log.info("fetched", files=len(missing), bytes=sum(each.size for each in missing))
            updated = await self._update(manifest)
        except (ApplyError, UpdateRejectedError, ValueError) as error:
            # What was fetched stays: it need not be fetched again.
            return _failed(error)
        except OSError as error:
            await asyncio.to_thread(self._generations.sweep, self._generations.numbers())
            return _failed(error)
        return ApplyResult("Config apply successful") if updated else await self._reload(manifest)

    async def _update(self, manifest: Manifest) -> bool:
        """Bring endpoints to NGINX without a reload, if nothing else differs and it takes them."""
        current = self._generations.current()
        if current is None or self.seen is None or not self._supervisor.running:
            return False
        present = self._generations.manifest(current)
        if present.served != self.seen or not upstreams.only_endpoints_differ(present, manifest):
            return False
        if not self._live.can_update_without_reload(present, manifest):
            return False
        amended = msgspec.structs.replace(
            present, version=manifest.version, entries=manifest.entries, loaded=present.served
        )
        # First on disk: an agent that is killed now must not answer with older ones again.
        self._generations.update_in_place(current, amended)
        self.steps.reached(Step.AMENDED)
        if not await self._live.update(manifest):
            return False
        self.steps.reached(Step.TAKEN)
        self.confirmed = manifest.version
        self.endpoint_updates += 1
        log.info("endpoints applied", version=manifest.version, seconds=self.steps.seconds)
        return True

    async def _reload(self, manifest: Manifest) -> ApplyResult:
        try:
            staged, seconds = await self._stage(manifest)
            await self._prepare_sidecars(staged)
            self.steps.reached(Step.ACCOMPANIED)
            self._live.before_reload(manifest)
        except (ApplyError, OSError, ValueError) as error:
            return _failed(error)
        self._applied_at = time.monotonic()
        outcome = await self._activate(
            staged, manifest.version, confirmation.timeout_seconds(seconds)
        )
        if outcome.error:
            self._live.reload_failed()
            return outcome
        try:
            await self._live.after_reload(self._generations.manifest(staged))
        except UpdateRejectedError as error:
            return _failed(error)
        self.confirmed = manifest.version
        self._applied_at = time.monotonic()
        return outcome

    async def _activate(self, staged: int, version: str, seconds: float) -> ApplyResult:
        previous = self._generations.current()
        position = self._supervisor.error_log.position()
        try:
            self._generations.activate(staged)
        except OSError as trouble:
            await self._abandon()
            return _failed(trouble)
        self.steps.reached(Step.SWITCHED)
        self.reloads += 1
        old = self._supervisor.reload()
        self.steps.reached(Step.RELOADED)
        answered = functools.partial(self.steps.reached, Step.ANSWERED)
        error = await self._confirm(version, old, position, seconds, answered)
        if not error:
            self.steps.reached(Step.CONFIRMED)
            self.seen, self.confirmed = version, None
            await self._update_sidecars()
            await asyncio.to_thread(self._generations.keep, staged, previous)
            self.steps.reached(Step.SWEPT)
            log.info("applied", version=version, seconds=self.steps.seconds)
            return ApplyResult("Config apply successful")
        log.warning("apply failed", version=version, reason=error)
        self.steps.reached(Step.REFUSED)
        assert previous is not None
        if why := await self._roll_back(previous, seconds):
            text = f"config apply error: {error}\nrollback error: {why}"
            return ApplyResult("Config apply failed, rollback failed", text)
        return ApplyResult("Config apply failed, rollback successful", error)

    async def _roll_back(self, previous: int, seconds: float) -> str:
        """Have the former generation served again; returns why it is not, empty when it is."""
        try:
            self._generations.activate(previous)
        except OSError as error:
            return str(error)
        self.steps.reached(Step.RETURNED)
        restored = await self._restore(self._generations.manifest(previous), seconds)
        await self._abandon()
        return "" if restored else "the old version is not served"

    async def _restore(self, manifest: Manifest, seconds: float) -> bool:
        answer = await confirmation.served_version(self._places.version_socket)
        if answer is not None and answer[0] == manifest.served:
            # NGINX refused before it changed anything, so the old workers never stopped.
            if self.seen == manifest.served:
                return True
        else:
            self.seen = self.confirmed = None
            position = self._supervisor.error_log.position()
            old = self._supervisor.reload()
            if await self._confirm(manifest.served, old, position, seconds):
                return False
        self.seen = manifest.served
        with contextlib.suppress(UpdateRejectedError):
            await self._push_endpoints(manifest)
        return True

    async def _prepare_sidecars(self, staged: int) -> None:
        """Have companions ready for old and new workers; the old ones keep what they have."""
        directories = [*map(self._generations.directory, [*self._current(), staged])]
        try:
            for companion in self._companions:
                await companion.serve(*directories)
        except SidecarError as error:
            await self._abandon()
            raise ApplyError(str(error)) from error

    async def _abandon(self) -> None:
        """Stay with what is served."""
        await self._update_sidecars()
        await asyncio.to_thread(self._generations.sweep, self._current())

    async def _update_sidecars(self) -> None:
        """Have companions serve the current generation, as far as they can."""
        for companion in self._companions:
            try:
                await companion.serve(*map(self._generations.directory, self._current()))
            except SidecarError as error:
                log.warning(f"{companion.name} does not serve", reason=str(error))

    def _current(self) -> list[int]:
        current = self._generations.current()
        return [] if current is None else [current]

    def served(self) -> Manifest:
        """What was seen to be served; empty while that is not known."""
        current = self._generations.current()
        if current is None or self.confirmed is None:
            return EMPTY
        manifest = self._generations.manifest(current)
        return manifest if manifest.version == self.confirmed else EMPTY

    def _is_current(self, manifest: Manifest) -> bool:
        current = self._generations.current()
        return current is not None and self._generations.manifest(current).same(manifest)

    async def _stage(self, manifest: Manifest) -> tuple[int, float]:
        """Make and test a generation; returns its number and how long the test took."""
        seeds = await asyncio.to_thread(self._live.seeds, manifest)
        staged = await asyncio.to_thread(self._stager.make, manifest, seeds, self._live.port)
        self.steps.reached(Step.STAGED)
        begun = time.monotonic()
        try:
            await asyncio.to_thread(self._stager.test, staged)
        except BaseException:
            await asyncio.to_thread(self._generations.remove, staged)
            raise
        self.steps.reached(Step.TESTED)
        return staged, time.monotonic() - begun
