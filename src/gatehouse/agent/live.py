"""Endpoints in a running NGINX: what it learns by name, and what it must begin with.

An upstream that NGINX never had is empty until its first question is answered, and requests fail
meanwhile. It therefore begins with *seeds*, the same endpoints in its configuration, which a later
reload leaves out: it hands on to an upstream of the same name what was learned, so none is missed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.agent import endpoints
from gatehouse.agent.endpoints import Endpoints
from gatehouse.agent.generations import Generations, Manifest
from gatehouse.agent.nameserver import Nameserver

TAKEN_SECONDS = 7.0
"""How long NGINX may take to ask for a change; it repeats a question that was lost after 5 s."""

LOADED_SECONDS = 2.0
"""The same for workers that begin, who ask at once."""


class Live:
    """The endpoints of the generation that is served, and how much of them NGINX has learned."""

    def __init__(self, nameserver: Nameserver, generations: Generations) -> None:
        self.nameserver = nameserver
        self._generations = generations
        self._learned: set[str] = set()
        self._decoded: dict[str, Endpoints] = {}

    def read(self, manifest: Manifest) -> dict[str, Endpoints]:
        """Give the endpoints of a manifest by upstream; raises OSError or ValueError."""
        known: dict[str, Endpoints] = {}
        decoded: dict[str, Endpoints] = {}
        for entry in manifest.entries:
            name = endpoints.name_of(entry.path)
            if not name:
                continue
            found = self._decoded.get(entry.digest)
            if found is None:
                try:
                    found = endpoints.decode(self._generations.content(entry))
                except msgspec.DecodeError as error:
                    raise ValueError(f"{entry.path}: {error}") from error
            known[name] = decoded[entry.digest] = found
        self._decoded = decoded
        return known

    def adopt(self, manifest: Manifest) -> None:
        """Begin with what NGINX has loaded, or will: it has learned what has no seeds."""
        known = self.read(manifest)
        self._learned = known.keys() - manifest.seeds.keys()
        self.nameserver.publish(known)

    def forget(self) -> None:
        """NGINX ended, and with it what it learned."""
        self._learned.clear()
        self.nameserver.replaced()

    def unlearned(self, known: Mapping[str, Endpoints]) -> dict[str, Endpoints]:
        """Give what NGINX would not have if it loaded a configuration without seeds now."""
        return {
            name: found
            for name, found in known.items()
            if found and name not in self._learned and not self.nameserver.settled(name)
        }

    def offer(self, known: Mapping[str, Endpoints]) -> list[str]:
        """Answer with these too, before workers ask; returns the names with something new."""
        before = self.nameserver.known()
        self.nameserver.publish(known, only=False)
        return [name for name, found in known.items() if before.get(name) != found]

    def loaded(self, known: Mapping[str, Endpoints], seeds: Mapping[str, Endpoints]) -> None:
        """Workers with this configuration took over."""
        self._learned = known.keys() - seeds.keys()
        self.nameserver.publish(known)


def only_endpoints_differ(one: Manifest, other: Manifest) -> bool:
    """Whether NGINX's text is the same in both, and so are the upstreams."""
    return _text(one) == _text(other)


def _text(manifest: Manifest) -> dict[str, object]:
    return {
        entry.path: None if endpoints.name_of(entry.path) else entry for entry in manifest.entries
    }


def seeds_remain(manifest: Manifest, known: Mapping[str, Endpoints]) -> bool:
    """Whether everything that upstreams began with is still an endpoint of theirs."""
    return all(set(seeds) <= set(known.get(name, ())) for name, seeds in manifest.seeds.items())
