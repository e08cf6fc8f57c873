"""xDS relay between the control plane and Envoy. No I/O.

The relay subscribes to what Envoy subscribes to, holds what it receives, and acknowledges only what
Envoy has acknowledged. So the control plane knows the true state. A restarted Envoy is served from
the held resources. An Envoy that kept running while the relay was down is not sent anything that
may be older than what it has.

The relay itself subscribes to sidecar configurations. They are not sent to Envoy. They are
acknowledged when the sidecars have applied them.

- A resource that Envoy accepted is stored, whichever stream brought it
  (:mod:`~gatehouse.agent.envoy.resource_cache`).
- A new stream to the control plane lists every name that is held or that Envoy may have. It gives a
  version only for resources that Envoy accepted. The control plane sends all others again, and
  reports removed names as removed.
- A response is answered when Envoy has accepted or rejected all of it, or does not subscribe to the
  rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.agent.envoy.resource_cache import AcceptedChange, ResourceCache
from gatehouse.agent.envoy.sidecar_resources import SidecarResources
from gatehouse.dataplane import features
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_session import WILDCARDS
from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.resources import LISTENER, SIDECAR_CONFIG, Key, Resource, ResourceSet
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD
from gatehouse.dataplane.xds.subscription import InFlight, Subscription

REASONS_MAX = 100
"""Maximum number of rejected resources whose reasons are listed in a NACK."""

DeltaRequest: TypeAlias = discovery_pb2.DeltaDiscoveryRequest


class _Unanswered(msgspec.Struct):
    """A response of the control plane that Envoy has not completely accepted or rejected."""

    nonce: str
    names: set[str]
    rejected: dict[str, str] = {}
    """Reasons of Envoy's rejections so far, by name."""


class Relay:
    """State of a relay. See the module's docstring."""

    def __init__(self, stored: ResourceSet, sidecars: Sequence[str] = ()) -> None:
        """Start with the resources that Envoy and sidecars accepted last.

        `sidecars`: features of the sidecars that the agent can run, added to Envoy's client
        features. Without any, the relay does not subscribe to sidecar configurations.
        """
        self.node: base_pb2.Node | None = None
        """Envoy's node message. None: not received yet."""
        self.needs_resubscribe = False
        """True if the control plane believes that Envoy has what it lacks, so a new stream is
        needed.
        """
        self.stream: delta.DeltaStream | None = None
        self.requests: list[DeltaRequest] = []
        """Requests to send to the control plane, in order. The caller removes them."""
        configs = stored.by_type.get(SIDECAR_CONFIG, {})
        self._sidecar_resources = SidecarResources(configs.values())
        keys = [(SIDECAR_CONFIG, name) for name in configs]
        self._cache = ResourceCache(stored, stored.changed(gone=keys))
        self._features = (features.RELAY, *sidecars)
        self._subscribed: dict[str, set[str]] = {SIDECAR_CONFIG: {WILDCARD}} if sidecars else {}
        self._types_requested: set[str] = set()
        """Types subscribed to on the current stream to the control plane."""
        self._unanswered: dict[str, _Unanswered] = {}
        self._had_resources = False
        """True if the Envoy of the current stream had resources before."""
        self._unsubscribed: set[Key] = set()
        """Resources that Envoy did not subscribe to in time, until it is certain it never will."""

    # Towards the control plane

    def connected(self) -> None:
        """Start a stream to the control plane: subscribe to all that Envoy subscribes to."""
        assert self.node is not None
        self.needs_resubscribe = False
        self.requests.clear()
        self._types_requested.clear()
        self._unanswered.clear()
        self._sidecar_resources.forget_stream()
        for type_url, names in self._subscribed.items():
            self._request(type_url, names)

    def on_message(self, response: discovery_pb2.DeltaDiscoveryResponse) -> None:
        """Handle a response of the control plane."""
        type_url = response.type_url
        names = self._subscribed.get(type_url, set())
        wildcard = WILDCARD in names
        new = [
            Resource(type_url, each.name, each.resource.value, each.version)
            for each in response.resources
            # A resource may arrive after its unsubscription.
            if wildcard or each.name in names
        ]
        gone = [name for name in response.removed_resources if wildcard or name in names]
        if type_url == SIDECAR_CONFIG:
            self._sidecar_resources.on_response(response.nonce, new, gone)
            return
        self._cache.on_response(type_url, new, gone)
        pending = {each.name for each in new}.union(gone)
        self._unanswered[type_url] = _Unanswered(response.nonce, pending)
        self._process_reactions()

    # Towards sidecars

    @property
    def sidecar_configs(self) -> Mapping[str, Resource]:
        """Desired sidecar configurations by name. Replaced by a new object at each change."""
        return self._sidecar_resources.desired

    def on_sidecar_result(
        self, applied: Mapping[str, Resource], rejected: Mapping[str, str]
    ) -> None:
        """Record that sidecars applied the configurations `applied` except those in `rejected`."""
        result = self._sidecar_resources.on_result(applied, rejected)
        if result is None:
            return
        self._cache.store_accepted(result.accepted, result.removed)
        if result.nonce:
            self._answer(SIDECAR_CONFIG, result.nonce, result.rejected)

    # Towards Envoy

    def opened(self) -> delta.DeltaStream:
        """Start a stream from Envoy. It replaces an older one."""
        self.stream = delta.DeltaStream(self._cache.publication)
        self._had_resources = False
        self._unsubscribed.clear()
        return self.stream

    def closed(self, stream: delta.DeltaStream) -> None:
        """Record that a stream from Envoy ended."""
        if self.stream is stream:
            self.stream = None

    def receive(self, message: discovery_pb2.DeltaDiscoveryRequest) -> None:
        """Handle a request of Envoy on its stream."""
        assert self.stream is not None
        if message.HasField("node"):
            self.node = base_pb2.Node()
            self.node.CopyFrom(message.node)
            self.node.client_features.extend(self._features)
        request = delta.read(message)
        before = self._subscription(request.type_url)
        in_flight = before.in_flight if before else None
        if before is None:
            self._compare_versions(request.type_url, request.versions)
        self.stream.conversation.receive(request)
        state = self._subscription(request.type_url)
        assert state is not None
        if in_flight is not None and in_flight is not state.in_flight:
            self._accept(state, in_flight)
        self._update_subscription(state, {*request.subscribe, *request.unsubscribe})
        self._process_reactions()

    def next(self) -> bytes | None:
        """Return the next message to Envoy, or None."""
        if self.stream is None:
            return None
        message = self.stream.next()
        self._process_reactions()
        return message

    def on_deadline(self) -> None:
        """Record that Envoy does not subscribe to a resource in time and so does not need it."""
        if self.stream is None:
            return
        self._unsubscribed.update(self.stream.conversation.unsubscribed())
        self.stream.conversation.on_deadline()
        self._process_reactions()

    @property
    def serving(self) -> bool:
        """Return whether Envoy has accepted a configuration: listeners, or that there are none."""
        state = self._subscription(LISTENER)
        if state is None:
            return False
        none = state.sent_once and state.in_flight is None and not state.rejected
        return none or any(state.client_versions.values())

    @property
    def resource_count(self) -> int:
        """Number of resources held for Envoy."""
        return len(self._cache.publication.current)

    # Towards the disk

    @property
    def changed(self) -> bool:
        """Return whether there are changes to store."""
        return bool(self._cache.changes)

    def changes(self) -> list[AcceptedChange]:
        """Return the changes to store, in order. Each is returned once."""
        changes, self._cache.changes = self._cache.changes, []
        return changes

    def _subscription(self, type_url: str) -> Subscription | None:
        if self.stream is None:
            return None
        return self.stream.conversation.subscription(type_url)

    def _compare_versions(self, type_url: str, has: Mapping[str, str]) -> None:
        """Compare Envoy's versions of a type with the cache before sending any of that type."""
        if has and not self._had_resources:
            self._had_resources = True
            self._cache.invalidate()
        differs = self._cache.restore_matching(type_url, has if self._had_resources else None)
        if differs and type_url in self._types_requested:
            self.needs_resubscribe = True

    def _accept(self, state: Subscription, in_flight: InFlight) -> None:
        """Record what Envoy accepted of a response, even if something newer is held by now."""
        self._cache.store_accepted(
            [
                each
                for each in in_flight.resources
                if state.client_versions.get(each.name) == each.version
            ],
            [
                (state.type_url, name)
                for name in in_flight.removed
                if not state.client_versions.get(name)
            ],
        )

    def _update_subscription(self, state: Subscription, names: set[str]) -> None:
        """Subscribe to what Envoy subscribes to, and unsubscribe from what it does not."""
        subscribed = self._subscribed.setdefault(state.type_url, set())
        desired = {name for name in names if name in state.names}
        if state.wildcard:
            desired.add(WILDCARD)
        if new := desired - subscribed:
            subscribed |= new
            self._request(state.type_url, new)
        self._drop((state.type_url, name) for name in names - desired if not state.matches(name))

    def _drop(self, keys: Iterable[Key]) -> None:
        """Unsubscribe from these resources and drop them."""
        by_type: dict[str, set[str]] = {}
        for type_url, name in keys:
            by_type.setdefault(type_url, set()).add(name)
        for type_url, names in by_type.items():
            subscribed = self._subscribed.get(type_url, set())
            if unsubscribed := names & subscribed:
                subscribed -= unsubscribed
                self._request(type_url, (), unsubscribed)
            if WILDCARD not in subscribed:
                self._cache.drop([(type_url, name) for name in names])

    def _request(
        self, type_url: str, names: Iterable[str], unsubscribe: Iterable[str] = ()
    ) -> None:
        request = DeltaRequest(
            type_url=type_url,
            resource_names_subscribe=sorted(names),
            resource_names_unsubscribe=sorted(unsubscribe),
        )
        if not self._types_requested and self.node is not None:
            request.node.CopyFrom(self.node)
        if type_url not in self._types_requested:
            self._types_requested.add(type_url)
            request.initial_resource_versions.update(self._versions(type_url))
        self.requests.append(request)

    def _versions(self, type_url: str) -> Mapping[str, str]:
        if type_url == SIDECAR_CONFIG:
            return self._sidecar_resources.versions()
        state = self._subscription(type_url)
        has = [name for name, version in state.client_versions.items() if version] if state else ()
        return self._cache.versions(type_url, self._subscribed[type_url], has)

    def _process_reactions(self) -> None:
        """Update the cache from Envoy's reactions and answer completed responses."""
        for type_url in list(self._cache.open):
            pending = self._process_open_names(type_url)
            response = self._unanswered.get(type_url)
            if response is not None and response.names.isdisjoint(pending):
                del self._unanswered[type_url]
                self._answer(type_url, response.nonce, response.rejected)
        self._drop_unsubscribed()
        self._release_stale()

    def _process_open_names(self, type_url: str) -> set[str]:
        """Process Envoy's reactions to the open names of a type. Return the names still pending."""
        if self.stream is None:
            return set(self._cache.open[type_url])
        state, is_idle = self._subscription(type_url), self.stream.conversation.is_idle
        pending: set[str] = set()
        accepted: list[Key] = []
        reasons: dict[str, str] = {}
        for name in self._cache.open[type_url]:
            held = self._cache.get(type_url, name)
            if state is None or not state.matches(name):
                # Envoy need not accept what it does not subscribe to once it is idle.
                if not is_idle:
                    pending.add(name)
                elif held is None and not self._cache.unknown(type_url, name):
                    accepted.append((type_url, name))
            elif self._has(state, name, held):
                accepted.append((type_url, name))
            elif reason := _reason(state, held):
                reasons[name] = reason
            else:
                pending.add(name)
        self._cache.on_ack(accepted)
        if state is not None and reasons:
            self._on_rejected(state, reasons)
        return pending

    def _on_rejected(self, state: Subscription, reasons: Mapping[str, str]) -> None:
        has = {(state.type_url, name): state.client_versions.get(name, "") for name in reasons}
        self._cache.on_nack(has)
        if response := self._unanswered.get(state.type_url):
            named = {name: reason for name, reason in reasons.items() if name in response.names}
            response.rejected.update(named)

    def _answer(self, type_url: str, nonce: str, reasons: Mapping[str, str]) -> None:
        request = DeltaRequest(type_url=type_url, response_nonce=nonce)
        if reasons:
            request.error_detail.CopyFrom(delta.status_of(_nack(reasons)))
        self.requests.append(request)

    def _has(self, state: Subscription, name: str, held: Resource | None) -> bool:
        """Return whether Envoy has what is held for a name, which may be nothing."""
        if held is not None:
            return state.client_versions.get(name) == held.version
        unknown = self._cache.unknown(state.type_url, name)
        return not unknown and not state.client_versions.get(name) and state.settled(name)

    def _drop_unsubscribed(self) -> None:
        """Drop what Envoy does not subscribe to, once it has everything that may refer to it."""
        if self.stream is None or not self._unsubscribed:
            return
        conversation = self.stream.conversation
        if conversation.is_idle and self._cache.received_types >= WILDCARDS:
            unsubscribed, self._unsubscribed = self._unsubscribed, set()
            states = {each: self._subscription(each) for each, _ in unsubscribed}
            self._drop(
                (type_url, name)
                for type_url, name in unsubscribed
                if (state := states[type_url]) is None or not state.matches(name)
            )

    def _release_stale(self) -> None:
        """Stop holding resources that this Envoy rejects although a previous one accepted them."""
        if self.stream is None:
            return
        stale = [
            each.resource.key
            for each in self.stream.conversation.rejected_resources()
            if each.resource.name not in self._cache.open[each.resource.type_url]
            and self._cache.accepted.get(*each.resource.key) == each.resource
        ]
        if stale:
            self._cache.on_nack(dict.fromkeys(stale, ""))
            self.needs_resubscribe = True


def _reason(state: Subscription, held: Resource | None) -> str:
    """Return why Envoy rejects a held resource. Empty if it did not reject it."""
    rejection = state.rejected.get(held.name) if held else None
    if held is None or rejection is None or rejection.resource.version != held.version:
        return ""
    return rejection.reason or "no reason given"


def _nack(reasons: Mapping[str, str]) -> Nack:
    reasons_text = [f"{name}: {reason}" for name, reason in sorted(reasons.items())]
    return Nack("\n".join(reasons_text[:REASONS_MAX]), reasons)
