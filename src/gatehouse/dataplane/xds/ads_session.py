"""Server-side state of one ADS stream. No I/O.

:meth:`AdsSession.receive` processes requests. :meth:`AdsSession.next` returns the next response
when there is room to send it, so that a slow client gets the newest state and blocks no other
client. Each type has at most one response in flight. There is one transition at a time, from what
the client has to a publication:

1. Secrets, clusters and endpoints, at the same time. Envoy accepts clusters when they are warm and
   requests their endpoints and secrets before that. Sidecar configurations, if there are any, are
   sent here too; an agent accepts them when the sidecars listen.
2. Once these are accepted: listeners and routes.
3. Once these are accepted: removals, users before the resources that they use.

A publication during a transition starts the next transition, so that a sequence of changes cannot
delay another change for long. There are two exceptions. Endpoints need no order and are always sent
in their newest state. Secrets that are requested and arrive late are sent at once: a relay receives
them after it has sent their clusters, which get warm and are accepted only with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import msgspec

from gatehouse.dataplane.limit_use import LimitUse
from gatehouse.dataplane.unready_servers import UnreadyServers
from gatehouse.dataplane.xds.ads_messages import AdsRequest, Response
from gatehouse.dataplane.xds.distinct_scopes import DistinctScopes
from gatehouse.dataplane.xds.listener_drains import ListenerDrains
from gatehouse.dataplane.xds.nacks import RejectedResource, is_bind_error
from gatehouse.dataplane.xds.resources import (
    ADD_ORDER,
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    REMOVE_ORDER,
    SCOPE_TYPE_URL,
    SECRET_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
    TRIAL_NAME,
    ResourceKey,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.scope_tests import ScopeTests
from gatehouse.dataplane.xds.snapshot_cache import WILDCARD, SnapshotCache
from gatehouse.dataplane.xds.subscription import Subscription
from kube_base.runtime.time_limits import scaled

TYPE_ORDER = {type_url: rank for rank, type_url in enumerate(ADD_ORDER)}

WILDCARDS = frozenset({CLUSTER_TYPE_URL, LISTENER_TYPE_URL})
"""Types that every Envoy subscribes to by wildcard, sooner or later."""

SUBSCRIBE_GRACE_SECONDS = scaled(1.0)
"""Time in seconds in which an Envoy must request resources that it has reason to request, such as
the routes of a new listener. It requests them as it accepts. Later it does not need them."""

CLUSTER_WARMING_SECONDS = scaled(20.0)
"""Maximum time in seconds that new clusters delay other types. Envoy waits 15 s for missing
endpoints and secrets; health checks may take any time."""

LISTENER_RETRY_SECONDS = 10.0
"""Time in seconds after which a listener is sent again whose port was in use."""


class ExpectedReaction(msgspec.Struct, frozen=True):
    """An expected reaction of a client and its timeout."""

    what: str
    """Unique for each occasion."""
    seconds: float


class AdsSession:
    """State of one stream; see the module's docstring. ``drains``: None for no limit of them."""

    def __init__(self, publication: SnapshotCache, drains: ListenerDrains | None = None) -> None:
        self.confirmed = ""
        """Version of the newest publication that the client has, except rejected resources; empty
        if none yet."""
        self.serving = False
        """True if the client has resources from an earlier stream, or all of a publication, that
        are no trial."""
        self.names_rejections = False
        """True if the client's NACKs name each rejected resource."""
        self.knows_trials = False
        """True if the client does not become ready with a trial."""
        self.tests_scopes = False
        """True if the client, while it serves, can test the scopes of a trial."""
        self.tests = ScopeTests()
        """Tests of trials while the client serves."""
        self.unhealthy = ""
        """Reason why the client's Envoy serves nothing. Empty if no problem is known."""
        self.unready_servers: UnreadyServers = {}
        """Servers that are not ready at the client's Envoy."""
        self.limit_use: tuple[str, LimitUse] | None = None
        """The client's name, and its use of shared limits. None: not reported."""
        self.target = ResourceSet()
        """Target of the present transition."""
        self._publication = publication
        self._drains = drains
        self._number, self._nonce = -1, 0
        self._types: dict[str, Subscription] = {}
        self._sent_endpoints = -1
        """Number of the publication whose endpoints are sent; it may be newer than the target."""
        self._start_nonce = 0
        """Nonce of the last response before the present transition."""
        self._pending_endpoints: set[str] = set()
        """Endpoints that changed in the present transition and were not accepted since."""
        self._expected: dict[str, set[str]] = {}
        """By type, names that the client is expected to request and has not requested yet."""
        self._had_trial = False
        """True if the resources of the earlier stream are a trial."""
        self._port_retries = 0
        """Number of times that listeners were sent again because their port was in use."""
        self.scopes = DistinctScopes()
        self._overdue = ""
        """Nonce of the response with clusters that do not get warm in time."""

    @property
    def target_version(self) -> str:
        """Version of the publication that was last sent to the client; empty if none yet."""
        return self.target.version if self._number >= 0 else ""

    @property
    def takes_trials(self) -> bool:
        """True if the client gets trials: as a whole, or their scopes while it serves."""
        return self.tests_scopes if self.serving else self.knows_trials

    @property
    def deadline(self) -> ExpectedReaction | None:
        """Reaction expected from the client; None if it need not be watched."""
        clusters = self._types.get(CLUSTER_TYPE_URL)
        if clusters is not None and clusters.in_flight is not None:
            if clusters.in_flight.nonce != self._overdue:
                return ExpectedReaction(clusters.in_flight.nonce, CLUSTER_WARMING_SECONDS)
        elif any(self._expected.values()):
            return None if self._busy() else ExpectedReaction("asking", SUBSCRIBE_GRACE_SECONDS)
        if self._drains is not None and self._drains.number:
            return ExpectedReaction(f"drain {self._drains.releases}", self._drains.interval_seconds)
        if self._unbound() and not self._busy():
            return ExpectedReaction(f"ports {self._port_retries}", LISTENER_RETRY_SECONDS)
        return None

    def on_deadline(self) -> None:
        """Stop waiting for the reaction expected by :attr:`deadline`."""
        clusters = self._types.get(CLUSTER_TYPE_URL)
        in_flight = clusters.in_flight if clusters is not None else None
        if in_flight is not None and in_flight.nonce != self._overdue:
            self._overdue = in_flight.nonce
        elif in_flight is None and any(self._expected.values()):
            self._expected.clear()
        elif self._drains is not None and self._drains.number:
            self._drains.release()
        elif unbound := self._unbound():
            self._port_retries += 1
            self._types[LISTENER_TYPE_URL].retry(unbound)

    def _unbound(self) -> list[str]:
        """Return the names of the listeners whose port the client's Envoy could not get.

        Only a relay is asked again: it names what its Envoy rejects.
        """
        listeners = self._types.get(LISTENER_TYPE_URL)
        if listeners is None or not listeners.rejected or not self.names_rejections:
            return []
        return [name for name, one in listeners.rejected.items() if is_bind_error(one.reason)]

    @property
    def is_idle(self) -> bool:
        """True if the client has the newest publication, except rejected resources."""
        return self._number == self._publication.number and self._complete()

    def unsubscribed(self) -> list[ResourceKey]:
        """Return the keys that the client was expected to request and has not requested."""
        return [(type_url, name) for type_url, names in self._expected.items() for name in names]

    def rejected_resources(self) -> Iterator[RejectedResource]:
        """Return the resources that the client rejects."""
        return chain.from_iterable(state.rejected.values() for state in self._types.values())

    def subscription(self, type_url: str) -> Subscription | None:
        """Return the subscription to a type, or None if the client has not requested the type."""
        return self._types.get(type_url)

    @property
    def requested_bytes(self) -> int:
        """Estimated memory of what the client requested and reported."""
        return sum(state.requested_bytes for state in self._types.values())

    def receive(self, request: AdsRequest) -> None:
        """Process one request or acknowledgement. Those of unknown types are ignored."""
        if request.type_url not in TYPE_ORDER:
            return
        state = self._types.get(request.type_url)
        if state is None:
            # Envoy acknowledges a rejected secret when it gets it again, so that the first NACK
            # must identify it.
            one_by_one = request.type_url == SECRET_TYPE_URL and not self.names_rejections
            state = Subscription(request.type_url, one_by_one=one_by_one)
            self._types[request.type_url] = state
        if request.nonce:
            accepted = state.on_response(request.nonce, request.nack)
            endpoints = request.type_url == ENDPOINTS_TYPE_URL
            if endpoints and accepted and int(request.nonce) > self._start_nonce:
                self._pending_endpoints -= accepted
            if request.type_url == SCOPE_TYPE_URL:
                self.tests.answered(request.nonce, state)
        before = state.wildcard
        if request.versions:
            own = request.type_url == SIDECAR_CONFIG_TYPE_URL
            self._had_trial |= own and TRIAL_NAME in request.versions
            self.serving |= not self._had_trial
        state.subscribe(request.subscribe, request.versions)
        state.unsubscribe(request.unsubscribe)
        if state.wildcard and not before:
            state.mark(self.target.by_type.get(request.type_url, ()))
        if expected := self._expected.get(request.type_url):
            if request.type_url == ENDPOINTS_TYPE_URL:
                # Part of the present transition, like endpoints requested before it began.
                self._pending_endpoints |= expected.intersection(request.subscribe)
            expected.difference_update(request.subscribe)
            if state.wildcard:
                expected.clear()

    def next(self) -> Response | None:
        """Return the next response, or None until a request or publication arrives."""
        if not self._publication.open:
            return None
        if self._publication.trial and (self.serving or not self.knows_trials):
            return self._next_test()
        self.tests.end(self._types.get(SCOPE_TYPE_URL))
        self._mark_endpoints()
        response = self._next_response()
        while response is None and not self._busy():
            if self._complete():
                self.confirmed = self.target_version
                self.serving = self.serving or self._has_all_of_target()
            if not self._advance():
                return None
            response = self._next_response()
        return response

    def _next_test(self) -> Response | None:
        """Return the next scope of the trial that the client is to test; nothing else is sent."""
        if not self.serving or not self.tests_scopes:
            return None
        state = self._types.get(SCOPE_TYPE_URL)
        copy = self.tests.next(self._publication, state)
        if state is None or copy is None:
            return None
        response = self._send(state, (copy,), ())
        self.tests.sent(response.nonce)
        return response

    def _has_all_of_target(self) -> bool:
        """Return whether the client serves the target, which it has confirmed."""
        return not self.target.trial and not any(self.rejected_resources())

    def _busy(self) -> bool:
        """Return whether the transition cannot continue before the client answers."""
        for type_url, state in self._types.items():
            unanswered = state.in_flight is not None and state.in_flight.nonce != self._overdue
            if unanswered and type_url != ENDPOINTS_TYPE_URL:
                return True
        return False

    def _complete(self) -> bool:
        if self._number < 0 or any(self._expected.values()):
            return False
        for type_url, state in self._types.items():
            if type_url == ENDPOINTS_TYPE_URL:
                self._pending_endpoints = {
                    name for name in self._pending_endpoints if not state.settled(name)
                }
            elif not state.idle:
                return False
        if self._pending_endpoints:
            return False
        required = WILDCARDS.intersection(self.target.by_type)
        return all(
            required_type in self._types or not self.target.by_type[required_type]
            for required_type in required
        )

    def _mark_endpoints(self) -> None:
        """Mark endpoints that changed since the last call, in any state of the transition."""
        newest, state = self._publication, self._types.get(ENDPOINTS_TYPE_URL)
        if newest.number == self._sent_endpoints:
            return
        changed = newest.changes_since(self._sent_endpoints) if self._sent_endpoints >= 0 else None
        self._sent_endpoints = newest.number
        if (secrets := self._types.get(SECRET_TYPE_URL)) is not None:
            known = self.target.by_type.get(SECRET_TYPE_URL, {})
            secrets.mark(name for name in secrets.names if name not in known)
        if state is not None and changed is not None:
            state.mark(
                name
                for type_url, name in changed
                if type_url == ENDPOINTS_TYPE_URL and state.matches(name)
            )
        elif state is not None:
            state.mark(state.names)

    def _advance(self) -> bool:
        """Start the transition to the newest publication. Return False if none can start."""
        newest = self._publication
        if newest.number == self._number:
            return False
        changed = newest.changes_since(self._number) if self._number >= 0 else None
        drains = self._drains
        if drains and not drains.start(self.target, newest.current, changed, self._types):
            return False
        self.target, self._number, self._start_nonce = newest.current, newest.number, self._nonce
        keys = self._all_keys() if changed is None else changed
        for type_url, name in keys:
            state = self._types.get(type_url)
            if state is not None and state.matches(name):
                state.mark((name,))
                if type_url == ENDPOINTS_TYPE_URL:
                    self._pending_endpoints.add(name)
            elif self.target.get(type_url, name) is None:
                self._expected.get(type_url, set()).discard(name)
            elif type_url not in WILDCARDS:
                self._expected.setdefault(type_url, set()).add(name)
        return True

    def _all_keys(self) -> Iterable[ResourceKey]:
        for type_url in dict.fromkeys((*self.target.by_type, *self._types)):
            state = self._types.get(type_url)
            named = self.target.by_type.get(type_url, {})
            client_names = () if state is None else (*state.client_versions, *state.names)
            for name in dict.fromkeys((*named, *client_names)):
                yield type_url, name

    def _next_response(self) -> Response | None:
        if self._number < 0:
            return None
        for type_url in sorted(self._types, key=TYPE_ORDER.__getitem__):
            late = TYPE_ORDER[type_url] >= TYPE_ORDER[LISTENER_TYPE_URL]
            if late and self._dependencies_pending():
                return None
            state = self._types[type_url]
            if state.in_flight is None:
                resources, removed = state.next_resources(self._lookup(type_url), self._publication)
                if resources or removed or self._needs_empty_response(state):
                    return self._send(state, resources, removed)
        if self._busy() or self._dependencies_pending():
            return None
        for type_url in sorted(self._types, key=REMOVE_ORDER.index):
            state = self._types[type_url]
            if state.in_flight is None and (gone := state.next_removals()):
                return self._send(state, (), gone)
        return None

    def _dependencies_pending(self) -> bool:
        """Return whether resources that routes need are missing. Envoy would answer 503."""
        for type_url in (SIDECAR_CONFIG_TYPE_URL, SECRET_TYPE_URL, CLUSTER_TYPE_URL):
            state = self._types.get(type_url)
            if state is not None and state.in_flight is not None:
                return state.in_flight.nonce != self._overdue
        return CLUSTER_TYPE_URL in self._types and bool(self._expected.get(ENDPOINTS_TYPE_URL))

    def _lookup(self, type_url: str) -> Callable[[str], XdsResource | None]:
        named = self.target.by_type.get(type_url, {})
        newest = self._publication.current.by_type.get(type_url, {})
        if type_url == ENDPOINTS_TYPE_URL:
            return lambda name: newest.get(name) or named.get(name)
        if type_url == SECRET_TYPE_URL:
            return lambda name: named.get(name) or newest.get(name)
        return named.get

    def _needs_empty_response(self, state: Subscription) -> bool:
        """Return whether the client waits to be informed that there are no resources."""
        if self._number != self._publication.number:
            # There may be resources by now.
            return False
        empty = state.wildcard and self._publication.is_absent(state.type_url, WILDCARD)
        return empty and not state.sent_once

    def _send(
        self, state: Subscription, resources: tuple[XdsResource, ...], removed: tuple[str, ...]
    ) -> Response:
        self._nonce += 1
        copies = resources if self.names_rejections else self.scopes.copies(resources)
        more = state.lacks_more(self._lookup(state.type_url))
        response = Response(state.type_url, str(self._nonce), copies, removed, more)
        endpoints = self._types.get(ENDPOINTS_TYPE_URL)
        if state.type_url == CLUSTER_TYPE_URL and endpoints is not None:
            # Envoy warms a changed cluster like a new one but does not request its endpoints again.
            # Without them it would wait 15 s.
            endpoints.resend(
                resource.name for resource in resources if state.client_versions.get(resource.name)
            )
        state.sent(response.nonce, resources, removed)
        return response
