"""Synchronization of endpoints and key-value zones in a running NGINX Plus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.plus import keyvals, server_diff, state_files
from gatehouse.agent.nginx.plus.client import Api, PlusApiError
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.upstreams import EndpointReader, UpdateRejectedError
from gatehouse.dataplane.endpoints import Endpoints, stream_endpoints_file

log = structlog.get_logger("gatehouse.agent")

PARALLEL = 8
"""Maximum number of upstreams changed concurrently."""


class PlusUpstreams:
    """Implements :class:`~gatehouse.agent.nginx.upstreams.Upstreams` by API and state files."""

    def __init__(self, socket: Path, states: Path, revisions: RevisionStore) -> None:
        self._socket, self._states = socket, states
        self._revisions = revisions
        self._reader = EndpointReader(revisions)
        self._known: dict[str, Endpoints] = {}
        """Endpoints that NGINX is known to have, by upstream. Uncertain ones are omitted."""
        self._before: dict[str, Endpoints] = {}

    @property
    def port(self) -> int:
        """Return 0, because NGINX Plus does not use the name server."""
        return 0

    def adopt(self, manifest: Manifest) -> None:
        """Forget the known endpoints. The next comparison reads them."""
        self._reader.read(manifest)
        self._known = {}

    def before_restart(self, manifest: Manifest) -> None:
        """Write all state files, so that a new master starts with the current endpoints."""
        endpoints = self._reader.read(manifest)
        for name, servers in endpoints.items():
            state_files.write_state(self._states, name, servers)
        self._known = endpoints

    def seeds(self, manifest: Manifest) -> Mapping[str, Endpoints]:
        """Write the state files of new upstreams. Return no seeds, since none are in the revision.

        Existing state files hold what NGINX would start with if it died now.
        """
        for name, servers in self._reader.read(manifest).items():
            if not state_files.exists(self._states, name):
                state_files.write_state(self._states, name, servers)
        return {}

    def seeds_obsolete(self, manifest: Manifest) -> bool:
        """Return whether there are seeds, which only another NGINX needed."""
        return bool(manifest.seeds)

    def can_update_without_reload(self, present: Manifest, desired: Manifest) -> bool:
        """Return whether the API suffices: always, unless the running revision has seeds."""
        del desired
        return not present.seeds

    async def update(self, manifest: Manifest) -> bool:
        """Update the upstreams that differ from what NGINX is known to have."""
        endpoints = self._reader.read(manifest)
        changed = [name for name, servers in endpoints.items() if self._known.get(name) != servers]
        await self._synchronise(Api(self._socket), manifest, changed, endpoints)
        return True

    def before_reload(self, manifest: Manifest) -> None:
        """Write the changed state files, which new workers read."""
        endpoints = self._reader.read(manifest)
        self._before = dict(self._known)
        for name, servers in endpoints.items():
            if self._known.get(name) != servers:
                self._known.pop(name, None)
                state_files.write_state(self._states, name, servers)

    def reload_failed(self) -> None:
        """Restore the state files to what the workers have, which continue."""
        for name, servers in self._before.items():
            if name not in self._known:
                state_files.write_state(self._states, name, servers)
        self._known = self._before

    async def after_reload(self, manifest: Manifest) -> None:
        """Compare everything, because a change during a reload may be lost."""
        await self.reconcile(manifest)
        upstreams = set(self._known)
        await asyncio.to_thread(state_files.remove_unused, self._states, upstreams)

    async def reconcile(self, manifest: Manifest) -> None:
        """Compare everything and correct what differs."""
        endpoints = self._reader.read(manifest)
        self._known = {name: servers for name, servers in self._known.items() if name in endpoints}
        api = Api(self._socket)
        changed = await self._differing(api, manifest, endpoints)
        await self._synchronise(api, manifest, changed, endpoints)

    async def _differing(
        self, api: Api, manifest: Manifest, endpoints: Mapping[str, Endpoints]
    ) -> list[str]:
        kinds = _kinds(manifest, endpoints)
        try:
            status = {
                kind: await api.get(kind, "upstreams") for kind in sorted(set(kinds.values()))
            }
            present = [
                name
                for name, servers in endpoints.items()
                if _has(status[kinds[name]], name, servers)
            ]
        except PlusApiError as error:
            self._known.clear()
            raise UpdateRejectedError(f"NGINX Plus' API: {error}") from error
        except (LookupError, TypeError, AttributeError) as error:
            self._known.clear()
            raise UpdateRejectedError(f"NGINX Plus' API shows no upstreams: {error}") from error
        matching = {name: endpoints[name] for name in present}
        self._known |= matching
        return [name for name in endpoints if name not in matching]

    async def _synchronise(
        self,
        api: Api,
        manifest: Manifest,
        changed: Sequence[str],
        endpoints: Mapping[str, Endpoints],
    ) -> None:
        """Change upstreams and zones independently: a failure in one does not stop the others.

        Raises UpdateRejectedError.
        """
        kinds = _kinds(manifest, changed)
        slots = asyncio.Semaphore(PARALLEL)

        async def synchronise_one(name: str) -> None:
            async with slots:
                self._known.pop(name, None)
                changes = await synchronise_servers(
                    api, kinds[name], name, server_diff.desired_servers(endpoints[name])
                )
                self._known[name] = endpoints[name]
                if changes:
                    log.info("upstream changed", upstream=name, **_counts(changes))

        zones = keyvals.manifest_zones(self._revisions, manifest)
        await _all(
            {
                **{f"upstream {name}": synchronise_one(name) for name in changed},
                **{
                    f"key-value zone {zone.name}": keyvals.synchronise_keyvals(api, zone)
                    for zone in zones
                },
            }
        )


async def synchronise_servers(
    api: Api, kind: str, name: str, desired: Sequence[server_diff.ServerObject]
) -> server_diff.ServerChanges:
    """Make the servers of an upstream equal to `desired`. Return the changes.

    Raises PlusApiError.
    """
    path = (kind, "upstreams", name, "servers")
    changes = server_diff.diff(await api.get(*path), desired)
    for server in changes.add:
        await api.post(*path, body=server)
    for number, changed in changes.change:
        await api.patch(*path, str(number), body=changed)
    for number in changes.remove:
        try:
            await api.delete(*path, str(number))
        except PlusApiError as error:
            if error.code != "UpstreamServerNotFound":
                raise
    return changes


async def _all(tasks: Mapping[str, Awaitable[None]]) -> None:
    """Await all tasks. Raises UpdateRejectedError naming those that failed."""
    results = await asyncio.gather(*tasks.values(), return_exceptions=True)
    failures = []
    for subject, result in zip(tasks, results, strict=True):
        if isinstance(result, PlusApiError):
            failures.append(f"{subject}: {result}")
        elif isinstance(result, Exception):
            # A response that is JSON but not as documented.
            failures.append(f"{subject}: {type(result).__name__}: {result}")
        elif isinstance(result, BaseException):
            raise result
    if failures:
        more = f" (and {len(failures) - 3} more)" if len(failures) > 3 else ""
        raise UpdateRejectedError("; ".join(failures[:3]) + more)


def _kinds(manifest: Manifest, names: Iterable[str]) -> dict[str, str]:
    """Return the API section, `http` or `stream`, of each upstream, by the path of its file."""
    paths = {entry.path for entry in manifest.entries}
    return {name: "stream" if stream_endpoints_file(name) in paths else "http" for name in names}


def _has(status: Any, name: str, endpoints: Endpoints) -> bool:
    return name in status and server_diff.servers_match(endpoints, status[name]["peers"])


def _counts(changes: server_diff.ServerChanges) -> dict[str, int]:
    return {
        "added": len(changes.add),
        "changed": len(changes.change),
        "removed": len(changes.remove),
    }
