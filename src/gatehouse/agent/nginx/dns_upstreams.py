"""Endpoints in a running NGINX that asks for them: what it learns, and what it must begin with.

An upstream that NGINX never had is empty until its first question is answered, and requests fail
meanwhile. It therefore begins with *seeds*, the same endpoints in its configuration, which a later
reload leaves out: it hands on to an upstream of the same name what was learned, so none is missed.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.nameserver import Nameserver
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.upstreams import EndpointReader
from gatehouse.dataplane.endpoints import Endpoints

log = structlog.get_logger("gatehouse.agent")

TAKEN_SECONDS = 7.0
"""How long NGINX may take to ask for a change; it repeats a question that was lost after 5 s."""

LOADED_SECONDS = 2.0
"""The same for workers that begin, who ask at once."""


class DNSUpstreams:
    """The endpoints of the generation that is served, and how much of them NGINX has learned.

    Implements :class:`~gatehouse.agent.nginx.upstreams.Upstreams`.
    """

    def __init__(self, nameserver: Nameserver, generations: RevisionStore) -> None:
        self._nameserver = nameserver
        self._reader = EndpointReader(generations)
        self._learned: set[str] = set()
        self._before: dict[str, Endpoints] = {}

    @property
    def port(self) -> int:
        """See the protocol."""
        return self._nameserver.port

    def adopt(self, manifest: Manifest) -> None:
        """NGINX has learned what has no seeds."""
        known = self._reader.read(manifest)
        self._learned = known.keys() - manifest.seeds.keys()
        self._nameserver.publish(known)

    def before_restart(self, manifest: Manifest) -> None:
        """NGINX ended, and with it what it learned."""
        del manifest
        self._learned.clear()
        self._nameserver.replaced()

    def seeds(self, manifest: Manifest) -> Mapping[str, Endpoints]:
        """Give what NGINX would not have if it loaded a configuration without seeds now."""
        return self._unlearned(self._reader.read(manifest))

    def seeds_obsolete(self, manifest: Manifest) -> bool:
        """Whether every seed was learned since."""
        return bool(manifest.seeds) and not self._unlearned(manifest.seeds)

    def can_update_without_reload(self, present: Manifest, wanted: Manifest) -> bool:
        """Whether everything that upstreams began with is still an endpoint of theirs."""
        known = self._reader.read(wanted)
        return all(set(seeds) <= set(known.get(name, ())) for name, seeds in present.seeds.items())

    async def update(self, manifest: Manifest) -> bool:
        """Answer with the new endpoints, and wait until NGINX has asked."""
        changed = self._offer(self._reader.read(manifest))
        if await self._nameserver.taken(changed, TAKEN_SECONDS):
            return True
        log.warning("endpoints not taken without a reload", upstreams=changed[:10])
        return False

    def before_reload(self, manifest: Manifest) -> None:
        """Answer with these too, before workers ask."""
        self._before = self._nameserver.known()
        self._offer(self._reader.read(manifest))
        self._nameserver.replaced()

    def reload_failed(self) -> None:
        """Answer as before."""
        self._nameserver.retained()
        self._nameserver.publish(self._before)

    async def after_reload(self, manifest: Manifest) -> None:
        """Wait shortly until the new workers have asked for what is new."""
        known = self._reader.read(manifest)
        self._learned = known.keys() - manifest.seeds.keys()
        self._nameserver.publish(known)
        before = self._before
        changed = [name for name, found in known.items() if before.get(name, found) != found]
        if not await self._nameserver.taken(changed, LOADED_SECONDS):
            log.warning("endpoints not taken yet", upstreams=changed[:10])

    async def reconcile(self, manifest: Manifest) -> None:
        """Do nothing: NGINX asks for what it does not have."""

    def _unlearned(self, known: Mapping[str, Endpoints]) -> dict[str, Endpoints]:
        return {
            name: found
            for name, found in known.items()
            if found and name not in self._learned and not self._nameserver.settled(name)
        }

    def _offer(self, known: Mapping[str, Endpoints]) -> list[str]:
        """Answer with these too; returns the names with something new."""
        before = self._nameserver.known()
        self._nameserver.publish(known, only=False)
        return [name for name, found in known.items() if before.get(name) != found]
