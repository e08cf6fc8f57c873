"""What is known of one host, what is due there, and when something is next. Pure.

Two kinds of failures are told apart. One that is the host's (no answer, 5xx, no permission) stops
everything there until the next attempt, and what was known is known no more. One that is an
upstream's (not found, static, a bad address) leaves the others alone. Each kind is tried again
after 2 s, 4 s and so on, 60 s at most, and a random part of a second more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.nginx_plus import DesiredUpstreams, Upstream
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.transports.nginx_plus.client import NginxInfo
from gatehouse.transports.nginx_plus.diff import Known

FIRST_RETRY, LAST_RETRY = 2.0, 60.0
"""Seconds before what failed is tried again; doubles from the first to the last."""

PROBE_INTERVAL_SECONDS = 10.0
"""Seconds between two questions whether a host still lives the same life."""

IDENTITY_TTL_SECONDS = 1.0
"""Seconds before a batch of changes within which an answer to that question is new enough: servers
are changed and removed by numbers that mean others in another life."""

LOOKED_AT_EACH_PROBE = 10
"""Upstreams at least that are read again with each of those questions."""


def retry_delay(failures: int) -> float:
    """Give the seconds to wait after so many failures in a row, the last included."""
    # 2**16 seconds is beyond any cap; without this, days of failures overflow a float.
    return min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 16))


class UpstreamState(msgspec.Struct):
    """What is known of one upstream."""

    known: Known | None = None
    """None: it must be read first."""
    done: Upstream | None = None
    """What it was last made to hold."""
    leaving: Mapping[int, float] = {}
    later: float | None = None
    failures: int = 0
    retry_at: float = 0.0
    error: str = ""
    read_at: float = 0.0
    blame: int = 0
    """How often in a row it was at this upstream that the host failed, although it answers."""


class HostState:
    """Of one host."""

    def __init__(self, url: str, jitter: Callable[[], float]) -> None:
        """``jitter`` gives the random part of each delay, in seconds."""
        self._url = url
        self._jitter = jitter
        self.wanted = DesiredUpstreams({}, drain=0.0, resync=300.0, timeout=10.0)
        self._held: dict[UpstreamName, UpstreamState] = {}
        self._about: NginxInfo | None = None
        self._life: NginxInfo | None = None
        """The last one that is known, also while the host does not answer."""
        self._api = 0
        self._failures = 0
        self._error = ""
        self._next_probe = 0.0
        self._met_at = -math.inf
        self._settles: float | None = math.inf
        """When what was wanted last is to be done; None: that is past."""
        self._version = ""
        self.retries = self.drifts = 0
        self.agreed_at: float | None = None
        """When the host was last seen to hold all that it is to hold."""

    @property
    def connected(self) -> bool:
        """Whether the host answered the last time."""
        return self._about is not None

    def want(self, wanted: DesiredUpstreams, now: float) -> None:
        """Take in what the host is to hold; what comes within the next moment is one change."""
        self.wanted = wanted
        for name in self._held.keys() - wanted.upstreams.keys():
            del self._held[name]
        for name in wanted.upstreams.keys() - self._held.keys():
            self._held[name] = UpstreamState()
        if self._settles in (None, math.inf):
            self._settles = now + self._jitter()

    def next_at(self) -> float:
        """Give when something is due."""
        if not self.connected:
            return max(self._next_probe, self._settles or 0.0)
        times = [self._next_probe]
        if self._settles is not None:
            times.append(self._settles)
        for held in self._held.values():
            if held.failures:
                times.append(held.retry_at)
            elif held.later is not None:
                times.append(held.later)
        return min(times)

    def probing(self, now: float) -> bool:
        """Whether it is time to ask the host who it is."""
        return now >= self._next_probe

    def on_connected(self, api: int, about: NginxInfo, now: float) -> None:
        """Note that the host answered, and who it is; another life starts with nothing known."""
        if self._about != about or self._api != api:
            self.forget()
            if self._life != about:
                # Numbers of the last life.
                for held in self._held.values():
                    held.leaving, held.later = {}, None
                self._life = about
        self._api, self._about = api, about
        self._failures, self._error = 0, ""
        self._next_probe = now + PROBE_INTERVAL_SECONDS + self._jitter()
        self._met_at = now
        self._look_again()

    def is_current(self, began: float, now: float) -> bool:
        """Whether the host lived the life that is known when the batch began, or since."""
        return (
            self._met_at > began - IDENTITY_TTL_SECONDS
            and now - self._met_at < PROBE_INTERVAL_SECONDS
        )

    def is_same_instance(self, about: NginxInfo, now: float) -> bool:
        """Whether a host that says this lives the life that is known; else it is met anew."""
        if about == self._about:
            self._met_at = now
            return True
        self._met_at, self._next_probe = -math.inf, now
        return False

    def _look_again(self) -> None:
        """Have those upstreams read again that were not for longest."""
        share = -(
            -len(self._held)
            * PROBE_INTERVAL_SECONDS
            // max(self.wanted.resync, PROBE_INTERVAL_SECONDS)
        )
        settled = [each for each in self._held.values() if each.known and not each.failures]
        settled.sort(key=lambda each: each.read_at)
        for each in settled[: max(LOOKED_AT_EACH_PROBE, int(share))]:
            each.known = None

    def on_lost(self, error: str, now: float) -> None:
        """Note that the host cannot be spoken to."""
        self.forget()
        self._about = None
        self._failures += 1
        self.retries += 1
        self._error = error
        self._next_probe = now + retry_delay(self._failures) + self._jitter()

    def forget(self) -> None:
        """Know nothing of the upstreams any more."""
        for held in self._held.values():
            held.known, held.done = None, None
            held.failures, held.error = 0, ""

    def due(self, now: float) -> list[UpstreamName]:
        """Give the upstreams that need work; what was wanted until now has its moment here."""
        if self._settles is not None and now < self._settles:
            return []
        self._settles = None
        found = [name for name, held in self._held.items() if self._needs(name, held, now)]
        return sorted(found, key=lambda name: self._held[name].blame)

    def _needs(self, name: UpstreamName, held: UpstreamState, now: float) -> bool:
        if held.failures:
            return now >= held.retry_at
        if held.later is not None and now >= held.later:
            return True
        return held.known is None or held.done is not self.wanted.upstreams[name]

    def held(self, name: UpstreamName) -> UpstreamState | None:
        """Give what is known of an upstream; None if it is not ours any more."""
        return self._held.get(name)

    def failed(self, name: UpstreamName, error: str, now: float) -> None:
        """Note that an upstream could not be made to hold what it is to hold."""
        held = self._held.get(name)
        if held is not None:
            held.known = None
            held.failures += 1
            held.error = error
            held.retry_at = now + retry_delay(held.failures) + self._jitter()
            self.retries += 1

    def failed_twice(self, name: UpstreamName) -> bool:
        """Note that the host failed at an upstream; says whether it did so the last time as well.

        Then it is that upstream's failure: one that nothing can be said of must not keep all those
        from being changed that come after it.
        """
        held = self._held.get(name)
        if held is None:
            return False
        held.blame += 1
        return held.blame > 1

    def report(self, now: float) -> HostReport:
        """Give what there is to say."""
        # A read that is due again makes nothing untrue that was confirmed.
        upstreams = self.wanted.upstreams.items()
        behind = sum(1 for name, each in upstreams if self._held[name].done is not each)
        if self.connected and not behind:
            self._version = self.wanted.version
            self.agreed_at = now
        return HostReport(
            host=self._url,
            version=self._version,
            server=self._about.server if self._about else "",
            api=self._api if self._about else 0,
            failing=tuple(_failing(self._held.items())),
            error=self._error,
            behind=behind,
            empty=frozenset(name for name, each in upstreams if self._is_empty(name, each)),
        )

    def _is_empty(self, name: UpstreamName, wanted: Upstream) -> bool:
        held = self._held[name]
        return not wanted.servers and held.done is wanted and not held.leaving


def _failing(held: Iterable[tuple[UpstreamName, UpstreamState]]) -> Iterable[tuple[str, str]]:
    return ((str(name), each.error) for name, each in sorted(held) if each.error)
