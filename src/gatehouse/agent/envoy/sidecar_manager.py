"""Has companions of an Envoy do what the control plane describes, and tells it what they refuse."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from gatehouse.agent import secure_files
from gatehouse.agent.envoy.paths import Places
from gatehouse.agent.envoy.relay import Relay
from gatehouse.agent.sidecars import ConfigRejectedError, SidecarError, SidecarProcess
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import Resource

log = structlog.get_logger("gatehouse.agent")

RETRY_SECONDS = 10.0
"""After so long a companion that failed is tried again."""


class SidecarManager:
    """The companions of one Envoy. ``flush``: called when there is something to answer."""

    def __init__(
        self,
        owners: Sequence[SidecarProcess],
        places: Places,
        relay: Relay,
        flush: Callable[[], None],
    ) -> None:
        self.owners = owners
        self._places = places
        self._relay = relay
        self._flush = flush
        self._woken = asyncio.Event()
        self._told: Mapping[str, Resource] | None = None
        self._served: dict[str, dict[str, Resource]] = {each.name: {} for each in owners}
        """What each companion was seen to take, by name of the resource."""
        self._failed = False
        """Whether a companion failed, which says nothing of what it was told."""

    def wake(self) -> None:
        """See whether something else is described."""
        self._woken.set()

    async def begin(self) -> None:
        """Adopt companions that an earlier agent started, and have them do what was described."""
        # Those that run have read what they were told; it may be of resources that are there no
        # more.
        shutil.rmtree(self._places.described, ignore_errors=True)
        for owner in self.owners:
            owner.adopt()
        await self._tell()

    async def run(self) -> None:
        """Have companions do what is described, whenever that changes, until cancelled."""
        while True:
            self._woken.clear()
            if self._relay.described is not self._told:
                await self._tell()
                continue
            try:
                async with asyncio.timeout(RETRY_SECONDS if self._failed else None):
                    await self._woken.wait()
            except TimeoutError:
                # What was refused because of a failure is to be heard again.
                self._relay.doubtful = True
                await self._tell()

    async def _tell(self) -> None:
        wanted, refused = self._relay.described, dict[str, str]()
        self._failed = False
        by_companion: dict[str, dict[str, Resource]] = {each.name: {} for each in self.owners}
        for name, each in wanted.items():
            described = by_companion.get(sidecar_configs.companion(each))
            reason = "this agent has no such companion" if described is None else self._write(each)
            if reason:
                refused[name] = reason
            elif described is not None:
                described[name] = each
        for owner in self.owners:
            refused |= await self._serve(owner, by_companion[owner.name])
        for name, reason in refused.items():
            log.warning("companion does not do what is described", resource=name, reason=reason)
        newest = self._relay.described is wanted
        self._relay.on_sidecar_result(wanted, refused)
        self._told = self._relay.described if newest else wanted
        self._sweep(wanted)
        self._flush()

    async def _serve(self, owner: SidecarProcess, wanted: dict[str, Resource]) -> dict[str, str]:
        """Have a companion do what is wanted; gives what it does not, and why."""
        served = self._served[owner.name]
        if not (wanted or served or owner.running):
            return {}
        try:
            await owner.serve(*self._directories(wanted))
        except ConfigRejectedError:
            good = {name: each for name, each in served.items() if name in wanted}
            return await self._serve_each(owner, good, wanted)
        except SidecarError as error:
            self._failed = True
            return dict.fromkeys(wanted, str(error))
        self._served[owner.name] = dict(wanted)
        return {}

    async def _serve_each(
        self, owner: SidecarProcess, good: dict[str, Resource], wanted: dict[str, Resource]
    ) -> dict[str, str]:
        """Have it do all that it does not refuse."""
        refused: dict[str, str] = {}
        for name, each in wanted.items():
            if good.get(name) != each:
                tried = {**good, name: each}
                try:
                    await owner.serve(*self._directories(tried))
                    good = tried
                except SidecarError as error:
                    refused[name] = str(error)
                    self._failed |= not isinstance(error, ConfigRejectedError)
        try:
            await owner.serve(*self._directories(good))
        except SidecarError as error:
            self._failed = True
            log.warning(f"{owner.name} does not serve", reason=str(error))
        self._served[owner.name] = good
        return refused

    def _directories(self, resources: Mapping[str, Resource]) -> list[Path]:
        return [self._directory(each) for _, each in sorted(resources.items())]

    def _directory(self, found: Resource) -> Path:
        name = hashlib.sha256(f"{found.name}\0{found.version}".encode()).hexdigest()[:32]
        return self._places.described / sidecar_configs.companion(found) / name

    def _write(self, found: Resource) -> str:
        """Write what a companion is told, unless it is there; gives why it cannot be."""
        directory = self._directory(found)
        if directory.is_dir():
            return ""
        try:
            described = sidecar_configs.files(found)
            made = directory.with_suffix(".new")
            shutil.rmtree(made, ignore_errors=True)
            secure_files.make_private_dir(made)
            for path, content in described.items():
                secure_files.make_private_dir((made / path).parent)
                secure_files.write_private_file(made / path, content)
            # What a machine trusts is named alike in all that proxies and companions are told.
            trusted = made / self._places.system_trust.name
            if not trusted.exists():
                trusted.symlink_to(self._places.system_trust)
            made.rename(directory)
        except ValueError as error:
            return str(error)
        except OSError as error:
            self._failed = True
            return f"{error.strerror}: {error.filename}"
        return ""

    def _sweep(self, told: Mapping[str, Resource]) -> None:
        """Remove what no companion is told any more."""
        used = [told, self._relay.described, *self._served.values()]
        kept = {self._directory(each) for resources in used for each in resources.values()}
        for found in self._places.described.glob("*/*"):
            if found not in kept:
                shutil.rmtree(found, ignore_errors=True)
