"""Resources held by the relay: the control plane's newest ones and those Envoy accepted last.

No I/O.

Each name may have two versions. The *held* version is the newest of the control plane and is
offered to Envoy. The *accepted* version is the last one Envoy accepted and is stored on disk. A
name is *open* from a response of the control plane until Envoy's reaction is known, even if the
stream that brought it ends. For a name that is not open, the held version is the accepted one.

If Envoy has a version that is neither held nor stored, the desired version is *unknown*. Nothing is
held then, and Envoy is sent nothing, until the control plane sends the resource. This applies to
all differing resources when an Envoy is adopted, because either side may be newer, and to a
resource Envoy rejects if its previous version is not on disk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import msgspec

from gatehouse.agent.envoy.listener_digests import with_digests
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    LISTENER_TYPE_URL,
    SCOPE_TYPE_URL,
    ResourceKey,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache
from gatehouse.dataplane.xds.subscription import NON_WILDCARD, UNKNOWN_VERSION, Subscription

_WILDCARDS = frozenset({CLUSTER_TYPE_URL, LISTENER_TYPE_URL, SCOPE_TYPE_URL})
"""Types that Envoy subscribes to by wildcard, if at all."""

_REST = "gatehouse/rest"
"""Name of no resource, for a new stream after one that ended before everything was sent."""


class AcceptedChange(msgspec.Struct, frozen=True):
    """A change of the resources that Envoy accepted."""

    new: tuple[XdsResource, ...] = ()
    gone: tuple[ResourceKey, ...] = ()


class ResourceCache:
    """See the module's docstring."""

    def __init__(self, stored: ResourceSet, held: ResourceSet) -> None:
        """Start with the resources `stored` on disk, of which `held` are for Envoy."""
        self.publication = SnapshotCache(complete=False)
        """Held resources, as offered to Envoy."""
        self.publication.apply_changes(held, ())
        self.accepted = stored
        self.open: defaultdict[str, set[str]] = defaultdict(set)
        """Names by type."""
        self.received_types: set[str] = set()
        """Types for which the control plane has sent a response."""
        self.incomplete: set[str] = set()
        """Types of which the control plane may send more."""
        self.changes: list[AcceptedChange] = []
        """Changes to store, in order. The caller removes them."""

    def get(self, type_url: str, name: str) -> XdsResource | None:
        """Return the held resource of a name, or None."""
        return self.publication.current.get(type_url, name)

    def unknown(self, type_url: str, name: str) -> bool:
        """Return whether nothing is held because the desired version is unknown."""
        nothing = self.get(type_url, name) is None
        return nothing and not self.publication.is_absent(type_url, name)

    def is_held_by(self, envoy: Subscription, name: str) -> bool:
        """Return whether Envoy has what is held for a name, which may be nothing."""
        held = self.get(envoy.type_url, name)
        if held is not None:
            return envoy.has(name, held.version)
        sure = envoy.settled(name) and name not in envoy.uncertain
        unknown = self.unknown(envoy.type_url, name)
        return sure and not unknown and not envoy.client_versions.get(name)

    def on_response(
        self, type_url: str, new: list[XdsResource], removed: list[str], *, incomplete: bool = False
    ) -> None:
        """Apply a response of the control plane. Listeners get digests.

        ``incomplete``: further responses have the rest of the type.
        """
        self.incomplete.discard(type_url)
        if incomplete:
            self.incomplete.add(type_url)
        left = [(type_url, name) for name in removed]
        self._hold([with_digests(resource) for resource in new], left)
        self.publication.mark_absent(
            left if type_url in NON_WILDCARD else [*left, (type_url, WILDCARD)]
        )
        self.publication.unmark_absent(resource.key for resource in new)
        self.open[type_url].update(removed, (resource.name for resource in new))
        self.received_types.add(type_url)

    def invalidate(self) -> None:
        """Drop held resources of types without a response: Envoy may have newer versions.

        An earlier agent may have been replaced before it had received all of these types.
        """
        self.incomplete |= _WILDCARDS - self.received_types
        for type_url, named in self.publication.current.by_type.items():
            if type_url not in self.received_types:
                self._hold((), [(type_url, name) for name in named])
                self.open[type_url].update(named)

    def restore_matching(self, type_url: str, has: Mapping[str, str] | None) -> bool:
        """Restore unknown resources whose accepted version Envoy has.

        Return whether any stay unknown.

        `has`: versions by name from Envoy's first request on a stream. None: Envoy has no resource
        of any type, so the accepted versions are right.
        """
        accepted, opened = self.accepted.by_type.get(type_url, {}), self.open[type_url]
        names = {*(has or ()), *accepted, *opened}
        unknown = {name for name in names if self.unknown(type_url, name)}
        differing = set[str]()
        if has is not None:
            versions = {name: accepted[name].version for name in unknown & accepted.keys()}
            differing = {name for name in unknown if versions.get(name) != has.get(name)}
        self._hold([accepted[name] for name in unknown - differing if name in accepted], ())
        self.open[type_url] = (opened - unknown) | differing
        return bool(differing)

    def store_accepted(self, new: Iterable[XdsResource], removed: Iterable[ResourceKey]) -> None:
        """Record that Envoy accepted resources, which need not be held any longer."""
        change = AcceptedChange(
            tuple(
                resource
                for resource in new
                if self._accepted_version(resource.key) != resource.version
            ),
            tuple(key for key in removed if self.accepted.get(*key) is not None),
        )
        if change.new or change.gone:
            self.accepted = self.accepted.changed(change.new, change.gone)
            self.changes.append(change)

    def on_ack(self, keys: Collection[ResourceKey]) -> None:
        """Record that Envoy has what is held for `keys`."""
        self._close(keys)
        by_key = {key: self.get(*key) for key in keys}
        removed = [key for key, resource in by_key.items() if resource is None]
        # A subscription by name gets a removal at each request. A wildcard gets it only once.
        self.publication.unmark_absent(key for key in removed if key[0] not in NON_WILDCARD)
        self.store_accepted(
            [resource for resource in by_key.values() if resource is not None], removed
        )

    def on_nack(self, has: Mapping[ResourceKey, str]) -> None:
        """Record that Envoy rejects what is held for the keys of `has`.

        `has` gives the version Envoy uses of each, empty for none. If that is none or the accepted
        version, the accepted version is held again.
        """
        self._close(has)
        self.store_accepted(
            (), [key for key in has if _version(self.get(*key)) == self._accepted_version(key)]
        )
        accepted = {key: self.accepted.get(*key) for key in has}
        restored = [
            resource
            for key, resource in accepted.items()
            if resource and has[key] in ("", resource.version)
        ]
        self._hold(restored, has.keys() - {resource.key for resource in restored})

    def reopen(self, type_url: str, names: Collection[str], confirmed: Mapping[str, str]) -> None:
        """Record that Envoy may lack what it has `confirmed`, or have what it should not have."""
        self.open[type_url].update(names)
        self.publication.mark_absent(
            (type_url, name)
            for name in names
            if self.get(type_url, name) is None and not confirmed.get(name)
        )

    def drop(self, keys: Collection[ResourceKey]) -> None:
        """Drop held and accepted resources that Envoy does not subscribe to."""
        self._close(keys)
        self._hold((), keys)
        self.publication.unmark_absent(keys)
        self.store_accepted((), keys)

    def versions(
        self, type_url: str, subscribed: Collection[str], has: Collection[str]
    ) -> dict[str, str]:
        """Return the initial resource versions for a request to the control plane, by name.

        `subscribed`: names in the request. The control plane responds for these in any case; for a
        wildcard only if a resource changed or is listed here. `has`: names that Envoy has.
        """
        opened, accepted = self.open[type_url], self.accepted.by_type.get(type_url, {})
        wildcard = WILDCARD in subscribed
        # The control plane answers once more if it has sent all meanwhile: this does not exist.
        versions = {_REST: UNKNOWN_VERSION} if type_url in self.incomplete and wildcard else {}
        for name in {*accepted, *opened, *has}:
            if name in accepted and name not in opened and (wildcard or name in subscribed):
                versions[name] = accepted[name].version
            elif wildcard and name not in subscribed:
                versions[name] = UNKNOWN_VERSION
        return versions

    def _accepted_version(self, key: ResourceKey) -> str:
        return _version(self.accepted.get(*key))

    def _close(self, keys: Iterable[ResourceKey]) -> None:
        for type_url, name in keys:
            self.open[type_url].discard(name)

    def _hold(self, new: Collection[XdsResource], removed: Collection[ResourceKey]) -> None:
        if new or removed:
            keys = [*(resource.key for resource in new), *removed]
            self.publication.apply_changes(self.publication.current.changed(new, removed), keys)


def _version(resource: XdsResource | None) -> str:
    return "" if resource is None else resource.version
