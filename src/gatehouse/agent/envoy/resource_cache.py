"""What a relay holds: the control plane's last word, and what Envoy took last. Pure.

Of each name there may be two versions. *Held* is what the control plane said last, and what Envoy
is told; *good* is what Envoy took last, and what is kept on the disk. A name is *open* from a word
of the control plane until it is known what Envoy makes of it, whatever becomes of the stream that
brought it; of a name that is not open, what is held is good.

Where Envoy has what is neither held nor kept, it is *unknown* what is to be: nothing is held, so
that Envoy is told nothing, until the control plane speaks of it. So it is with all that differs
when an Envoy is adopted, since nobody knows which is newer, and with what Envoy refuses if what it
took before is not on the disk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import msgspec

from gatehouse.dataplane.xds.resources import Key, Resource, ResourceSet
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache
from gatehouse.dataplane.xds.subscription import NON_WILDCARD, UNKNOWN_VERSION


class AcceptedChange(msgspec.Struct, frozen=True):
    """A change of what Envoy took last."""

    new: tuple[Resource, ...] = ()
    gone: tuple[Key, ...] = ()


class ResourceCache:
    """See the module's docstring."""

    def __init__(self, kept: ResourceSet, held: ResourceSet) -> None:
        """Begin with what is on the disk, of which ``held`` is for Envoy."""
        self.publication = SnapshotCache(complete=False)
        """What is held, as Envoy is told it."""
        self.publication.apply_changes(held, ())
        self.good = kept
        self.open: defaultdict[str, set[str]] = defaultdict(set)
        """Names by type."""
        self.heard: set[str] = set()
        """Types of which the control plane has spoken."""
        self.changes: list[AcceptedChange] = []
        """What is to be kept, in order; to be taken away."""

    def held(self, type_url: str, name: str) -> Resource | None:
        """Give what is held under a name, if anything is."""
        return self.publication.current.get(type_url, name)

    def unknown(self, type_url: str, name: str) -> bool:
        """Whether nothing is held because only the control plane knows what is to be."""
        nothing = self.held(type_url, name) is None
        return nothing and not self.publication.is_absent(type_url, name)

    def on_response(self, type_url: str, new: list[Resource], gone: list[str]) -> None:
        """Take in the control plane's word."""
        left = [(type_url, name) for name in gone]
        self._hold(new, left)
        self.publication.mark_absent(
            left if type_url in NON_WILDCARD else [*left, (type_url, WILDCARD)]
        )
        self.publication.unmark_absent(each.key for each in new)
        self.open[type_url].update(gone, (each.name for each in new))
        self.heard.add(type_url)

    def invalidate(self) -> None:
        """Hold nothing of which the control plane has not spoken: Envoy may have newer things."""
        for type_url, named in self.publication.current.by_type.items():
            if type_url not in self.heard:
                self._hold((), [(type_url, name) for name in named])
                self.open[type_url].update(named)

    def restore_matching(self, type_url: str, has: Mapping[str, str] | None) -> bool:
        """Hold again, of what is unknown, what Envoy has in the same version; returns whether
        anything is left.

        ``has``: versions by name, which Envoy says at the beginning of a stream; None: it has
        nothing of any type, so that what was taken last is just right.
        """
        good, opened = self.good.by_type.get(type_url, {}), self.open[type_url]
        names = {*(has or ()), *good, *opened}
        unknown = {name for name in names if self.unknown(type_url, name)}
        differing = set[str]()
        if has is not None:
            kept = {name: good[name].version for name in unknown & good.keys()}
            differing = {name for name in unknown if kept.get(name) != has.get(name)}
        self._hold([good[name] for name in unknown - differing if name in good], ())
        self.open[type_url] = (opened - unknown) | differing
        return bool(differing)

    def store_accepted(self, new: Iterable[Resource], gone: Iterable[Key]) -> None:
        """Take note that Envoy took something, which need not be held any more."""
        change = AcceptedChange(
            tuple(each for each in new if self._kept(each.key) != each.version),
            tuple(key for key in gone if self.good.get(*key) is not None),
        )
        if change.new or change.gone:
            self.good = self.good.changed(change.new, change.gone)
            self.changes.append(change)

    def on_ack(self, keys: Collection[Key]) -> None:
        """Take note that Envoy has what is held under ``keys``."""
        self._close(keys)
        found = {key: self.held(*key) for key in keys}
        gone = [key for key, each in found.items() if each is None]
        # Who asks for a name is answered whenever it does; who asks for all forgets it once.
        self.publication.unmark_absent(key for key in gone if key[0] not in NON_WILDCARD)
        self.store_accepted([each for each in found.values() if each is not None], gone)

    def on_nack(self, has: Mapping[Key, str]) -> None:
        """Take note that Envoy refuses what is held under the keys of ``has``.

        Hold what it took before, if that is the version that ``has`` says it has (empty: none).
        """
        self._close(has)
        self.store_accepted(
            (), [key for key in has if _version(self.held(*key)) == self._kept(key)]
        )
        good = {key: self.good.get(*key) for key in has}
        back = [each for key, each in good.items() if each and has[key] in ("", each.version)]
        self._hold(back, has.keys() - {each.key for each in back})

    def drop(self, keys: Collection[Key]) -> None:
        """Hold nothing of these, and keep nothing: nobody wants to know."""
        self._close(keys)
        self._hold((), keys)
        self.publication.unmark_absent(keys)
        self.store_accepted((), keys)

    def versions(
        self, type_url: str, asked: Collection[str], has: Collection[str]
    ) -> dict[str, str]:
        """Give what the control plane is told is there already, by name.

        ``asked``: the names that it is asked for. Of those that are asked for by name it speaks in
        any case; of others, only of those that it hears of here. ``has``: the names that Envoy has.
        """
        opened, good = self.open[type_url], self.good.by_type.get(type_url, {})
        whole = WILDCARD in asked
        versions: dict[str, str] = {}
        for name in {*good, *opened, *has}:
            if name in good and name not in opened and (whole or name in asked):
                versions[name] = good[name].version
            elif whole and name not in asked:
                versions[name] = UNKNOWN_VERSION
        return versions

    def _kept(self, key: Key) -> str:
        return _version(self.good.get(*key))

    def _close(self, keys: Iterable[Key]) -> None:
        for type_url, name in keys:
            self.open[type_url].discard(name)

    def _hold(self, new: Collection[Resource], gone: Collection[Key]) -> None:
        if new or gone:
            keys = [*(each.key for each in new), *gone]
            self.publication.apply_changes(self.publication.current.changed(new, gone), keys)


def _version(resource: Resource | None) -> str:
    return "" if resource is None else resource.version
