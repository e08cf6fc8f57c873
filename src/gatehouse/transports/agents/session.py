"""State of one instance: the latest version wins, with one request in flight. No I/O.

Each event carries the current time. The session returns effects, and :attr:`Session.wake_at` is the
next time at which :class:`Elapsed` must be received. Streams are numbered, so that the late end of
an old stream does not affect the newer one that replaced it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatehouse.dataplane.agent_limits import cut_paths
from gatehouse.transports.agents.events import (
    AgentEvent,
    ApplyResponse,
    Effect,
    Elapsed,
    End,
    FileFetched,
    HasFiles,
    HasVersion,
    Health,
    Publish,
    Reconnected,
    Register,
    Restarted,
    Send,
    SeparateEndpoints,
    StreamClosed,
    StreamOpen,
    limited_event,
)
from kube_base.runtime.backoff import Backoff, BackoffPolicy

__all__ = [
    "ApplyResponse",
    "SeparateEndpoints",
    "Effect",
    "Elapsed",
    "End",
    "AgentEvent",
    "FileFetched",
    "HasFiles",
    "HasVersion",
    "Health",
    "Publish",
    "Reconnected",
    "Register",
    "Restarted",
    "Send",
    "StreamClosed",
    "StreamOpen",
    "AgentSession",
]

AGENT_RETRIES = BackoffPolicy(first=1.0, maximum=60.0)
"""Back-off between attempts at one version."""

MAX_MISSED_DEADLINES = 5
"""Maximum response time of an instance that keeps fetching files, in deadlines. When thousands of
instances fetch at once, each takes longer."""

FILE_REPORT_TIMEOUT_SECONDS = 5.0
"""Time in seconds before the first request in which an agent may report its files. NGINX Agent v3
reports them one second after it connects, but not on later connections."""

MAX_UNANSWERED_REQUESTS = 5
"""Number of consecutive unanswered requests after which the stream is ended, because unread
messages are buffered for it."""


class _Request(msgspec.Struct):
    version: str
    correlation: str
    deadline: float
    latest: float
    """Upper limit of the deadline; fetching cannot extend it further."""
    part: str
    """Upstream whose servers are requested; empty for the files, or for the whole version."""
    value: str
    """Version of this part that the instance has if it succeeds."""


class AgentSession:
    """The state of one instance; see the module's docstring."""

    def __init__(self, new_id: Callable[[], str], apply_deadline: float) -> None:
        self.desired = self.confirmed = self.error = ""
        self.about = Register("", "")
        """Latest description of its NGINX."""
        self.rejected_version = self.rejection = ""
        """The version that its NGINX rejected last, with its message. It need not be the desired
        one: another version may have been published meanwhile."""
        self.generation = 0
        """Number of the open stream; 0 if none."""
        self.unmanaged: frozenset[str] = frozenset()
        """Reported paths of files that its NGINX reads and that are not Gatehouse's."""
        self.attempt = 0
        """Number of requests for files that did not succeed."""
        self.in_flight: _Request | None = None
        self._separate_endpoints: Callable[[], SeparateEndpoints | None] = lambda: None
        self._confirmed_parts: dict[str, str] = {}
        """Confirmed version of each part."""
        self._deferred: set[str] = set()
        """Rejected parts, which wait for the next attempt."""
        self._sent = ""
        self._reported_version = ""
        """Version that it reported when it connected; cleared by the first request."""
        self._reconnected = False
        self._nginx_seen = self._files_known = False
        self._files_until = 0.0
        self._health = ""
        self._overdue: _Request | None = None
        self._unanswered = 0
        self._backoff, self._retry_at = Backoff(AGENT_RETRIES), 0.0
        self._new_id, self._apply_deadline = new_id, apply_deadline

    @property
    def sent_version(self) -> str:
        """Version that was last requested, or that was found to be served already."""
        return self._sent

    def pending_version(self, correlation: str) -> str:
        """Return the version requested under ``correlation``, or "" if none was."""
        for request in (self.in_flight, self._overdue):
            if request is not None and request.correlation == correlation:
                return request.version
        return ""

    @property
    def problem(self) -> str:
        """Reason why its NGINX serves nothing; empty if it serves or no NGINX was found yet."""
        return (self.about.problem or self._health) if self._nginx_seen else ""

    @property
    def wake_at(self) -> float | None:
        """Time at which :class:`Elapsed` must be received next, or None."""
        waiting = max(self._retry_at, self._wait_for_files) if self._can_send else None
        return self.in_flight.deadline if self.in_flight else waiting

    @property
    def _wait_for_files(self) -> float:
        waits = self.about.reports_files and not self._files_known
        return self._files_until if waits else 0.0

    @property
    def _can_send(self) -> bool:
        # NGINX Agent v3 signals process 0 if its NGINX has no master, which ends the agent itself.
        listening = bool(self.generation and self.about.nginx_id and not self.problem)
        return listening and bool(self.desired) and self.confirmed != self.desired

    def receive(self, event: AgentEvent, now: float) -> list[Effect]:
        """Process one event and return its effects in order."""
        effects: list[Effect] = []
        before = self.problem
        match limited_event(event):
            case Publish() as publish:
                self._publish(publish)
            case Register() as about:
                self._register(about, now)
            case Health(problem):
                self._health = problem
            case HasFiles(paths):
                self._has_files(paths)
            case Reconnected(about):
                self._reconnect(about)
            case Restarted(about):
                self._restarted(about)
            case HasVersion(version):
                self._has_version(version)
            case StreamOpen(generation):
                effects += self._open(generation, now)
            case StreamClosed(generation):
                if generation == self.generation:
                    self._close()
            case ApplyResponse(correlation, error, rejected):
                self._answer(correlation, error, rejected, now)
            case FileFetched():
                if self.in_flight is not None:
                    until = min(now + self._apply_deadline, self.in_flight.latest)
                    self.in_flight.deadline = max(self.in_flight.deadline, until)
            case Elapsed():
                effects += self._expire(now)
        self._follow_health(before)
        self._update_confirmed()
        return effects + self._next_request(now)

    def _follow_health(self, before: str) -> None:
        """Clear confirmed versions while NGINX serves nothing; retry at once when it recovers."""
        self._nginx_seen = self._nginx_seen or bool(self.about.nginx_id)
        if self.problem:
            self.confirmed = ""
            self._confirmed_parts.clear()
        elif before:
            self._reset()

    @property
    def _parts(self) -> dict[str, str]:
        """Parts of the desired version and their versions."""
        separate = self._separate_endpoints() if self.about.takes_actions else None
        if separate is None:
            return {"": self.desired}
        return {"": separate.files, **dict(separate.upstreams)}

    def _missing(self) -> list[str]:
        """Return the parts that may be requested: upstreams only if their files are confirmed."""
        parts = self._parts
        if self._confirmed_parts.get("") != parts[""]:
            return [""]
        return [part for part, value in parts.items() if self._confirmed_parts.get(part) != value]

    def _update_confirmed(self) -> None:
        """Set the confirmed version if and only if all parts are confirmed."""
        if not self.desired:
            return
        missing = bool(self._missing())
        if missing and self.confirmed == self.desired:
            self.confirmed = ""
        elif not missing and self.confirmed != self.desired and self.in_flight is None:
            self.confirmed = self._sent = self.desired
            self._reset()

    def _reset(self) -> None:
        """Reset the retry back-off, so that the next attempt is immediate."""
        self._backoff.succeeded()
        self._retry_at, self.error = 0.0, ""
        self._deferred.clear()

    def _publish(self, event: Publish) -> None:
        if event.version == self.desired:
            return
        self.desired, self._separate_endpoints = event.version, event.separate_endpoints
        # A new version is attempted at once, whatever the result of the last one.
        self._reset()
        # Only now may the version that the instance reported be known: it is older than this
        # process.
        self._trust_reported_version(self._reported_version)
        if self.confirmed == event.version:
            self._sent = event.version

    def _reconnect(self, about: Register) -> None:
        self.about, self._reconnected, self._reported_version, self._health = about, True, "", ""
        if about.takes_actions:
            # It reports its files but not its upstream servers, so these are set again.
            self._confirmed_parts = {
                part: value for part, value in self._confirmed_parts.items() if not part
            }
            self.confirmed = ""

    def _register(self, new: Register, now: float) -> None:
        # NGINX Agent may register before it has found its NGINX, and again after that.
        known = self.about
        if new.nginx_id and not known.nginx_id:
            self._files_until = now + FILE_REPORT_TIMEOUT_SECONDS
        self.about = Register(
            new.nginx_id or known.nginx_id,
            new.proxy or known.proxy,
            new.modules if new.proxy else known.modules,
            new.features or known.features,
            new.main_file or known.main_file,
            new.problem,
            new.loadable_modules if new.proxy else known.loadable_modules,
            new.reports_files or known.reports_files,
        )

    def _has_files(self, paths: tuple[str, ...]) -> None:
        # A restarted container has the files of its image again, so no path is forgotten.
        known = cut_paths(sorted(self.unmanaged.union(paths)))
        self.unmanaged, self._files_known = frozenset(known), True

    def _restarted(self, about: Register) -> None:
        self.about, self._reported_version, self._health = about, "", ""
        # Versions and pending responses of the previous process are not valid for this one.
        self._reset()
        self.confirmed = ""
        self._confirmed_parts.clear()
        self._overdue = None
        self._sent = self.in_flight.version if self.in_flight else ""

    def _has_version(self, version: str) -> None:
        if self.in_flight is None:
            self._reported_version = version
            self._trust_reported_version(version)

    def _trust_reported_version(self, version: str) -> None:
        """Confirm the files that the instance reports to serve, if they are the desired ones."""
        if not version or version != self._parts[""]:
            return
        self._confirmed_parts[""], self._reconnected = version, False
        if version == self.desired:
            self.confirmed = self._sent = version
            self.error = ""

    def _open(self, generation: int, now: float) -> list[Effect]:
        if generation <= self.generation:
            return [End(generation)]
        effects: list[Effect] = [End(self.generation)] if self.generation else []
        self._close()
        self.generation, self._unanswered = generation, 0
        self._files_until = now + FILE_REPORT_TIMEOUT_SECONDS
        if self._reconnected:
            # It did not report a version, so the desired one is sent. If the instance has it
            # already, it confirms without a reload.
            self.confirmed, self._sent, self._reconnected = "", "", False
            self._confirmed_parts.clear()
        # A failed connection is not a rejection: its request is retried at once.
        self._backoff.succeeded()
        self._retry_at = 0.0
        self._deferred.clear()
        return effects

    def _close(self) -> None:
        if self.in_flight is not None:
            self._count_attempt(self.in_flight)
        # The response may still arrive on the next stream.
        self._overdue = self.in_flight or self._overdue
        self.in_flight, self.generation = None, 0

    def _answer(self, correlation: str, error: str, rejected: bool, now: float) -> None:
        request = self.in_flight
        if request is not None and request.correlation == correlation:
            self.in_flight, self._unanswered = None, 0
            if error:
                if rejected and not request.part:
                    self.rejected_version = request.version
                    self.rejection = error
                self._reject(request, error, now)
            else:
                self._confirm(request)
            return
        late = self._overdue
        if late is None or late.correlation != correlation:
            return
        self._overdue, self._unanswered = None, 0
        same = request is None or (request.part, request.value) == (late.part, late.value)
        if same and not error:
            self.in_flight = None
            self._confirm(late)

    def _confirm(self, request: _Request) -> None:
        if request.part:
            self._confirmed_parts[request.part] = request.value
            self._deferred.discard(request.part)
            return
        self.rejected_version = self.rejection = ""
        # The new files reset all upstream servers.
        self._confirmed_parts = {"": request.value}
        self._reset()
        if request.value == request.version:
            self.confirmed = request.version

    def _count_attempt(self, request: _Request) -> None:
        # Files on its disk do not prove that its NGINX has read them.
        self.attempt += 0 if request.part else 1

    def _reject(self, request: _Request, error: str, now: float) -> None:
        self._count_attempt(request)
        if request.version != self.desired:
            return
        where = f"upstream {request.part}: " if request.part else ""
        self.error = f"{where}{error}"
        if not self._deferred:
            self._retry_at = now + self._backoff.failed()
        self._deferred.add(request.part)

    def _expire(self, now: float) -> list[Effect]:
        request = self.in_flight
        if request is None or now < request.deadline:
            return []
        self.in_flight, self._overdue = None, request
        self._reject(request, f"no response within {self._apply_deadline:g} s", now)
        self._unanswered += 1
        return [End(self.generation)] if self._unanswered == MAX_UNANSWERED_REQUESTS else []

    def _next_request(self, now: float) -> list[Effect]:
        if self.in_flight is not None or not self._can_send or now < self._wait_for_files:
            return []
        missing = self._missing()
        # A rejected upstream does not delay the other upstreams.
        ready = [part for part in missing if part not in self._deferred]
        if not ready:
            if now < self._retry_at:
                return []
            self._deferred.clear()
            ready = missing
        part, seconds = ready[0], self._apply_deadline
        times = (now + seconds, now + MAX_MISSED_DEADLINES * seconds)
        request = _Request(self.desired, self._new_id(), *times, part, self._parts[part])
        self.in_flight, self._sent, self._reported_version = request, request.version, ""
        if request.value != request.version:
            # From now on it may have either version, even if it does not respond.
            self._confirmed_parts.pop(part, None)
        return [Send(self.generation, request.version, request.correlation, part)]
