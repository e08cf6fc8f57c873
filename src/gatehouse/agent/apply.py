"""From a wanted set of files to what NGINX serves: by name, by a confirmed reload, or back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from gatehouse.agent import confirmation, endpoints, live, main_conf, master, system_trust
from gatehouse.agent.companions import Companion, CompanionError
from gatehouse.agent.endpoints import Endpoints
from gatehouse.agent.error_log import message
from gatehouse.agent.generations import MAIN, SYSTEM_TRUST, Entry, Generations, Manifest
from gatehouse.agent.live import Live
from gatehouse.agent.nginx_binary import NginxBinary
from gatehouse.agent.places import Places
from gatehouse.agent.supervision import Supervisor

log = structlog.get_logger("gatehouse.agent")

TEST_SECONDS = 60.0
"""``nginx -t`` of 5,000 servers takes 2 s at most; beyond this it waits for something."""

QUIET_SECONDS = 5.0
"""How long nothing is to be applied before a reload only leaves out what is needed no more."""

EMPTY = Manifest(version="", entries=())


class ApplyError(Exception):
    """The configuration cannot be had or is not accepted; in NGINX's own words if it spoke."""


class Outcome(msgspec.Struct, frozen=True):
    """How an attempt to apply ended, in the words of the field's agent."""

    message: str
    error: str = ""


def _failed(error: Exception) -> Outcome:
    return Outcome("Config apply failed", str(error) or type(error).__name__)


Fetch = Callable[[Sequence[Entry]], Awaitable[None]]
"""Brings missing contents into the store; raises :class:`ApplyError` if it cannot."""


class Applier:
    """Applies one manifest at a time; the caller sees to that."""

    def __init__(
        self,
        binary: NginxBinary,
        places: Places,
        generations: Generations,
        supervisor: Supervisor,
        known: Live,
        companions: Sequence[Companion],
        *,
        workers: str,
        strict: bool = False,
    ) -> None:
        """``strict``: what NGINX warns of is refused as well."""
        self.confirmed: str | None = None
        """The version seen to be served; empty: that without any bundle; None: not seen yet."""
        self.reloads = 0
        self.endpoint_updates = 0
        """How often endpoints reached NGINX without a reload."""
        self.applies = self.failures = 0
        """How often something new was asked for, and how often that could not be served."""
        self.observe: Callable[[str, float], None] = lambda _step, _seconds: None
        """Told how long a step took, as :data:`gatehouse.agent.measurements.STEPS` names them."""
        self._binary = binary
        self._places = places
        self._generations = generations
        self._supervisor = supervisor
        self._live = known
        self._companions = companions
        self._workers = workers
        self._strict = strict
        self._turn = asyncio.Lock()
        self._applied_at = 0.0
        supervisor.before_start = self._seed

    async def begin(self) -> None:
        """Adopt a running NGINX, or choose the generation to start with: the last that passes."""
        await asyncio.to_thread(self._generations.prepare)
        adopted = await self._supervisor.adopt()
        current = self._generations.current()
        if not adopted or current is None:
            await self._choose()
            current = self._generations.current()
        assert current is not None
        self._live.adopt(self._generations.manifest(current))
        for companion in self._companions:
            companion.adopt()
        await self._accompany()

    async def settle(self) -> None:
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
        if await self._confirm(manifest.served, old, position, confirmation.BASE_SECONDS):
            return
        self.confirmed = manifest.version
        log.info("serving", version=manifest.version)
        if manifest.nameserver != self._live.nameserver.port:
            # Somebody else has the port at which its upstreams ask.
            await self._reload(manifest)

    async def shed_seeds(self) -> None:
        """Reload without what upstreams began with once they need it no more, until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            async with self._turn:
                current = self._generations.current()
                if current is None or time.monotonic() - self._applied_at < QUIET_SECONDS:
                    continue
                manifest = self._generations.manifest(current)
                if not manifest.seeds or self._live.unlearned(manifest.seeds):
                    continue
                outcome = await self._reload(manifest)
                log.info("seeds left out", upstreams=len(manifest.seeds), error=outcome.error)

    async def _choose(self) -> None:
        for number in reversed(self._generations.numbers()):
            try:
                manifest = self._generations.manifest(number)
                # The main file is written anew: binary, user or run directory may have changed.
                staged, _ = await self._stage(manifest)
            except (ApplyError, OSError, msgspec.DecodeError) as error:
                log.warning("generation passed over", number=number, reason=str(error))
                continue
            self._switch(staged, keep=number)
            return
        staged, _ = await self._stage(EMPTY)
        self._switch(staged, keep=staged)

    def _seed(self) -> None:
        """Have a new master begin with the endpoints there are now: it has learned none yet."""
        self._live.forget()
        current = self._generations.current()
        assert current is not None
        manifest = self._generations.manifest(current)
        seeds = self._live.unlearned(self._live.read(manifest))
        if seeds != manifest.seeds:
            self._generations.swap(self._make(manifest, seeds))

    async def apply(self, manifest: Manifest, fetch: Fetch) -> Outcome:
        """Apply ``manifest``; never raises for what a configuration can cause."""
        async with self._turn:
            if manifest.version == self.confirmed and self._is_current(manifest):
                return Outcome("Config apply successful, no files to change")
            self.applies += 1
            outcome = await self._apply(manifest, fetch)
            self.failures += bool(outcome.error)
            return outcome

    async def _apply(self, manifest: Manifest, fetch: Fetch) -> Outcome:
        try:
            missing = await asyncio.to_thread(self._generations.missing, manifest.entries)
            begun = time.monotonic()
            await fetch(missing)
            self.observe("fetch", time.monotonic() - begun)
            updated = await self._update(manifest)
        except (ApplyError, OSError, ValueError) as error:
            return _failed(error)
        return Outcome("Config apply successful") if updated else await self._reload(manifest)

    async def _update(self, manifest: Manifest) -> bool:
        """Bring endpoints to NGINX without a reload, if nothing else differs and it takes them."""
        current = self._generations.current()
        if current is None or self.confirmed is None or not self._supervisor.running:
            return False
        present = self._generations.manifest(current)
        if present.version != self.confirmed or not live.only_endpoints_differ(present, manifest):
            return False
        known = self._live.read(manifest)
        if not live.seeds_remain(present, known):
            return False
        amended = msgspec.structs.replace(
            present, version=manifest.version, entries=manifest.entries, loaded=present.served
        )
        # First on disk: an agent that is killed now must not answer with older ones again.
        self._generations.amend(current, amended)
        changed = self._live.offer(known)
        if not await self._live.nameserver.taken(changed, live.TAKEN_SECONDS):
            log.warning("endpoints not taken without a reload", upstreams=changed[:10])
            return False
        self.confirmed = manifest.version
        self.endpoint_updates += 1
        log.info("endpoints applied", version=manifest.version, upstreams=len(changed))
        return True

    async def _reload(self, manifest: Manifest) -> Outcome:
        try:
            known = self._live.read(manifest)
            staged, seconds = await self._stage(manifest)
            await self._accompany_also(staged)
        except (ApplyError, OSError, ValueError) as error:
            return _failed(error)
        self._applied_at = time.monotonic()
        before = self._live.nameserver.known()
        self._live.offer(known)
        self._live.nameserver.replaced()
        outcome = await self._go_live(staged, manifest.version, confirmation.patience(seconds))
        if outcome.error:
            self._live.nameserver.retained()
            self._live.nameserver.publish(before)
            return outcome
        self._live.loaded(known, self._generations.manifest(staged).seeds)
        changed = [name for name, found in known.items() if before.get(name, found) != found]
        if not await self._live.nameserver.taken(changed, live.LOADED_SECONDS):
            log.warning("endpoints not taken yet", upstreams=changed[:10])
        self._applied_at = time.monotonic()
        return outcome

    async def _go_live(self, staged: int, version: str, seconds: float) -> Outcome:
        previous = self._generations.current()
        position = self._supervisor.error_log.position()
        self._generations.swap(staged)
        self.reloads += 1
        begun = answered = time.monotonic()
        old = self._supervisor.reload()

        def on_first() -> None:
            nonlocal answered
            answered = time.monotonic()

        error = await self._confirm(version, old, position, seconds, on_first)
        if not error:
            self.observe("reload", answered - begun)
            self.observe("confirm", time.monotonic() - answered)
            self.confirmed = version
            await self._accompany()
            keep = {staged} if previous is None else {staged, previous}
            await asyncio.to_thread(self._generations.sweep, keep)
            log.info("applied", version=version, generation=staged)
            return Outcome("Config apply successful")
        log.warning("apply failed", version=version, reason=error)
        assert previous is not None
        self._generations.swap(previous)
        restored = await self._restore(self._generations.manifest(previous), seconds)
        await self._accompany()
        await asyncio.to_thread(self._generations.sweep, {previous})
        if restored:
            return Outcome("Config apply failed, rollback successful", error)
        return Outcome(
            "Config apply failed, rollback failed",
            f"config apply error: {error}\nrollback error: the old version is not served",
        )

    async def _restore(self, manifest: Manifest, seconds: float) -> bool:
        answer = await confirmation.served_version(self._places.version_socket)
        if answer is not None and answer[0] == manifest.served:
            # NGINX refused before it changed anything, so the old workers never stopped.
            return True
        self.confirmed = None
        position = self._supervisor.error_log.position()
        old = self._supervisor.reload()
        if await self._confirm(manifest.served, old, position, seconds):
            return False
        self.confirmed = manifest.version
        return True

    async def _accompany_also(self, staged: int) -> None:
        """Have companions ready for old and new workers; the old ones keep what they have."""
        directories = [*map(self._generations.directory, [*self._current(), staged])]
        try:
            for companion in self._companions:
                await companion.serve(*directories)
        except CompanionError as error:
            await self._accompany()
            await asyncio.to_thread(self._generations.sweep, self._current())
            raise ApplyError(str(error)) from error

    async def _accompany(self) -> None:
        """Have companions serve the current generation, as far as they can."""
        for companion in self._companions:
            try:
                await companion.serve(*map(self._generations.directory, self._current()))
            except CompanionError as error:
                log.warning(f"{companion.name} does not serve", reason=str(error))

    def _current(self) -> list[int]:
        current = self._generations.current()
        return [] if current is None else [current]

    async def _confirm(
        self,
        version: str,
        old: frozenset[int],
        position: int,
        seconds: float,
        on_first: Callable[[], None] = lambda: None,
    ) -> str:
        socket = self._places.version_socket
        return await confirmation.confirm(
            self._supervisor, socket, version, old, position, seconds, on_first
        )

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

    def _make(self, manifest: Manifest, seeds: Mapping[str, Endpoints]) -> int:
        """Make a generation of what is in the store; returns its number."""
        port = self._live.nameserver.port
        text = main_conf.render(
            self._binary,
            self._places,
            manifest.version,
            {entry.path for entry in manifest.entries},
            workers=self._workers,
            # Else the workers of a root master would become "nobody", who may not open the
            # temporary directories; a root without capabilities is a sandbox's root.
            user="root" if os.geteuid() == 0 else "",
            nameserver=port,
        )
        made = Manifest(manifest.version, manifest.entries, nameserver=port, seeds=seeds)
        own: dict[str, str | Path] = {MAIN: text, **endpoints.seed_files(seeds)}
        if trusted := system_trust.bundle():
            own[SYSTEM_TRUST] = trusted
        return self._generations.stage(made, own)

    async def _stage(self, manifest: Manifest) -> tuple[int, float]:
        """Make and test a generation; returns its number and how long the test took."""
        seeds = self._live.unlearned(await asyncio.to_thread(self._live.read, manifest))
        staged = await asyncio.to_thread(self._make, manifest, seeds)
        begun = time.monotonic()
        try:
            await asyncio.to_thread(self._test, staged)
        except BaseException:
            kept = set(self._generations.numbers()) - {staged}
            await asyncio.to_thread(self._generations.sweep, kept)
            raise
        seconds = time.monotonic() - begun
        self.observe("test", seconds)
        return staged, seconds

    def _test(self, number: int) -> None:
        conf = self._generations.directory(number) / MAIN
        command = [*master.command(self._binary, self._places, conf), "-t", "-q"]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                timeout=TEST_SECONDS,
                check=False,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise ApplyError(f"nginx -t took more than {TEST_SECONDS:g} s") from error
        if done.returncode != 0 or (self._strict and "[warn]" in done.stderr):
            said = [message(line) for line in done.stderr.splitlines()]
            text = "; ".join(line for line in said if line and "test failed" not in line)
            # Paths as the control plane knows them, not where this agent keeps generations.
            text = text.replace(f"{conf.parent}/", "")
            raise ApplyError(text or f"nginx -t ended with status {done.returncode}")

    def _switch(self, number: int, keep: int) -> None:
        self._generations.swap(number)
        self._generations.sweep({number, keep})
