"""Control loop of one host: observes, compares, changes, waits."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from gatehouse.compiler.ir.load_balancing import Host
from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.nginx_plus import DesiredUpstreams, Upstream
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.transports.nginx_plus.client import Peer, PlusClient, PlusHostError
from gatehouse.transports.nginx_plus.diff import (
    ObservedServers,
    RequestPlan,
    plan_requests,
    share_servers,
)
from gatehouse.transports.nginx_plus.executor import execute
from gatehouse.transports.nginx_plus.host_state import HostState, UpstreamState

log = structlog.get_logger("gatehouse.nginx_plus")

MAX_CONCURRENT_REQUESTS = 4
"""Maximum number of upstreams of one host that are worked on at the same time."""

_JITTER = (0.25, 0.75)
"""Range of the random delay in seconds, so that hosts with the same change do not act at once."""


class Clock(Protocol):
    """Time and waiting; replaced in tests."""

    def now(self) -> float:
        """Return the seconds since an arbitrary time."""

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when the event is set, or at that time."""


class RealClock:
    """The system's monotonic clock."""

    def now(self) -> float:
        """Return the seconds of the monotonic clock."""
        return time.monotonic()

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when the event is set, or at that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - self.now())):
                await event.wait()


class Worker:
    """Synchronizes the upstreams of one NGINX Plus host with the desired ones.

    ``on_report`` is called with every changed report.
    """

    def __init__(
        self,
        host: Host,
        on_report: Callable[[HostReport], None],
        clock: Clock,
        jitter: Callable[[], float] = lambda: random.uniform(*_JITTER),  # noqa: S311
    ) -> None:
        self._host = host
        self._on_report = on_report
        self._clock = clock
        self._woken = asyncio.Event()
        self._client: PlusClient | None = None
        self._identity_lock = asyncio.Lock()
        self._batch_start = 0.0
        """Start of the current batch."""
        self.knowledge = HostState(host.url, jitter)
        self.calls: Counter[tuple[str, str]] = Counter()
        """Requests so far, by method and outcome."""
        self._last: HostReport | None = None

    def set_desired(self, desired: DesiredUpstreams) -> None:
        """Set the desired state of the host. The latest wins."""
        self.knowledge.set_desired(desired, self._clock.now())
        self._woken.set()

    async def run(self) -> None:
        """Synchronize the host until cancelled. Host failures do not end the loop."""
        try:
            while True:
                await self._clock.wait(self._woken, self.knowledge.next_at())
                if self._woken.is_set():
                    self._woken.clear()
                    continue
                try:
                    await self._sync_host()
                except PlusHostError as error:
                    self._on_lost(str(error))
                except ssl.SSLError as error:
                    self._on_lost(f"TLS configuration: {error.reason or error}")
                except Exception as error:
                    # An unexpected error must not end the loop of this host.
                    log.exception("host synchronization failed", host=self._host.url)
                    self._on_lost(f"{type(error).__name__}: {error}")
                self._report()
        finally:
            if self._client is not None:
                await self._client.close()

    def _on_lost(self, error: str) -> None:
        known = self._last is not None and self._last.error == error
        write = log.debug if known else log.warning
        write("host lost", host=self._host.url, error=error)
        self.knowledge.on_lost(error, self._clock.now())

    def _report(self) -> None:
        report = self.knowledge.report(self._clock.now())
        if report != self._last:
            self._last = report
            self._on_report(report)

    async def _sync_host(self) -> None:
        """Do the work that is due. Raises PlusHostError for a host failure."""
        self._batch_start = self._clock.now()
        client = self._client
        if client is None:
            client = self._client = PlusClient(self._host, self.knowledge.desired.timeout)
            client.calls = self.calls
        if self.knowledge.probing(self._clock.now()) and not await self._is_unchanged(client):
            api = await client.negotiate() if not self.knowledge.connected else client.api
            self.knowledge.on_connected(api, await client.about(), self._clock.now())
        due = self.knowledge.due(self._clock.now())
        if not due:
            return
        due.reverse()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(MAX_CONCURRENT_REQUESTS, len(due))):
                    group.create_task(self._sync_upstreams(client, due))
        except BaseExceptionGroup as failed:
            # Requests in other tasks may have been executed or not, so everything is read again.
            raise _first(failed) from failed

    async def _is_unchanged(self, client: PlusClient) -> bool:
        """Return whether the overview of each context shows the observed state.

        It replaces one request for each upstream, and that for the host's description: the IDs of
        the servers are the same.
        """
        contexts = self.knowledge.overview_contexts(self._clock.now())
        peers: dict[UpstreamName, Sequence[Peer]] = {}
        try:
            for context in contexts:
                for name, servers in (await client.peers(context)).items():
                    peers[UpstreamName(context, name)] = servers
        except PlusHostError as error:
            if not error.status or error.status >= 500:
                raise
            self.knowledge.on_overview_rejected()
            return False
        return bool(contexts) and self.knowledge.on_overview(peers, self._clock.now())

    async def _sync_upstreams(self, client: PlusClient, due: list[UpstreamName]) -> None:
        while due:
            name = due.pop()
            state, desired = (
                self.knowledge.upstream(name),
                self.knowledge.desired.upstreams.get(name),
            )
            if state is None or desired is None:
                continue
            try:
                await self._sync(client, state, desired)
            except PlusHostError as error:
                if error.of_api or (error.of_host and not self.knowledge.fails_repeatedly(name)):
                    raise
                keys = {"host": self._host.url, "upstream": str(name)}
                write = log.debug if state.error == str(error) else log.warning
                write("upstream not synchronized", **keys, error=str(error))
                self.knowledge.on_failed(name, str(error), self._clock.now())

    async def _sync(self, client: PlusClient, state: UpstreamState, desired: Upstream) -> None:
        """Bring an upstream into its desired state. Raises PlusHostError."""
        known = state.known
        cached = known is not None
        if known is None:
            known = await self._read(client, desired)
            state.read_at = self._clock.now()
        steps = self._plan(desired, known, state.leaving)
        if cached and steps.uses_ids and not await self._is_same_instance(client):
            # The next batch is due at once and begins by identifying the host.
            return
        if not steps.empty:
            if state.done is desired and state.later is None:
                self.knowledge.drifts += 1
                log.info(
                    "upstream changed externally", host=self._host.url, upstream=str(desired.name)
                )
            # Unknown while requests are in flight: after a failure or interruption it must be read
            # again.
            state.known = None
            known = await execute(client, desired, known, steps)
            steps = self._plan(desired, known, steps.leaving)
            if not steps.empty:
                raise PlusHostError(0, "Refused", "the host did not apply all servers and values")
        state.known = share_servers(desired, known)
        state.done, state.leaving, state.later = desired, steps.leaving, steps.later
        state.failures, state.error, state.blame = 0, "", 0

    async def _is_same_instance(self, client: PlusClient) -> bool:
        """Return whether cached IDs are still valid. Reads the host's description if needed."""
        async with self._identity_lock:
            if self.knowledge.is_current(self._batch_start, self._clock.now()):
                return True
            if self.knowledge.probing(self._clock.now()):
                return False
            return self.knowledge.is_same_instance(await client.about(), self._clock.now())

    async def _read(self, client: PlusClient, desired: Upstream) -> ObservedServers:
        try:
            servers = await client.servers(desired.name)
        except PlusHostError as error:
            # An upstream that should be empty and is not in the API contains no owned servers.
            if desired.servers or error.code not in ("UpstreamNotFound", "UpstreamStatic"):
                raise
            servers = []
        return ObservedServers(tuple(servers), tuple(server.id for server in servers))

    def _plan(
        self, desired: Upstream, known: ObservedServers, leaving: Mapping[int, float]
    ) -> RequestPlan:
        drain, now = self.knowledge.desired.drain, self._clock.now()
        return plan_requests(desired, known, drain=drain, leaving=leaving, now=now)


def _first(group: BaseExceptionGroup) -> PlusHostError:
    """Return the host failure of a group. Raises an unexpected error if there is one."""
    failures, unexpected = group.split(PlusHostError)
    if unexpected is not None:
        raise unexpected.exceptions[0]
    assert failures is not None
    first = failures.exceptions[0]
    assert isinstance(first, PlusHostError)
    return first
