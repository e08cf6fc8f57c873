"""Endpoints and key-value zones of generations in a running NGINX Plus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.plus import keyvals, server_diff, state_files
from gatehouse.agent.nginx.plus.client import Api, PlusError
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.upstreams import EndpointReader, UpdateRejectedError
from gatehouse.dataplane.endpoints import Endpoints, stream_file

log = structlog.get_logger("gatehouse.agent")

PARALLEL = 8
"""Upstreams that are changed at a time."""


class PlusUpstreams:
    """Implements :class:`~gatehouse.agent.nginx.upstreams.Upstreams` by API and state files."""

    def __init__(self, socket: Path, states: Path, generations: RevisionStore) -> None:
        self._socket, self._states = socket, states
        self._generations = generations
        self._reader = EndpointReader(generations)
        self._held: dict[str, Endpoints] = {}
        """What NGINX is known to have, by upstream; what is in doubt is left out."""
        self._before: dict[str, Endpoints] = {}

    @property
    def port(self) -> int:
        """There is no name server."""
        return 0

    def adopt(self, manifest: Manifest) -> None:
        """Nothing is known of what NGINX has before it is looked at."""
        self._reader.read(manifest)
        self._held = {}

    def before_restart(self, manifest: Manifest) -> None:
        """Have a new master begin with the endpoints there are now, whatever it had."""
        known = self._reader.read(manifest)
        for name, found in known.items():
            state_files.write(self._states, name, found)
        self._held = known

    def seeds(self, manifest: Manifest) -> Mapping[str, Endpoints]:
        """Seed the state files of upstreams that are new, and give nothing that is in files.

        Those of others hold what NGINX would begin with if it died now.
        """
        for name, found in self._reader.read(manifest).items():
            if not state_files.exists(self._states, name):
                state_files.write(self._states, name, found)
        return {}

    def seeds_obsolete(self, manifest: Manifest) -> bool:
        """Whether there are seeds, which only another NGINX had."""
        return bool(manifest.seeds)

    def can_update_without_reload(self, present: Manifest, wanted: Manifest) -> bool:
        """Endpoints always go by the API."""
        del wanted
        return not present.seeds

    async def update(self, manifest: Manifest) -> bool:
        """Bring what differs from what NGINX is known to have."""
        known = self._reader.read(manifest)
        changed = [name for name, found in known.items() if self._held.get(name) != found]
        await self._bring(Api(self._socket), manifest, changed, known)
        return True

    def before_reload(self, manifest: Manifest) -> None:
        """Have workers begin with these endpoints: they read the state files anew."""
        known = self._reader.read(manifest)
        self._before = dict(self._held)
        for name, found in known.items():
            if self._held.get(name) != found:
                self._held.pop(name, None)
                state_files.write(self._states, name, found)

    def reload_failed(self) -> None:
        """Let the state files be again what the workers have, who go on with them."""
        for name, found in self._before.items():
            if name not in self._held:
                state_files.write(self._states, name, found)
        self._held = self._before

    async def after_reload(self, manifest: Manifest) -> None:
        """Look at everything: a change during a reload may be lost."""
        await self.reconcile(manifest)
        kept = set(self._held)
        await asyncio.to_thread(state_files.remove_unused, self._states, kept)

    async def reconcile(self, manifest: Manifest) -> None:
        """Look at everything, and set right what differs."""
        known = self._reader.read(manifest)
        self._held = {name: found for name, found in self._held.items() if name in known}
        api = Api(self._socket)
        changed = await self._differing(api, manifest, known)
        await self._bring(api, manifest, changed, known)

    async def _differing(
        self, api: Api, manifest: Manifest, known: Mapping[str, Endpoints]
    ) -> list[str]:
        kinds = _kinds(manifest, known)
        try:
            shown = {kind: await api.get(kind, "upstreams") for kind in sorted(set(kinds.values()))}
            there = [name for name, found in known.items() if _has(shown[kinds[name]], name, found)]
        except PlusError as error:
            self._held.clear()
            raise UpdateRejectedError(f"NGINX Plus' API: {error}") from error
        except (LookupError, TypeError, AttributeError) as error:
            self._held.clear()
            raise UpdateRejectedError(f"NGINX Plus' API shows no upstreams: {error}") from error
        held = {name: known[name] for name in there}
        self._held |= held
        return [name for name in known if name not in held]

    async def _bring(
        self,
        api: Api,
        manifest: Manifest,
        changed: Sequence[str],
        known: Mapping[str, Endpoints],
    ) -> None:
        """Change upstreams, each for itself: what fails in one keeps no other from its own."""
        kinds = _kinds(manifest, changed)
        places = asyncio.Semaphore(PARALLEL)

        async def one(name: str) -> None:
            async with places:
                self._held.pop(name, None)
                done = await synchronise(
                    api, kinds[name], name, server_diff.desired_servers(known[name])
                )
                self._held[name] = known[name]
                if done:
                    log.info("upstream changed", upstream=name, **_counts(done))

        zones = keyvals.zones(self._generations, manifest)
        await _all(
            {
                **{f"upstream {name}": one(name) for name in changed},
                **{f"key-value zone {zone.name}": keyvals.synchronise(api, zone) for zone in zones},
            }
        )


async def synchronise(
    api: Api, kind: str, name: str, desired: Sequence[server_diff.Server]
) -> server_diff.Changes:
    """Make the servers of an upstream just these; gives what it took. Raises PlusError."""
    path = (kind, "upstreams", name, "servers")
    found = server_diff.diff(await api.get(*path), desired)
    for server in found.add:
        await api.post(*path, body=server)
    for number, changed in found.change:
        await api.patch(*path, str(number), body=changed)
    for number in found.remove:
        try:
            await api.delete(*path, str(number))
        except PlusError as error:
            if error.code != "UpstreamServerNotFound":
                raise
    return found


async def _all(tasks: Mapping[str, Awaitable[None]]) -> None:
    """Wait for all; raises NotTakenError for those that failed."""
    results = await asyncio.gather(*tasks.values(), return_exceptions=True)
    told = []
    for subject, result in zip(tasks, results, strict=True):
        if isinstance(result, PlusError):
            told.append(f"{subject}: {result}")
        elif isinstance(result, Exception):
            # An answer that is JSON, but not what the documentation says.
            told.append(f"{subject}: {type(result).__name__}: {result}")
        elif isinstance(result, BaseException):
            raise result
    if told:
        more = f" (and {len(told) - 3} more)" if len(told) > 3 else ""
        raise UpdateRejectedError("; ".join(told[:3]) + more)


def _kinds(manifest: Manifest, names: Iterable[str]) -> dict[str, str]:
    """Tell upstreams of streams from others: by where their configuration is."""
    paths = {entry.path for entry in manifest.entries}
    return {name: "stream" if stream_file(name) in paths else "http" for name in names}


def _has(shown: Any, name: str, endpoints: Endpoints) -> bool:
    return name in shown and server_diff.servers_match(endpoints, shown[name]["peers"])


def _counts(done: server_diff.Changes) -> dict[str, int]:
    return {"added": len(done.add), "changed": len(done.change), "removed": len(done.remove)}
