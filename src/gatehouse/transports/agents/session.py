"""What one instance is told, and when: latest version wins, one request in flight. Pure.

Time comes in with each event; what is to be done comes out as effects, and the next moment at which
time alone changes something is :attr:`Session.wake_at`. Connections are numbered: a stream that
ends late never takes away the newer one that replaced it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

RETRY_FIRST = 1.0
RETRY_MAX = 60.0
"""Seconds between attempts at one version: doubled from the first to the maximum."""

PATIENCE = 5
"""How many deadlines long an instance that keeps fetching may be about its answer: when thousands
fetch at once, each takes longer."""

ERROR_MAX = 8192
"""Characters of a refusal that are kept: an agent may say as much as fits into a message."""


class Publish(msgspec.Struct, frozen=True, tag=True):
    """The instance is to have ``version``; empty: nothing more is to be told."""

    version: str


class Register(msgspec.Struct, frozen=True, tag=True):
    """The instance said which NGINX it has; ``nginx_id`` is empty while it has found none."""

    nginx_id: str
    proxy: str
    modules: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    main_file: str = ""
    """Path of the file that NGINX begins with."""


class Reconnect(msgspec.Struct, frozen=True, tag=True):
    """The instance made a new connection, so it may be another process than before."""

    about: Register


class Restarted(msgspec.Struct, frozen=True, tag=True):
    """The instance said, on its open stream, that it is a new process."""

    about: Register


class HasVersion(msgspec.Struct, frozen=True, tag=True):
    """The instance said, unasked, which version it is serving."""

    version: str


class StreamOpen(msgspec.Struct, frozen=True, tag=True):
    """The instance listens on stream ``generation``; a greater number is a newer stream."""

    generation: int


class StreamClosed(msgspec.Struct, frozen=True, tag=True):
    """Stream ``generation`` ended."""

    generation: int


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The final answer to the request ``correlation``: empty ``error`` is success."""

    correlation: str
    error: str = ""


class Fetching(msgspec.Struct, frozen=True, tag=True):
    """The instance fetched something, so it is at work on what it was asked."""


class Elapsed(msgspec.Struct, frozen=True, tag=True):
    """Time passed."""


Event = (
    Publish
    | Register
    | Reconnect
    | Restarted
    | HasVersion
    | StreamOpen
    | StreamClosed
    | Answer
    | Fetching
    | Elapsed
)


class Send(msgspec.Struct, frozen=True):
    """Effect: ask on stream ``generation`` that ``version`` be applied."""

    generation: int
    version: str
    correlation: str


class End(msgspec.Struct, frozen=True):
    """Effect: end stream ``generation``, which a newer one replaced."""

    generation: int


Effect = Send | End


class _Request(msgspec.Struct):
    version: str
    correlation: str
    deadline: float
    latest: float
    """Beyond which no fetching moves the deadline."""


class Session:
    """The state of one instance; see the module's docstring."""

    def __init__(self, new_id: Callable[[], str], apply_deadline: float) -> None:
        self.desired = ""
        self.confirmed = ""
        self.error = ""
        self.about = Register("", "")
        """What it said last of its NGINX."""
        self.generation = 0
        """Number of the open stream; 0: none."""
        self.in_flight: _Request | None = None
        self._told = ""
        self._claimed = ""
        """What it said it was serving when it connected, until it is asked for anything."""
        self._fresh = False
        self._overdue: _Request | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._new_id = new_id
        self._apply_deadline = apply_deadline

    @property
    def told(self) -> str:
        """The version last asked for, or found to be there already."""
        return self._told

    def asked(self, correlation: str) -> str:
        """Give the version that was asked for under ``correlation``; empty: none was."""
        for request in (self.in_flight, self._overdue):
            if request is not None and request.correlation == correlation:
                return request.version
        return ""

    @property
    def wake_at(self) -> float | None:
        """When :class:`Elapsed` is to be received next; None: never."""
        if self.in_flight is not None:
            return self.in_flight.deadline
        return self._retry_at if self._wanting else None

    @property
    def _wanting(self) -> bool:
        listening = bool(self.generation and self.about.nginx_id)
        return listening and bool(self.desired) and self.confirmed != self.desired

    def receive(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; give what is to be done about it, in order."""
        effects: list[Effect] = []
        match event:
            case Publish(version):
                self._publish(version)
            case Register():
                self._register(event)
            case Reconnect(about):
                self.about, self._fresh, self._claimed = about, True, ""
            case Restarted(about):
                self._restarted(about)
            case HasVersion(version):
                self._has_version(version)
            case StreamOpen(generation):
                effects += self._open(generation)
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
                self._expire(now)
        return effects + self._ask(now)

    def _publish(self, version: str) -> None:
        if version == self.desired:
            return
        self.desired = version
        # Another version is worth an attempt at once, however the last one went.
        self._failures, self._retry_at, self.error = 0, 0.0, ""
        if version and version == self._claimed:
            # Known only now, because this control plane is younger than what the instance has.
            self.confirmed, self._fresh = version, False
        if self.confirmed == version:
            self._told = version

    def _register(self, said: Register) -> None:
        # The field's agent may register before it has found its NGINX, and again after.
        known = self.about
        self.about = Register(
            said.nginx_id or known.nginx_id,
            said.proxy or known.proxy,
            said.modules if said.proxy else known.modules,
            said.features or known.features,
            said.main_file or known.main_file,
        )

    def _restarted(self, about: Register) -> None:
        self.about, self._claimed = about, ""
        # What its predecessor had, or may still have been about to answer, says nothing of it.
        self.confirmed = self.error = ""
        self._overdue = None
        self._told = self.in_flight.version if self.in_flight else ""
        self._failures, self._retry_at = 0, 0.0

    def _has_version(self, version: str) -> None:
        if self.in_flight is not None:
            return
        self._claimed = version
        if version and version == self.desired:
            self.confirmed = self._told = version
            self.error, self._fresh = "", False

    def _open(self, generation: int) -> list[Effect]:
        if generation <= self.generation:
            return [End(generation)]
        effects: list[Effect] = [End(self.generation)] if self.generation else []
        self._close()
        self.generation = generation
        if self._fresh:
            # It did not say what it serves, so it is told what to serve; if it has that
            # already, it answers so without a reload.
            self.confirmed, self._told, self._fresh = "", "", False
        # A fault of the connection is no refusal: what was tried on it is tried again at once.
        self._failures, self._retry_at = 0, 0.0
        return effects

    def _close(self) -> None:
        # The answer may still come, on the next stream.
        self._overdue = self.in_flight or self._overdue
        self.in_flight, self.generation = None, 0

    def _answer(self, correlation: str, error: str, now: float) -> None:
        request = self.in_flight
        if request is not None and request.correlation == correlation:
            self.in_flight = None
            if error:
                self._refused(request.version, error, now)
            else:
                self._applied(request.version)
            return
        late = self._overdue
        if late is None or late.correlation != correlation:
            return
        self._overdue = None
        if not error and (request is None or request.version == late.version):
            self.in_flight = None
            self._applied(late.version)

    def _applied(self, version: str) -> None:
        self.confirmed = version
        self._failures, self._retry_at, self.error = 0, 0.0, ""

    def _refused(self, version: str, error: str, now: float) -> None:
        if version != self.desired:
            return
        self.error = error[:ERROR_MAX]
        self._retry_at = now + min(RETRY_FIRST * 2**self._failures, RETRY_MAX)
        self._failures = min(self._failures + 1, 16)

    def _expire(self, now: float) -> None:
        request = self.in_flight
        if request is None or now < request.deadline:
            return
        self.in_flight, self._overdue = None, request
        self._refused(request.version, f"no answer within {self._apply_deadline:g} s", now)

    def _ask(self, now: float) -> list[Effect]:
        if self.in_flight is not None or not self._wanting or now < self._retry_at:
            return []
        seconds = self._apply_deadline
        request = _Request(self.desired, self._new_id(), now + seconds, now + PATIENCE * seconds)
        self.in_flight, self._told, self._claimed = request, request.version, ""
        return [Send(self.generation, request.version, request.correlation)]
