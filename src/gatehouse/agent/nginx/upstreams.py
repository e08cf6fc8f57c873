"""Endpoint updates in a running NGINX without a reload: by DNS, or by the NGINX Plus API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.dataplane.endpoints import Endpoints, is_pool_file, parse_endpoints, upstream_of

KEYVALS = ("gatehouse/keyvals/", "gatehouse/stream-keyvals/")
"""Directories in a file set of the contents of key-value zones, for HTTP and for streams."""


class UpdateRejectedError(Exception):
    """NGINX cannot be updated now. The message says what failed and why."""


class Upstreams(Protocol):
    """Endpoints of revisions in a running NGINX. Calls must not overlap."""

    @property
    def port(self) -> int:
        """Return the port of the name server for the main file. 0: none."""

    def adopt(self, manifest: Manifest) -> None:
        """Initialize from the manifest that NGINX has loaded or will load.

        Raises OSError or ValueError.
        """

    def before_restart(self, manifest: Manifest) -> None:
        """Called before a new master, which has no state, loads `manifest`."""

    def seeds(self, manifest: Manifest) -> Mapping[str, Endpoints]:
        """Return the endpoints that a revision of `manifest` must contain, by upstream."""

    def seeds_obsolete(self, manifest: Manifest) -> bool:
        """Return whether `manifest` has seeds that NGINX no longer needs."""

    def can_update_without_reload(self, present: Manifest, desired: Manifest) -> bool:
        """Return whether the endpoints can change from `present` to `desired` without a reload.

        The manifests do not differ otherwise.
        """

    async def update(self, manifest: Manifest) -> bool:
        """Update the endpoints. Return False if a reload is needed. Raises UpdateRejectedError."""

    def before_reload(self, manifest: Manifest) -> None:
        """Called before workers with `manifest` start."""

    def reload_failed(self) -> None:
        """Called when a reload failed: the old workers keep running."""

    async def after_reload(self, manifest: Manifest) -> None:
        """Called when the new workers took over.

        Raises UpdateRejectedError if they do not have all endpoints of `manifest`.
        """

    async def reconcile(self, manifest: Manifest) -> None:
        """Correct what differs in NGINX from `manifest`. Raises UpdateRejectedError."""


class EndpointReader:
    """Reads the endpoints of manifests. Each content is decoded once."""

    def __init__(self, revisions: RevisionStore) -> None:
        self._revisions = revisions
        self._decoded: dict[str, Endpoints] = {}

    def read(self, manifest: Manifest) -> dict[str, Endpoints]:
        """Return the endpoints of a manifest by upstream. Raises OSError or ValueError."""
        by_upstream: dict[str, Endpoints] = {}
        decoded: dict[str, Endpoints] = {}
        for entry in manifest.entries:
            name = upstream_of(entry.path)
            if not name:
                continue
            endpoints = self._decoded.get(entry.digest)
            if endpoints is None:
                try:
                    endpoints = parse_endpoints(self._revisions.content(entry))
                except ValueError as error:
                    raise ValueError(f"{entry.path}: {error}") from error
            by_upstream[name] = decoded[entry.digest] = endpoints
        self._decoded = decoded
        return by_upstream


def only_endpoints_differ(one: Manifest, other: Manifest) -> bool:
    """Return whether two manifests have the same upstreams and other files.

    Contents of key-value zones may differ, too.
    """
    same_rest = _reload_relevant(one) == _reload_relevant(other)
    return same_rest and one.unmanaged == other.unmanaged


def _reload_relevant(manifest: Manifest) -> dict[str, object]:
    return {entry.path: None if is_dynamic(entry.path) else entry for entry in manifest.entries}


def is_dynamic(path: str) -> bool:
    """Return whether the content of a file changes without a reload of NGINX."""
    return bool(upstream_of(path)) or is_pool_file(path) or path.startswith(KEYVALS)
