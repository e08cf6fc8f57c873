"""Observed state of one host, and the schedule of work on it. No I/O.

There are two kinds of failures. A host failure (no response, 5xx, no permission) stops all work on
the host until the next attempt and discards its observed state. An upstream failure (not found,
static, invalid address) does not affect other upstreams. Each kind is retried after 2 s, 4 s and so
on up to 60 s, plus a random part of a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.nginx_plus import DesiredUpstreams, Upstream
from gatehouse.dataplane.upstream_name import UpstreamContext, UpstreamName
from gatehouse.transports.nginx_plus.client import NginxInfo, Peer
from gatehouse.transports.nginx_plus.diff import ObservedServers
from kube_base.runtime.backoff import BackoffPolicy

HOST_RETRIES = BackoffPolicy(first=2.0, maximum=60.0)
"""Back-off of a host and of an upstream, before jitter."""

PROBE_INTERVAL_SECONDS = 10.0
"""Interval in seconds between checks whether a host is still the same instance."""

IDENTITY_TTL_SECONDS = 1.0
"""Time in seconds before a batch of changes within which such a check is recent enough. Servers are
changed and removed by ID, and another instance assigns IDs differently."""

REREAD_PER_PROBE = 10
"""Minimum number of upstreams that are read again with each check without an overview."""

OVERVIEW_MAX_SERVERS = 500
"""Maximum number of servers of a host that is checked with overviews: they contain statistics."""


class UpstreamState(msgspec.Struct):
    """Observed state of one upstream."""

    known: ObservedServers | None = None
    """Observed servers; None if they must be read first."""
    done: Upstream | None = None
    """Desired upstream that was last applied."""
    leaving: Mapping[int, float] = {}
    later: float | None = None
    failures: int = 0
    retry_at: float = 0.0
    error: str = ""
    read_at: float = 0.0
    blame: int = 0
    """Number of consecutive host failures at this upstream while the host responds otherwise."""


class HostState:
    """Observed state and schedule of one host."""

    def __init__(self, url: str, jitter: Callable[[], float]) -> None:
        """``jitter`` returns the random part of each delay in seconds."""
        self._url = url
        self._jitter = jitter
        self.desired = DesiredUpstreams({}, drain=0.0, resync=300.0, timeout=10.0)
        self._upstreams: dict[UpstreamName, UpstreamState] = {}
        self._about: NginxInfo | None = None
        self._instance: NginxInfo | None = None
        """Last known description, also while the host does not respond."""
        self._api = 0
        self._failures = 0
        self._error = ""
        self._next_probe = 0.0
        self._verified_at = -math.inf
        self._overview_works = True
        self._batch_at: float | None = math.inf
        """Time to apply the latest desired state; None if that has passed."""
        self._version = ""
        self.retries = self.drifts = 0
        self.agreed_at: float | None = None
        """Time at which the host was last seen to hold its complete desired state."""

    @property
    def connected(self) -> bool:
        """True if the host's last response was valid."""
        return self._about is not None

    def set_desired(self, desired: DesiredUpstreams, now: float) -> None:
        """Set the desired state. Changes within the next moment are applied in one batch."""
        self.desired = desired
        for name in self._upstreams.keys() - desired.upstreams.keys():
            del self._upstreams[name]
        for name in desired.upstreams.keys() - self._upstreams.keys():
            self._upstreams[name] = UpstreamState()
        if self._batch_at in (None, math.inf):
            self._batch_at = now + self._jitter()

    def next_at(self) -> float:
        """Return the time of the next work."""
        if not self.connected:
            return max(self._next_probe, self._batch_at or 0.0)
        times = [self._next_probe]
        if self._batch_at is not None:
            times.append(self._batch_at)
        for state in self._upstreams.values():
            if state.failures:
                times.append(state.retry_at)
            elif state.later is not None:
                times.append(state.later)
        return min(times)

    def probing(self, now: float) -> bool:
        """Return whether the host's description must be read again."""
        return now >= self._next_probe

    def overview_contexts(self, now: float) -> tuple[UpstreamContext, ...]:
        """Contexts whose overview can replace the identification of the host; empty if none can."""
        upstreams = self.desired.upstreams
        servers = sum(len(upstream.servers) for upstream in upstreams.values())
        identified = self.connected and now - self._verified_at < self.desired.resync
        if not identified or not self._overview_works or servers > OVERVIEW_MAX_SERVERS:
            return ()
        return tuple(sorted({name.context for name in upstreams}))

    def on_overview(self, peers: Mapping[UpstreamName, Sequence[Peer]], now: float) -> bool:
        """Record an overview. Return whether all observed upstreams are unchanged."""
        unchanged = True
        for name, state in self._upstreams.items():
            if state.known and not state.known.matches(peers.get(name, ())):
                state.known, unchanged = None, False
        if not unchanged:
            return False
        self._next_probe = now + PROBE_INTERVAL_SECONDS + self._jitter()
        oldest = now + PROBE_INTERVAL_SECONDS - self.desired.resync
        for state in self._upstreams.values():
            # Overviews lack some parameters.
            if state.read_at <= oldest and not state.failures:
                state.known = None
        return True

    def on_overview_rejected(self) -> None:
        """Identify the host and read single upstreams from now on."""
        self._overview_works = False

    def on_connected(self, api: int, about: NginxInfo, now: float) -> None:
        """Record a valid response and the host's description. A new instance starts without
        state."""
        if self._about != about or self._api != api:
            self.forget()
            if self._instance != about:
                # These IDs belong to the previous instance.
                for state in self._upstreams.values():
                    state.leaving, state.later = {}, None
                self._instance = about
        self._api, self._about = api, about
        self._failures, self._error = 0, ""
        self._next_probe = now + PROBE_INTERVAL_SECONDS + self._jitter()
        self._verified_at = now
        self._schedule_rereads()

    def is_current(self, began: float, now: float) -> bool:
        """Return whether the host was identified as the known instance since the batch began."""
        return (
            self._verified_at > began - IDENTITY_TTL_SECONDS
            and now - self._verified_at < PROBE_INTERVAL_SECONDS
        )

    def is_same_instance(self, about: NginxInfo, now: float) -> bool:
        """Return whether ``about`` describes the known instance. If not, schedule a new
        identification."""
        if about == self._about:
            self._verified_at = now
            return True
        self._verified_at, self._next_probe = -math.inf, now
        return False

    def _schedule_rereads(self) -> None:
        """Schedule the upstreams that were not read for the longest time to be read again."""
        share = -(
            -len(self._upstreams)
            * PROBE_INTERVAL_SECONDS
            // max(self.desired.resync, PROBE_INTERVAL_SECONDS)
        )
        readable = [
            upstream
            for upstream in self._upstreams.values()
            if upstream.known and not upstream.failures
        ]
        readable.sort(key=lambda upstream: upstream.read_at)
        for state in readable[: max(REREAD_PER_PROBE, int(share))]:
            state.known = None

    def on_lost(self, error: str, now: float) -> None:
        """Record a host failure."""
        self.forget()
        self._about = None
        self._overview_works = True
        self._failures += 1
        self.retries += 1
        self._error = error
        self._next_probe = now + HOST_RETRIES.delay(self._failures) + self._jitter()

    def forget(self) -> None:
        """Discard the observed state of all upstreams."""
        for state in self._upstreams.values():
            state.known, state.done = None, None
            state.failures, state.error = 0, ""

    def due(self, now: float) -> list[UpstreamName]:
        """Return the upstreams that need work, which starts the pending batch if its time has
        come."""
        if self._batch_at is not None and now < self._batch_at:
            return []
        self._batch_at = None
        names = [name for name, state in self._upstreams.items() if self._is_due(name, state, now)]
        return sorted(names, key=lambda name: self._upstreams[name].blame)

    def _is_due(self, name: UpstreamName, state: UpstreamState, now: float) -> bool:
        if state.failures:
            return now >= state.retry_at
        if state.later is not None and now >= state.later:
            return True
        return state.known is None or state.done is not self.desired.upstreams[name]

    def upstream(self, name: UpstreamName) -> UpstreamState | None:
        """Return the state of an upstream, or None if it is not desired now."""
        return self._upstreams.get(name)

    def on_failed(self, name: UpstreamName, error: str, now: float) -> None:
        """Record an upstream failure."""
        state = self._upstreams.get(name)
        if state is not None:
            state.known = None
            state.failures += 1
            state.error = error
            state.retry_at = now + HOST_RETRIES.delay(state.failures) + self._jitter()
            self.retries += 1

    def fails_repeatedly(self, name: UpstreamName) -> bool:
        """Record a host failure at an upstream. Return whether the previous attempt at it failed
        too.

        In that case it counts as an upstream failure, so that an upstream whose requests never get
        a response does not block the ones after it.
        """
        state = self._upstreams.get(name)
        if state is None:
            return False
        state.blame += 1
        return state.blame > 1

    def report(self, now: float) -> HostReport:
        """Return the current report."""
        # A pending read does not invalidate a confirmed state.
        upstreams = self.desired.upstreams.items()
        behind = sum(
            1 for name, upstream in upstreams if self._upstreams[name].done is not upstream
        )
        if self.connected and not behind:
            self._version = self.desired.version
            self.agreed_at = now
        return HostReport(
            host=self._url,
            version=self._version,
            server=self._about.server if self._about else "",
            api=self._api if self._about else 0,
            failing=tuple(_failing(self._upstreams.items())),
            error=self._error,
            behind=behind,
            empty=frozenset(name for name, upstream in upstreams if self._is_empty(name, upstream)),
        )

    def _is_empty(self, name: UpstreamName, desired: Upstream) -> bool:
        state = self._upstreams[name]
        return not desired.servers and state.done is desired and not state.leaving


def _failing(state: Iterable[tuple[UpstreamName, UpstreamState]]) -> Iterable[tuple[str, str]]:
    return (
        (str(name), upstream_state.error)
        for name, upstream_state in sorted(state)
        if upstream_state.error
    )
