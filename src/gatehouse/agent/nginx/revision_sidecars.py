"""Configures the sidecars beside NGINX for the revisions that its workers serve."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from gatehouse.agent.nginx.apply_errors import ApplyError
from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.sidecars import SidecarError, SidecarProcess
from gatehouse.dataplane.endpoints import is_pool_file

log = structlog.get_logger("gatehouse.agent")


class RevisionSidecars:
    """The sidecars of one NGINX."""

    def __init__(self, sidecars: Sequence[SidecarProcess], revisions: RevisionStore) -> None:
        self._sidecars = sidecars
        self._revisions = revisions

    def adopt(self) -> None:
        """Adopt running sidecars."""
        for sidecar in self._sidecars:
            sidecar.adopt()

    async def prepare(self, staged: int) -> None:
        """Configure the sidecars for old and new workers.

        Raises ApplyError; then the staged revision is removed.
        """
        directories = [*map(self._revisions.directory, [*self._served(), staged])]
        try:
            for sidecar in self._sidecars:
                await sidecar.serve(*directories)
        except SidecarError as error:
            await self.update()
            await asyncio.to_thread(self._revisions.remove, staged)
            raise ApplyError(str(error)) from error

    async def update(self) -> None:
        """Configure the sidecars for the current revision. Failures are only logged."""
        for sidecar in self._sidecars:
            try:
                await sidecar.serve(*map(self._revisions.directory, self._served()))
            except SidecarError as error:
                log.warning(f"{sidecar.name} not configured", error=str(error))

    async def update_pools(self, before: Manifest, after: Manifest) -> None:
        """Configure the sidecars if the endpoints of pools changed in the current revision."""
        if _pool_digests(before) != _pool_digests(after):
            await self.update()

    def _served(self) -> list[int]:
        """Return the current revision, if there is one."""
        current = self._revisions.current()
        return [] if current is None else [current]


def _pool_digests(manifest: Manifest) -> dict[str, str]:
    return {entry.path: entry.digest for entry in manifest.entries if is_pool_file(entry.path)}
