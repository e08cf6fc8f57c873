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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.agent.envoy.health_report import HealthReport
from gatehouse.agent.envoy.rejection_reasons import (
    UnansweredResponse,
    combined_nack,
    rejection_reason,
)
from gatehouse.agent.envoy.resource_cache import AcceptedChange, ResourceCache
from gatehouse.agent.envoy.sidecar_resources import SidecarResources
from gatehouse.dataplane import features
from gatehouse.dataplane.xds import delta, listener_drains
from gatehouse.dataplane.xds.ads_session import WILDCARDS
from gatehouse.dataplane.xds.resources import (
    LISTENER_TYPE_URL,
    RUNTIME_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
    TRIAL_NAME,
    ResourceKey,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.runtime_limits import own_limits
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD
from gatehouse.dataplane.xds.subscription import PendingResponse, Subscription

DeltaRequest: TypeAlias = discovery_pb2.DeltaDiscoveryRequest


class Relay:
    """State of a relay. See the module's docstring."""

    def __init__(
        self, stored: ResourceSet, sidecars: Sequence[str] = (), instance: str = ""
    ) -> None:
        """Start with the resources that Envoy and sidecars accepted last.

        `sidecars`: features of the agent, such as the sidecars that it can run, added to Envoy's
        client features. Without any, the relay does not subscribe to sidecar configurations.
        `instance`: name under which this data plane has shares of limits.
        """
        self.drains: listener_drains.ListenerDrains | None = None
        """Draining filter chains of Envoy; None if their number is not limited."""
        self.node: base_pb2.Node | None = None
        """Envoy's node message. None: not received yet."""
        self.needs_resubscribe = False
        """True if the control plane believes that Envoy has what it lacks, so a new stream is
        needed.
        """
        self.is_starting: Callable[[], bool] = lambda: False
        """Return whether Envoy waits for its first configuration."""
        self.stream: delta.DeltaStream | None = None
        self.requests: list[DeltaRequest] = []
        """Requests to send to the control plane, in order. The caller removes them."""
        configs = stored.by_type.get(SIDECAR_CONFIG_TYPE_URL, {})
        self._sidecar_resources = SidecarResources(configs.values())
        keys = [(SIDECAR_CONFIG_TYPE_URL, name) for name in configs]
        self.cache = ResourceCache(stored, stored.changed(gone=keys))
        self._instance = instance
        self._features = (features.RELAY, *([features.LIMIT_SHARES] if instance else []), *sidecars)
        self._subscribed: dict[str, set[str]] = (
            {SIDECAR_CONFIG_TYPE_URL: {WILDCARD}} if sidecars else {}
        )
        self._types_requested: set[str] = set()
        """Types subscribed to on the current stream to the control plane."""
        self._unanswered: dict[str, UnansweredResponse] = {}
        self.health = HealthReport()
        """Last report of Envoy's health."""
        self._had_resources = False
        """True if the Envoy of the current stream had resources before."""
        self._unsubscribed: set[ResourceKey] = set()
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
        if self.health != HealthReport():
            self.requests.append(self.health.request())

    def report(self, report: HealthReport) -> None:
        """Report the health of Envoy to the control plane, if it differs from the last report."""
        if report != self.health:
            self.health = report
            if self._types_requested:
                self.requests.append(report.request())

    @property
    def held(self) -> ResourceSet:
        """Resources held for Envoy."""
        return self.cache.publication.current

    @property
    def incomplete(self) -> bool:
        """True if the control plane has not confirmed that it has sent all for Envoy."""
        return not self.cache.incomplete.isdisjoint(self._subscribed)

    def on_message(self, response: discovery_pb2.DeltaDiscoveryResponse) -> None:
        """Handle a response of the control plane."""
        type_url = response.type_url
        names = self._subscribed.get(type_url, set())
        wildcard = WILDCARD in names
        new = [
            XdsResource(type_url, resource.name, resource.resource.value, resource.version)
            for resource in response.resources
            # A resource may arrive after its unsubscription.
            if wildcard or resource.name in names
        ]
        gone = [name for name in response.removed_resources if wildcard or name in names]
        if type_url == RUNTIME_TYPE_URL:
            new = [own_limits(item, self._instance, self.cache.get(*item.key)) for item in new]
        if type_url == SIDECAR_CONFIG_TYPE_URL:
            self._sidecar_resources.on_response(response.nonce, new, gone)
            return
        self.cache.on_response(type_url, new, gone, incomplete=delta.is_incomplete(response))
        pending = {resource.name for resource in new}.union(gone)
        self._unanswered[type_url] = UnansweredResponse(response.nonce, pending)
        self._process_reactions()

    # Towards sidecars

    @property
    def sidecar_configs(self) -> Mapping[str, XdsResource]:
        """Desired sidecar configurations by name. Replaced by a new object at each change."""
        return self._sidecar_resources.desired

    @property
    def trial(self) -> bool:
        """Return whether the configuration is a trial of the control plane."""
        return TRIAL_NAME in self._sidecar_resources.desired

    def on_sidecar_result(
        self, applied: Mapping[str, XdsResource], rejected: Mapping[str, str]
    ) -> None:
        """Record that sidecars applied the configurations `applied` except those in `rejected`."""
        result = self._sidecar_resources.on_result(applied, rejected)
        if result is None:
            return
        self.cache.store_accepted(result.accepted, result.removed)
        if result.nonce:
            self._answer(SIDECAR_CONFIG_TYPE_URL, result.nonce, result.rejected)

    # Towards Envoy

    def opened(self) -> delta.DeltaStream:
        """Start a stream from Envoy. It replaces an older one."""
        self.stream = delta.DeltaStream(self.cache.publication, self.drains)
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
        request = delta.parse_delta_request(message)
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
        state = self._subscription(LISTENER_TYPE_URL)
        if state is None:
            return False
        none = state.sent_once and state.in_flight is None and not state.rejected
        return none or any(state.client_versions.values())

    # Towards the disk

    @property
    def changed(self) -> bool:
        """Return whether there are changes to store."""
        return bool(self.cache.changes)

    def changes(self) -> list[AcceptedChange]:
        """Return the changes to store, in order. Each is returned once."""
        changes, self.cache.changes = self.cache.changes, []
        return changes

    def _subscription(self, type_url: str) -> Subscription | None:
        if self.stream is None:
            return None
        return self.stream.conversation.subscription(type_url)

    def _compare_versions(self, type_url: str, has: Mapping[str, str]) -> None:
        """Compare Envoy's versions of a type with the cache before sending any of that type."""
        if has and not self._had_resources:
            self._had_resources = True
            self.cache.invalidate()
        differs = self.cache.restore_matching(type_url, has if self._had_resources else None)
        if differs and type_url in self._types_requested:
            self.needs_resubscribe = True

    def _accept(self, state: Subscription, in_flight: PendingResponse) -> None:
        """Record what Envoy accepted of a response, even if something newer is held by now."""
        self.cache.store_accepted(
            [
                resource
                for resource in in_flight.resources
                if state.client_versions.get(resource.name) == resource.version
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

    def _drop(self, keys: Iterable[ResourceKey]) -> None:
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
                self.cache.drop([(type_url, name) for name in names])

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
        if type_url == SIDECAR_CONFIG_TYPE_URL:
            return self._sidecar_resources.versions(starting=self.is_starting())
        state = self._subscription(type_url)
        has = [name for name, version in state.client_versions.items() if version] if state else ()
        return self.cache.versions(type_url, self._subscribed[type_url], has)

    def _process_reactions(self) -> None:
        """Update the cache from Envoy's reactions and answer completed responses."""
        for type_url in list(self.cache.open):
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
            return set(self.cache.open[type_url])
        state, is_idle = self._subscription(type_url), self.stream.conversation.is_idle
        pending: set[str] = set()
        accepted: list[ResourceKey] = []
        reasons: dict[str, str] = {}
        for name in self.cache.open[type_url]:
            held = self.cache.get(type_url, name)
            if state is None or not state.matches(name):
                # Envoy need not accept what it does not subscribe to once it is idle.
                if not is_idle:
                    pending.add(name)
                elif held is None and not self.cache.unknown(type_url, name):
                    accepted.append((type_url, name))
            elif self.cache.is_held_by(state, name):
                accepted.append((type_url, name))
            elif reason := rejection_reason(state, held):
                reasons[name] = reason
            else:
                pending.add(name)
        self.cache.on_ack(accepted)
        if state is not None and reasons:
            self._on_rejected(state, reasons)
        return pending

    def _on_rejected(self, state: Subscription, reasons: Mapping[str, str]) -> None:
        has = {(state.type_url, name): state.client_versions.get(name, "") for name in reasons}
        self.cache.on_nack(has)
        if response := self._unanswered.get(state.type_url):
            response.rejected |= {name: reasons[name] for name in response.names & reasons.keys()}

    def _answer(self, type_url: str, nonce: str, reasons: Mapping[str, str]) -> None:
        request = DeltaRequest(type_url=type_url, response_nonce=nonce)
        if reasons:
            request.error_detail.CopyFrom(delta.status_of(combined_nack(reasons)))
        self.requests.append(request)

    def _drop_unsubscribed(self) -> None:
        """Drop what Envoy does not subscribe to, once it has everything that may refer to it."""
        if self.stream is None or not self._unsubscribed:
            return
        conversation = self.stream.conversation
        if conversation.is_idle and self.cache.received_types >= WILDCARDS:
            unsubscribed, self._unsubscribed = self._unsubscribed, set()
            states = {type_url: self._subscription(type_url) for type_url, _ in unsubscribed}
            self._drop(
                (type_url, name)
                for type_url, name in unsubscribed
                if (state := states[type_url]) is None or not state.matches(name)
            )

    def _release_stale(self) -> None:
        """Stop holding resources that this Envoy rejects although a previous one accepted them."""
        if self.stream is None:
            return
        rejected = [one.resource for one in self.stream.conversation.rejected_resources()]
        stale = [
            resource.key
            for resource in rejected
            if resource.name not in self.cache.open[resource.type_url]
            and self.cache.accepted.get(*resource.key) == resource
        ]
        if stale:
            self.cache.on_nack(dict.fromkeys(stale, ""))
            self.needs_resubscribe = True
