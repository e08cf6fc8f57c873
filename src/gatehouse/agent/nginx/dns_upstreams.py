"""Endpoint updates over DNS: endpoints that NGINX has resolved, and endpoints it needs as seeds.

A new upstream is empty until its first DNS query is answered, and requests fail meanwhile. So it
starts with *seeds*, the same endpoints in its configuration. A later reload removes them: NGINX
passes resolved endpoints on to an upstream of the same name, so no endpoint is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.nameserver import Nameserver
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.upstreams import EndpointReader
from gatehouse.dataplane.endpoints import Endpoints
from kube_base.runtime.time_limits import scaled

log = structlog.get_logger("gatehouse.agent")

UPDATE_TIMEOUT_SECONDS = scaled(7.0)
"""Time in seconds for NGINX to query a change. It repeats a lost query after 5 s."""

START_TIMEOUT_SECONDS = scaled(2.0)
"""Time in seconds for new workers to query a change. They query right after their start."""


class DNSUpstreams:
    """Endpoints of the served revision, and which of them NGINX has resolved.

    Implements :class:`~gatehouse.agent.nginx.upstreams.Upstreams`.
    """

    def __init__(self, nameserver: Nameserver, revisions: RevisionStore) -> None:
        self._nameserver = nameserver
        self._reader = EndpointReader(revisions)
        self._resolved: set[str] = set()
        self._before: dict[str, Endpoints] = {}

    @property
    def port(self) -> int:
        """See the protocol."""
        return self._nameserver.port

    def adopt(self, manifest: Manifest) -> None:
        """Publish the endpoints of `manifest`. NGINX has resolved those without seeds."""
        endpoints = self._reader.read(manifest)
        self._resolved = endpoints.keys() - manifest.seeds.keys()
        self._nameserver.publish(endpoints)

    def before_restart(self, manifest: Manifest) -> None:
        """Forget what the previous NGINX had resolved."""
        del manifest
        self._resolved.clear()
        self._nameserver.workers_replaced()

    def seeds(self, manifest: Manifest) -> Mapping[str, Endpoints]:
        """Return the endpoints that NGINX has not resolved yet."""
        return self._unresolved(self._reader.read(manifest))

    def seeds_obsolete(self, manifest: Manifest) -> bool:
        """Return whether NGINX has resolved all seeds."""
        return bool(manifest.seeds) and not self._unresolved(manifest.seeds)

    def can_update_without_reload(self, present: Manifest, desired: Manifest) -> bool:
        """Return whether all seeds of `present` are still endpoints in `desired`."""
        endpoints = self._reader.read(desired)
        return all(
            set(seeds) <= set(endpoints.get(name, ())) for name, seeds in present.seeds.items()
        )

    async def update(self, manifest: Manifest) -> bool:
        """Publish the new endpoints and wait until NGINX has queried them."""
        changed = self._publish_more(self._reader.read(manifest))
        if await self._nameserver.wait_resolved(changed, UPDATE_TIMEOUT_SECONDS):
            return True
        log.warning("endpoints not queried, reloading", upstreams=changed[:10])
        return False

    def before_reload(self, manifest: Manifest) -> None:
        """Publish the new endpoints beside the others before new workers query them."""
        self._before = self._nameserver.published()
        self._publish_more(self._reader.read(manifest))
        self._nameserver.workers_replaced()

    def reload_failed(self) -> None:
        """Publish the endpoints of before the reload again."""
        self._nameserver.workers_retained()
        self._nameserver.publish(self._before)

    async def after_reload(self, manifest: Manifest) -> None:
        """Wait at most `START_TIMEOUT_SECONDS` until the new workers have queried what changed."""
        endpoints = self._reader.read(manifest)
        self._resolved = endpoints.keys() - manifest.seeds.keys()
        self._nameserver.publish(endpoints)
        before = self._before
        changed = [
            name for name, servers in endpoints.items() if before.get(name, servers) != servers
        ]
        if not await self._nameserver.wait_resolved(changed, START_TIMEOUT_SECONDS):
            log.warning("endpoints not queried after reload", upstreams=changed[:10])

    async def reconcile(self, manifest: Manifest) -> None:
        """Do nothing: NGINX queries what it lacks."""

    def _unresolved(self, endpoints: Mapping[str, Endpoints]) -> dict[str, Endpoints]:
        return {
            name: servers
            for name, servers in endpoints.items()
            if servers and name not in self._resolved and not self._nameserver.is_resolved(name)
        }

    def _publish_more(self, endpoints: Mapping[str, Endpoints]) -> list[str]:
        """Publish these endpoints beside the others. Return the upstreams that changed."""
        before = self._nameserver.published()
        self._nameserver.publish(endpoints, only=False)
        return [name for name, servers in endpoints.items() if before.get(name) != servers]
