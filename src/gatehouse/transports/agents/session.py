"""What one instance is told, and when: latest version wins, one request in flight. Pure.

Time comes in with each event; what is to be done comes out as effects, and the next moment at which
time alone changes something is :attr:`Session.wake_at`. Connections are numbered: a stream that
ends late never takes away the newer one that replaced it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatehouse.transports.agents.events import (
    Answer,
    Apart,
    Effect,
    Elapsed,
    End,
    Event,
    Fetching,
    HasFiles,
    HasVersion,
    Health,
    Publish,
    Reconnect,
    Register,
    Restarted,
    Send,
    StreamClosed,
    StreamOpen,
)

__all__ = [
    "Answer",
    "Apart",
    "Effect",
    "Elapsed",
    "End",
    "Event",
    "Fetching",
    "HasFiles",
    "HasVersion",
    "Health",
    "Publish",
    "Reconnect",
    "Register",
    "Restarted",
    "Send",
    "StreamClosed",
    "StreamOpen",
    "Session",
]

RETRY_FIRST = 1.0
RETRY_MAX = 60.0
"""Seconds between attempts at one version: doubled from the first to the maximum."""

MAX_MISSED_DEADLINES = 5
"""How many deadlines long an instance that keeps fetching may be about its answer: when thousands
fetch at once, each takes longer."""

ERROR_MAX = 8192
"""Characters of a refusal that are kept: an agent may say as much as fits into a message."""


FILES_PATIENCE = 5.0
"""Seconds that an agent which reports its files is given to do so before its first request. The
field's agent v3 reports them a second after it connects, and not again on later connections."""

UNMANAGED_MAX = 4096
"""Files of one instance that are remembered as not being Gatehouse's."""

MAX_UNANSWERED_REQUESTS = 5
"""So many in a row without an answer end a stream: what is written and not read is kept for it."""


class _Request(msgspec.Struct):
    version: str
    correlation: str
    deadline: float
    latest: float
    """Beyond which no fetching moves the deadline."""
    part: str
    """The upstream whose servers are asked for; empty: the files, or all at once."""
    value: str
    """What the instance has of this part if it agrees."""


class Session:
    """The state of one instance; see the module's docstring."""

    def __init__(self, new_id: Callable[[], str], apply_deadline: float) -> None:
        self.desired = self.confirmed = self.error = ""
        self.about = Register("", "")
        """What it said last of its NGINX."""
        self.generation = 0
        """Number of the open stream; 0: none."""
        self.unmanaged: frozenset[str] = frozenset()
        """Paths that it reported of files that its NGINX reads and that are not Gatehouse's."""
        self.attempt = 0
        """How many requests for files it has not answered with a success."""
        self.in_flight: _Request | None = None
        self._apart: Callable[[], Apart | None] = lambda: None
        self._has: dict[str, str] = {}
        """What the instance agreed to have, by part."""
        self._put_off: set[str] = set()
        """Parts that were refused, which wait for the next attempt."""
        self._told = ""
        self._claimed = ""
        """What it said it was serving when it connected, until it is asked for anything."""
        self._fresh = False
        self._had_nginx = self._files_known = False
        self._files_until = 0.0
        self._health = ""
        self._overdue: _Request | None = None
        self._failures = self._silent = 0
        self._retry_at = 0.0
        self._new_id, self._apply_deadline = new_id, apply_deadline

    @property
    def sent_version(self) -> str:
        """The version last asked for, or found to be there already."""
        return self._told

    def pending_version(self, correlation: str) -> str:
        """Give the version that was asked for under ``correlation``; empty: none was."""
        for request in (self.in_flight, self._overdue):
            if request is not None and request.correlation == correlation:
                return request.version
        return ""

    @property
    def trouble(self) -> str:
        """Why its NGINX serves nothing; empty: it does, or none was found yet."""
        return (self.about.problem or self._health) if self._had_nginx else ""

    @property
    def wake_at(self) -> float | None:
        """When :class:`Elapsed` is to be received next; None: never."""
        waiting = max(self._retry_at, self._wait_for_files) if self._wanting else None
        return self.in_flight.deadline if self.in_flight else waiting

    @property
    def _wait_for_files(self) -> float:
        waits = self.about.reports_files and not self._files_known
        return self._files_until if waits else 0.0

    @property
    def _wanting(self) -> bool:
        # The field's agent v3 signals process 0 when its NGINX has no master, and so ends itself.
        listening = bool(self.generation and self.about.nginx_id and not self.trouble)
        return listening and bool(self.desired) and self.confirmed != self.desired

    def receive(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; give what is to be done about it, in order."""
        effects: list[Effect] = []
        before = self.trouble
        match event:
            case Publish():
                self._publish(event)
            case Register():
                self._register(event, now)
            case Health(problem):
                self._health = problem
            case HasFiles(paths):
                self._has_files(paths)
            case Reconnect(about):
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
            case Answer(correlation, error):
                self._answer(correlation, error, now)
            case Fetching():
                if self.in_flight is not None:
                    until = min(now + self._apply_deadline, self.in_flight.latest)
                    self.in_flight.deadline = max(self.in_flight.deadline, until)
            case Elapsed():
                effects += self._expire(now)
        self._follow_health(before)
        self._conclude()
        return effects + self._ask(now)

    def _follow_health(self, before: str) -> None:
        """Count nothing as confirmed while NGINX serves nothing; ask at once when it does again."""
        self._had_nginx = self._had_nginx or bool(self.about.nginx_id)
        if self.trouble:
            self.confirmed = ""
            self._has.clear()
        elif before:
            self._reset()

    @property
    def _parts(self) -> dict[str, str]:
        """What makes up the desired version."""
        apart = self._apart() if self.about.takes_actions else None
        return {"": apart.files, **dict(apart.upstreams)} if apart else {"": self.desired}

    def _missing(self) -> list[str]:
        """Give the parts that may be asked for: upstreams only when their files are there."""
        parts = self._parts
        if self._has.get("") != parts[""]:
            return [""]
        return [part for part, value in parts.items() if self._has.get(part) != value]

    def _conclude(self) -> None:
        """Agree that the version is there when all parts are, and only then."""
        if not self.desired:
            return
        missing = bool(self._missing())
        if missing and self.confirmed == self.desired:
            self.confirmed = ""
        elif not missing and self.confirmed != self.desired and self.in_flight is None:
            self.confirmed = self._told = self.desired
            self._reset()

    def _reset(self) -> None:
        """Let the next attempt be at once, and as if it were the first."""
        self._failures, self._retry_at, self.error = 0, 0.0, ""
        self._put_off.clear()

    def _publish(self, wanted: Publish) -> None:
        if wanted.version == self.desired:
            return
        self.desired, self._apart = wanted.version, wanted.apart
        # Another version is worth an attempt at once, however the last one went.
        self._reset()
        # What the instance has may be known only now: it is older than this control plane.
        self._trust_reported_version(self._claimed)
        if self.confirmed == wanted.version:
            self._told = wanted.version

    def _reconnect(self, about: Register) -> None:
        self.about, self._fresh, self._claimed, self._health = about, True, "", ""
        if about.takes_actions:
            # It says which files it has, but not which servers: they are set again.
            self._has = {part: value for part, value in self._has.items() if not part}
            self.confirmed = ""

    def _register(self, said: Register, now: float) -> None:
        # The field's agent may register before it has found its NGINX, and again after.
        known = self.about
        if said.nginx_id and not known.nginx_id:
            self._files_until = now + FILES_PATIENCE
        self.about = Register(
            said.nginx_id or known.nginx_id,
            said.proxy or known.proxy,
            said.modules if said.proxy else known.modules,
            said.features or known.features,
            said.main_file or known.main_file,
            said.problem,
            said.reports_files or known.reports_files,
        )

    def _has_files(self, paths: tuple[str, ...]) -> None:
        # A container that starts again has the files of its image again: none is forgotten.
        known = sorted(self.unmanaged.union(paths))
        self.unmanaged, self._files_known = frozenset(known[:UNMANAGED_MAX]), True

    def _restarted(self, about: Register) -> None:
        self.about, self._claimed, self._health = about, "", ""
        # What its predecessor had, or may still have been about to answer, says nothing of it.
        self._reset()
        self.confirmed = ""
        self._has.clear()
        self._overdue = None
        self._told = self.in_flight.version if self.in_flight else ""

    def _has_version(self, version: str) -> None:
        if self.in_flight is None:
            self._claimed = version
            self._trust_reported_version(version)

    def _trust_reported_version(self, version: str) -> None:
        """Take the instance's word for the files that it serves, if they are the desired ones."""
        if not version or version != self._parts[""]:
            return
        self._has[""], self._fresh = version, False
        if version == self.desired:
            self.confirmed = self._told = version
            self.error = ""

    def _open(self, generation: int, now: float) -> list[Effect]:
        if generation <= self.generation:
            return [End(generation)]
        effects: list[Effect] = [End(self.generation)] if self.generation else []
        self._close()
        self.generation, self._silent = generation, 0
        self._files_until = now + FILES_PATIENCE
        if self._fresh:
            # It did not say what it serves, so it is told what to serve; if it has that
            # already, it answers so without a reload.
            self.confirmed, self._told, self._fresh = "", "", False
            self._has.clear()
        # A fault of the connection is no refusal: what was tried on it is tried again at once.
        self._failures, self._retry_at = 0, 0.0
        self._put_off.clear()
        return effects

    def _close(self) -> None:
        if self.in_flight is not None:
            self._not_done(self.in_flight)
        # The answer may still come, on the next stream.
        self._overdue = self.in_flight or self._overdue
        self.in_flight, self.generation = None, 0

    def _answer(self, correlation: str, error: str, now: float) -> None:
        request = self.in_flight
        if request is not None and request.correlation == correlation:
            self.in_flight, self._silent = None, 0
            if error:
                self._refused(request, error, now)
            else:
                self._applied(request)
            return
        late = self._overdue
        if late is None or late.correlation != correlation:
            return
        self._overdue, self._silent = None, 0
        same = request is None or (request.part, request.value) == (late.part, late.value)
        if same and not error:
            self.in_flight = None
            self._applied(late)

    def _applied(self, request: _Request) -> None:
        if request.part:
            self._has[request.part] = request.value
            self._put_off.discard(request.part)
            return
        # Whatever the servers were, the new files are the beginning.
        self._has = {"": request.value}
        self._reset()
        if request.value == request.version:
            self.confirmed = request.version

    def _not_done(self, request: _Request) -> None:
        # What is on its disk now says nothing of what its NGINX has read.
        self.attempt += 0 if request.part else 1

    def _refused(self, request: _Request, error: str, now: float) -> None:
        self._not_done(request)
        if request.version != self.desired:
            return
        where = f"upstream {request.part}: " if request.part else ""
        self.error = f"{where}{error}"[:ERROR_MAX]
        if not self._put_off:
            self._retry_at = now + min(RETRY_FIRST * 2**self._failures, RETRY_MAX)
            self._failures = min(self._failures + 1, 16)
        self._put_off.add(request.part)

    def _expire(self, now: float) -> list[Effect]:
        request = self.in_flight
        if request is None or now < request.deadline:
            return []
        self.in_flight, self._overdue = None, request
        self._refused(request, f"no answer within {self._apply_deadline:g} s", now)
        self._silent += 1
        return [End(self.generation)] if self._silent == MAX_UNANSWERED_REQUESTS else []

    def _ask(self, now: float) -> list[Effect]:
        if self.in_flight is not None or not self._wanting or now < self._wait_for_files:
            return []
        missing = self._missing()
        # What is refused of one upstream keeps no other from its servers.
        ready = [part for part in missing if part not in self._put_off]
        if not ready:
            if now < self._retry_at:
                return []
            self._put_off.clear()
            ready = missing
        part, seconds = ready[0], self._apply_deadline
        deadline, latest = now + seconds, now + MAX_MISSED_DEADLINES * seconds
        value = self._parts[part]
        request = _Request(self.desired, self._new_id(), deadline, latest, part, value)
        self.in_flight, self._told, self._claimed = request, request.version, ""
        if request.value != request.version:
            # From now on it may have either, also if no answer comes.
            self._has.pop(part, None)
        return [Send(self.generation, request.version, request.correlation, part)]
