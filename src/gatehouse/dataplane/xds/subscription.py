"""State of one xDS subscription: requested names, acknowledged versions, pending resources. No
I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set

import msgspec

from gatehouse.dataplane.agent_limits import entry_bytes
from gatehouse.dataplane.xds.nacks import (
    Nack,
    RejectedResource,
    is_bind_error,
    reasons_in,
    rejected_resource,
)
from gatehouse.dataplane.xds.resources import (
    ENDPOINTS_TYPE_URL,
    ROUTES_TYPE_URL,
    RUNTIME_TYPE_URL,
    SECRET_TYPE_URL,
    VIRTUAL_HOST_TYPE_URL,
    XdsResource,
)
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache

RESPONSE_BYTES = 1 << 20
"""Size in bytes above which a response is divided. gRPC's default limit is four times as much."""

NON_WILDCARD = frozenset(
    {
        ENDPOINTS_TYPE_URL,
        SECRET_TYPE_URL,
        ROUTES_TYPE_URL,
        VIRTUAL_HOST_TYPE_URL,
        RUNTIME_TYPE_URL,
    }
)
"""Types whose first request without names subscribes to nothing. For other types it is a
wildcard."""

MAX_REJECTED_SECRETS = 1000
"""Maximum number of rejected secrets whose reasons are kept."""

ABSENT = ""
"""In place of a version: the client was informed that the resource does not exist."""

UNKNOWN_VERSION = "?"
"""In place of a version sent by a client: it may have the resource and must be sent its state."""


Lookup = Callable[[str], XdsResource | None]
"""Returns the resource with a name, or None."""


class PendingResponse(msgspec.Struct, frozen=True):
    """A response that the client has not acknowledged or rejected yet."""

    nonce: str
    resources: tuple[XdsResource, ...]
    removed: tuple[str, ...]


class Subscription:
    """State of one type on one stream."""

    def __init__(self, type_url: str, *, one_by_one: bool = False) -> None:
        """``one_by_one``: send each resource in a response of its own."""
        self.type_url, self._one_by_one = type_url, one_by_one
        self.wildcard = False
        self.names: set[str] = set()
        self.requested_bytes = 0
        """Estimated memory of what the client requested and reported."""
        self.client_versions: dict[str, str] = {}
        """Versions that the client has, by name."""
        self.rejected: dict[str, RejectedResource] = {}
        self.uncertain: set[str] = set()
        """Names of which the client may have a part of a rejected response. ``client_versions`` has
        their earlier versions."""
        self.doubted: set[str] = set()
        """Names in responses that were rejected without reasons by name. The caller removes them
        after it has compared what the client has."""
        self._retrying: set[str] = set()
        """Names of rejected resources that the next response contains again unchanged."""
        self.in_flight: PendingResponse | None = None
        self.sent_once = False
        """True once a response was sent."""
        self._rejected_secrets: dict[tuple[str, str], str] = {}
        """Reasons for which secrets were rejected, by name and version, the newest last."""
        self._fresh = True
        self._dirty: dict[str, None] = {}
        """Names that may need a response, in the order in which they were marked."""
        self._removals: dict[str, None] = {}
        self._expecting: set[str] = set()
        """Names in the response in flight whose state the client has once it accepts the
        response."""
        self._bisect_queue: deque[tuple[str, ...]] = deque()
        """Parts of a rejected response, to be sent separately: one of them contains the bad
        resource."""

    def matches(self, name: str) -> bool:
        """Return whether the client subscribed to this name or to the wildcard."""
        return self.wildcard or name in self.names

    def awaits(self, nonce: str) -> bool:
        """Return whether the response with this nonce is in flight."""
        return self.in_flight is not None and self.in_flight.nonce == nonce

    @property
    def idle(self) -> bool:
        """True if no response is pending or in flight."""
        pending = (self.in_flight, self._dirty, self._removals, self._bisect_queue)
        return not any(pending)

    def has(self, name: str, version: str) -> bool:
        """Return whether the client certainly has this version."""
        return self.client_versions.get(name) == version and name not in self.uncertain

    def certain(self, name: str) -> bool:
        """Return whether the client accepted what it has, or has none, and nothing is pending."""
        return name not in self.uncertain and name not in self.rejected and self.settled(name)

    def settled(self, name: str) -> bool:
        """Return whether no response about this name is pending or in flight."""
        return not (
            name in self._dirty
            or name in self._removals
            or name in self._expecting
            or any(name in group for group in self._bisect_queue)
        )

    def mark(self, names: Iterable[str]) -> None:
        """Mark names to be checked before the next response."""
        self._dirty.update(dict.fromkeys(names))

    def subscribe(self, names: Iterable[str], versions: Mapping[str, str]) -> None:
        """Add names. ``versions`` are those that the client has from an earlier stream."""
        requested = dict.fromkeys(names)
        if self._fresh:
            self.wildcard = not requested and self.type_url not in NON_WILDCARD
            self.client_versions.update(versions)
            self.requested_bytes += sum(map(entry_bytes, versions)) + sum(
                map(len, versions.values())
            )
            self.mark(versions)
        if WILDCARD in requested:
            del requested[WILDCARD]
            self.wildcard = True
        for name in requested:
            if not (self._fresh and name in versions):
                # A client that subscribes to a name again has lost the resource.
                self._reset(name)
        self.requested_bytes += sum(entry_bytes(name) for name in requested.keys() - self.names)
        self.names.update(requested)
        self.mark(requested)
        self._fresh = False

    def unsubscribe(self, names: Iterable[str]) -> None:
        """Remove names."""
        for name in names:
            if name == WILDCARD:
                self.wildcard = False
                lost = self.client_versions.keys() - self.names
            elif name in self.names:
                self.names.discard(name)
                self.requested_bytes -= entry_bytes(name)
                lost = {name}
            else:
                lost = {name} if name in self.client_versions or name in self._expecting else set()
            for resource_name in lost:
                self._reset(resource_name)
                # Names still covered by the wildcard are sent again.
                self.mark((resource_name,))

    def resend(self, names: Iterable[str]) -> None:
        """Send these again, as far as they are subscribed to."""
        for name in names:
            if self.matches(name):
                self._reset(name)
                self.mark((name,))

    def retry(self, names: Iterable[str]) -> None:
        """Send rejected resources again unchanged. They stay rejected until the client answers."""
        for name in names:
            self._retrying.add(name)
            self.mark((name,))

    def _reset(self, name: str) -> None:
        self.client_versions.pop(name, None)
        self.rejected.pop(name, None)
        self._removals.pop(name, None)
        self._expecting.discard(name)
        self.uncertain.discard(name)

    def next_resources(
        self, lookup: Lookup, publication: SnapshotCache
    ) -> tuple[tuple[XdsResource, ...], tuple[str, ...]]:
        """Return the resources to send next, and the requested names that do not exist."""
        while self._bisect_queue:
            group = dict.fromkeys(self._bisect_queue.popleft())
            response = self._collect(group, lookup, publication)
            self.mark(group)
            if response != ((), ()):
                return response
        return self._collect(self._dirty, lookup, publication)

    def _collect(
        self, names: dict[str, None], lookup: Lookup, publication: SnapshotCache
    ) -> tuple[tuple[XdsResource, ...], tuple[str, ...]]:
        """Remove from ``names`` those that fit into one response and those that need none."""
        resources: list[XdsResource] = []
        missing: list[str] = []
        size = 0
        for name in list(names):
            resource = lookup(name) if self.matches(name) else None
            if resource is not None and self._needs_update(resource):
                size += len(resource.body)
                if resources and (self._one_by_one or size > RESPONSE_BYTES):
                    break
                resources.append(resource)
            elif resource is None and self._needs_not_found(name, publication):
                missing.append(name)
            del names[name]
        return tuple(resources), tuple(missing)

    def _needs_update(self, resource: XdsResource) -> bool:
        self._removals.pop(resource.name, None)
        lacks = self._lacks(resource)
        self._retrying.discard(resource.name)
        if self.has(resource.name, resource.version):
            self.rejected.pop(resource.name, None)
        return lacks

    def _lacks(self, resource: XdsResource) -> bool:
        """Return whether the client must be sent a resource."""
        if self.has(resource.name, resource.version):
            return False
        rejection = self.rejected.get(resource.name)
        rejects = rejection is not None and rejection.resource.version == resource.version
        return not rejects or resource.name in self._retrying

    def lacks_more(self, lookup: Lookup) -> bool:
        """Return whether resources wait that did not fit into the last response."""
        waiting = (lookup(name) for name in self._dirty if self.matches(name))
        return any(resource is not None and self._lacks(resource) for resource in waiting)

    def _needs_not_found(self, name: str, publication: SnapshotCache) -> bool:
        """Return whether the client must be informed now that the resource does not exist.

        A resource that the client has is removed later, when nothing uses it.
        """
        self.rejected.pop(name, None)
        if not self.matches(name):
            self._reset(name)
            return False
        if not publication.is_absent(self.type_url, name):
            return False
        version = self.client_versions.get(name)
        if version or name in self.uncertain:
            self._removals[name] = None
        return version is None and name in self.names

    def next_removals(self) -> tuple[str, ...]:
        """Return the names of resources to remove."""
        return tuple(self._removals)

    def sent(
        self, nonce: str, resources: tuple[XdsResource, ...], removed: tuple[str, ...]
    ) -> None:
        """Record a response as in flight."""
        self.in_flight = PendingResponse(nonce, resources, removed)
        self._expecting = {resource.name for resource in resources}.union(removed)
        for name in removed:
            self._removals.pop(name, None)
        self.sent_once = True

    def on_response(self, nonce: str, nack: Nack | None) -> Set[str]:
        """Process an ACK or NACK and return the accepted names.

        An answer to a response that is not in flight is ignored.
        """
        response = self.in_flight
        if response is None or response.nonce != nonce:
            return set()
        self.in_flight = None
        expecting, self._expecting = self._expecting, set()
        names = [resource.name for resource in response.resources]
        named = nack.reasons.keys() & set(names) if nack else set()
        # Without a reason by name, it is unknown whether the rest was applied.
        certain = nack is None or bool(named)
        bad = self._known_bad(response) if nack is None else _reasons_by_name(names, nack)
        for resource in response.resources:
            if resource.name not in expecting:
                # It was marked again since it was sent; the next response decides.
                continue
            if resource.name in bad:
                rejection = rejected_resource(resource, bad[resource.name])
                self.rejected[resource.name] = rejection
                if self.type_url == SECRET_TYPE_URL:
                    self._store_rejected_secret(rejection)
            elif certain:
                self.client_versions[resource.name] = resource.version
                self.rejected.pop(resource.name, None)
        if named or nack is None:
            self.uncertain -= expecting
        else:
            # Envoy certainly lacks a listener whose port it could not get.
            unbound = {name for name, reason in bad.items() if is_bind_error(reason)}
            self.uncertain |= expecting.intersection(names) - unbound
            self.doubted |= self.uncertain
        if certain or not names:
            self._set_absent(expecting.intersection(response.removed))
        else:
            self._retry([name for name in names if name not in bad], bad)
            self.mark(response.removed)
        return expecting - bad.keys() if certain else set()

    def _known_bad(self, response: PendingResponse) -> Mapping[str, str]:
        """Return the reasons for those secrets of an accepted response that were rejected before.

        Envoy does not read a secret again that it has rejected, while a draining listener uses it.
        """
        keys = [(resource.name, resource.version) for resource in response.resources]
        return {
            key[0]: self._rejected_secrets[key] for key in keys if key in self._rejected_secrets
        }

    def _store_rejected_secret(self, rejection: RejectedResource) -> None:
        key = (rejection.resource.name, rejection.resource.version)
        self._rejected_secrets.pop(key, None)
        self._rejected_secrets[key] = rejection.reason
        if len(self._rejected_secrets) > MAX_REJECTED_SECRETS:
            del self._rejected_secrets[next(iter(self._rejected_secrets))]

    def _set_absent(self, names: Iterable[str]) -> None:
        """Record that the client has none of these and was informed of that."""
        for name in names:
            self.client_versions.pop(name, None)
            if name in self.names:
                self.client_versions[name] = ABSENT

    def _retry(self, names: list[str], bad: Mapping[str, str]) -> None:
        """Send the rest of a rejected response again: it may have been applied or not.

        If the NACK does not identify a resource, send it in halves until one resource is left.
        """
        if bad or len(names) < 2:
            self.mark(names)
            return
        half = len(names) // 2
        self._bisect_queue.extendleft((tuple(names[half:]), tuple(names[:half])))


def _reasons_by_name(names: list[str], nack: Nack) -> Mapping[str, str]:
    """Return the reasons by name for resources that are certainly rejected."""
    if reasons := {name: nack.reasons[name] for name in names if name in nack.reasons}:
        return reasons
    if len(names) == 1:
        return {names[0]: nack.message}
    return reasons_in(nack.message, names)
