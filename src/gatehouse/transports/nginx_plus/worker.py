"""One host, for as long as it is wanted: looks, compares, changes, waits."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from gatehouse.compiler.ir.load_balancing import Host
from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.nginx_plus import DesiredUpstreams, Upstream
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.transports.nginx_plus.client import Client, PlusError
from gatehouse.transports.nginx_plus.diff import Known, Plan, plan, settle
from gatehouse.transports.nginx_plus.executor import carry_out
from gatehouse.transports.nginx_plus.host_state import HostState, UpstreamState

log = structlog.get_logger("gatehouse.nginx_plus")

MAX_CONCURRENT_REQUESTS = 4
"""Upstreams of one host that are worked on at once."""

JITTER = (0.25, 0.75)
"""Seconds, from and to: hosts that learn the same at one moment do not all act at one."""


class Clock(Protocol):
    """Time, and waiting for it; tests bring their own."""

    def now(self) -> float:
        """Give seconds since whenever."""

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when the event is set, or at that time."""


class RealClock:
    """The machine's."""

    def now(self) -> float:
        """Give seconds since the machine started."""
        return time.monotonic()

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when the event is set, or at that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - self.now())):
                await event.wait()


class Worker:
    """Keeps one host in step; ``on_report`` is called whenever there is something new to say."""

    def __init__(
        self,
        host: Host,
        on_report: Callable[[HostReport], None],
        clock: Clock,
        jitter: Callable[[], float] = lambda: random.uniform(*JITTER),  # noqa: S311
    ) -> None:
        self._host = host
        self._on_report = on_report
        self._clock = clock
        self._woken = asyncio.Event()
        self._client: Client | None = None
        self._asking = asyncio.Lock()
        self._began = 0.0
        """When the present turn began."""
        self.knowledge = HostState(host.url, jitter)
        self.calls: Counter[tuple[str, str]] = Counter()
        """Requests so far, by method and outcome."""
        self._last: HostReport | None = None

    def want(self, wanted: DesiredUpstreams) -> None:
        """Make this what the host is to hold; latest wins."""
        self.knowledge.want(wanted, self._clock.now())
        self._woken.set()

    async def run(self) -> None:
        """Keep the host in step until cancelled; no failure of the host ends it."""
        try:
            while True:
                await self._clock.wait(self._woken, self.knowledge.next_at())
                if self._woken.is_set():
                    self._woken.clear()
                    continue
                try:
                    await self._turn()
                except PlusError as error:
                    self._on_lost(str(error))
                except ssl.SSLError as error:
                    self._on_lost(f"certificates to speak with: {error.reason or error}")
                except Exception as error:
                    # What nobody was prepared for must not end the care for this host.
                    log.exception("not done", host=self._host.url)
                    self._on_lost(f"{type(error).__name__}: {error}")
                self._report()
        finally:
            if self._client is not None:
                await self._client.close()

    def _on_lost(self, error: str) -> None:
        known = self._last is not None and self._last.error == error
        say = log.debug if known else log.warning
        say("host lost", host=self._host.url, error=error)
        self.knowledge.on_lost(error, self._clock.now())

    def _report(self) -> None:
        report = self.knowledge.report(self._clock.now())
        if report != self._last:
            self._last = report
            self._on_report(report)

    async def _turn(self) -> None:
        """Do what is due. Raises PlusError when the host cannot be spoken to."""
        self._began = self._clock.now()
        client = self._client
        if client is None:
            client = self._client = Client(self._host, self.knowledge.wanted.timeout)
            client.calls = self.calls
        if self.knowledge.probing(self._clock.now()):
            api = await client.negotiate() if not self.knowledge.connected else client.api
            self.knowledge.on_connected(api, await client.about(), self._clock.now())
        due = self.knowledge.due(self._clock.now())
        if not due:
            return
        due.reverse()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(MAX_CONCURRENT_REQUESTS, len(due))):
                    group.create_task(self._lane(client, due))
        except BaseExceptionGroup as failed:
            # What was under way in the other lanes may have been done or not: all is looked at.
            raise _first(failed) from failed

    async def _lane(self, client: Client, due: list[UpstreamName]) -> None:
        while due:
            name = due.pop()
            held, wanted = self.knowledge.held(name), self.knowledge.wanted.upstreams.get(name)
            if held is None or wanted is None:
                continue
            try:
                await self._sync(client, held, wanted)
            except PlusError as error:
                if error.of_api or (error.of_host and not self.knowledge.failed_twice(name)):
                    raise
                where = {"host": self._host.url, "upstream": str(name)}
                say = log.debug if held.error == str(error) else log.warning
                say("not in step", **where, error=str(error))
                self.knowledge.failed(name, str(error), self._clock.now())

    async def _sync(self, client: Client, held: UpstreamState, wanted: Upstream) -> None:
        """Make an upstream hold what it is to hold. Raises PlusError."""
        known = held.known
        remembered = known is not None
        if known is None:
            known = await self._read(client, wanted)
            held.read_at = self._clock.now()
        asked = self._plan(wanted, known, held.leaving)
        if remembered and asked.by_number and not await self._is_same_instance(client):
            # The next turn, which is due at once, begins by meeting it.
            return
        if not asked.empty:
            if held.done is wanted and held.later is None:
                self.knowledge.drifts += 1
                log.info("changed by somebody else", host=self._host.url, upstream=str(wanted.name))
            # Not known while it is under way: what fails or is cut off must be looked at again.
            held.known = None
            known = await carry_out(client, wanted, known, asked)
            asked = self._plan(wanted, known, asked.leaving)
            if not asked.empty:
                raise PlusError(0, "Refused", "it keeps other servers or values than it was told")
        held.known = settle(wanted, known)
        held.done, held.leaving, held.later = wanted, asked.leaving, asked.later
        held.failures, held.error, held.blame = 0, "", 0

    async def _is_same_instance(self, client: Client) -> bool:
        """Ask, unless that is sure, whether the numbers that are remembered still mean the same."""
        async with self._asking:
            if self.knowledge.is_current(self._began, self._clock.now()):
                return True
            if self.knowledge.probing(self._clock.now()):
                return False
            return self.knowledge.is_same_instance(await client.about(), self._clock.now())

    async def _read(self, client: Client, wanted: Upstream) -> Known:
        try:
            listed = await client.servers(wanted.name)
        except PlusError as error:
            # An upstream that is to be empty, and is none of the API's, holds nothing of ours.
            if wanted.servers or error.code not in ("UpstreamNotFound", "UpstreamStatic"):
                raise
            listed = []
        return Known(tuple(listed), tuple(each.id for each in listed))

    def _plan(self, wanted: Upstream, known: Known, leaving: Mapping[int, float]) -> Plan:
        drain, now = self.knowledge.wanted.drain, self._clock.now()
        return plan(wanted, known, drain=drain, leaving=leaving, now=now)


def _first(group: BaseExceptionGroup) -> PlusError:
    """Give the failure of the host; raises what nobody was prepared for."""
    found, unforeseen = group.split(PlusError)
    if unforeseen is not None:
        raise unforeseen.exceptions[0]
    assert found is not None
    first = found.exceptions[0]
    assert isinstance(first, PlusError)
    return first
