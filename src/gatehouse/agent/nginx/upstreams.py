"""How endpoints reach a running NGINX apart from its configuration: by name, or by an API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.dataplane.endpoints import Endpoints, decode, name_of

KEYVALS = ("gatehouse/keyvals/", "gatehouse/stream-keyvals/")
"""Where a bundle has what key-value zones hold."""


class UpdateRejectedError(Exception):
    """NGINX cannot be given something now; the message says what and why."""


class Upstreams(Protocol):
    """What the endpoints of generations have to do with NGINX. One call at a time."""

    @property
    def port(self) -> int:
        """The name server's, for the main file; 0: there is none."""

    def adopt(self, manifest: Manifest) -> None:
        """Begin with what NGINX has loaded, or will. Raises OSError or ValueError."""

    def before_restart(self, manifest: Manifest) -> None:
        """A new master is about to load ``manifest``, and knows nothing."""

    def seeds(self, manifest: Manifest) -> Mapping[str, Endpoints]:
        """Give what upstreams must begin with in a generation of ``manifest``."""

    def seeds_obsolete(self, manifest: Manifest) -> bool:
        """Whether upstreams begin with something in ``manifest`` that they need no more."""

    def can_update_without_reload(self, present: Manifest, wanted: Manifest) -> bool:
        """Whether the endpoints of ``wanted`` can take the place of the present without a reload.

        In all else the two are the same.
        """

    async def update(self, manifest: Manifest) -> bool:
        """Bring endpoints to NGINX; False: it takes a reload. Raises NotTakenError."""

    def before_reload(self, manifest: Manifest) -> None:
        """Workers with ``manifest`` are about to begin."""

    def reload_failed(self) -> None:
        """They did not; the former ones stay."""

    async def after_reload(self, manifest: Manifest) -> None:
        """They took over. Raises NotTakenError if they have not all of its endpoints."""

    async def reconcile(self, manifest: Manifest) -> None:
        """Set right what NGINX has otherwise than ``manifest``. Raises NotTakenError."""


class EndpointReader:
    """Reads the endpoints of manifests; each content once."""

    def __init__(self, generations: RevisionStore) -> None:
        self._generations = generations
        self._decoded: dict[str, Endpoints] = {}

    def read(self, manifest: Manifest) -> dict[str, Endpoints]:
        """Give the endpoints of a manifest by upstream; raises OSError or ValueError."""
        known: dict[str, Endpoints] = {}
        decoded: dict[str, Endpoints] = {}
        for entry in manifest.entries:
            name = name_of(entry.path)
            if not name:
                continue
            found = self._decoded.get(entry.digest)
            if found is None:
                try:
                    found = decode(self._generations.content(entry))
                except ValueError as error:
                    raise ValueError(f"{entry.path}: {error}") from error
            known[name] = decoded[entry.digest] = found
        self._decoded = decoded
        return known


def only_endpoints_differ(one: Manifest, other: Manifest) -> bool:
    """Whether NGINX's text is the same in both, and so are the upstreams."""
    return _text(one) == _text(other)


def _text(manifest: Manifest) -> dict[str, object]:
    return {entry.path: None if _apart(entry.path) else entry for entry in manifest.entries}


def _apart(path: str) -> bool:
    return bool(name_of(path)) or path.startswith(KEYVALS)
