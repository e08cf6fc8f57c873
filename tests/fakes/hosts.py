"""A host with the fake of NGINX Plus, a worker for it, and a clock that tests control."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from fakes import patience
from fakes.nginx_plus import FakePlus, Plus, Upstream
from gatehouse.compiler.ir import load_balancing as ir
from gatehouse.compiler.ir.gateway import SecretBytes
from gatehouse.dataplane import upstream_name
from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.nginx_plus import DesiredUpstreams, PlusServer
from gatehouse.dataplane.nginx_plus import Upstream as Wanted
from gatehouse.transports.nginx_plus import PlusFleet
from gatehouse.transports.nginx_plus.worker import Worker

JITTER = 0.5


class Clock:
    """Clock that advances only when a test says so."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._moved = asyncio.Condition()
        self.waiting: list[float] = []
        """Deadlines of the waiting callers."""

    def now(self) -> float:
        return self._now

    async def wait(self, event: asyncio.Event, until: float) -> None:
        async def reached() -> None:
            async with self._moved:
                await self._moved.wait_for(lambda: self._now >= until)

        self.waiting.append(until)
        tasks = [asyncio.create_task(reached()), asyncio.create_task(event.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.waiting.remove(until)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def move(self, seconds: float) -> None:
        async with self._moved:
            self._now += seconds
            self._moved.notify_all()


def name(text: str) -> upstream_name.UpstreamName:
    context, _, rest = text.partition("/")
    return upstream_name.UpstreamName("http" if context == "http" else "stream", rest)


def desired_upstreams(
    upstreams: Mapping[str, Sequence[PlusServer | str]],
    *,
    drain: float = 0.0,
    resync: float = 300.0,
) -> DesiredUpstreams:
    upstreams_by_name = {
        name(text): Wanted(
            name(text), [PlusServer(s) if isinstance(s, str) else s for s in servers]
        )
        for text, servers in upstreams.items()
    }
    return DesiredUpstreams(upstreams_by_name, drain=drain, resync=resync, timeout=5.0)


def plus(*names: str, **options: Any) -> Plus:
    """Return an NGINX Plus with upstreams, each with a zone."""
    split = (label.split("/") for label in names)
    return Plus(*(Upstream(kind, zone, zone=zone, **options) for kind, zone in split))


class Host:
    """A worker and its fake host."""

    def __init__(self, fake: FakePlus, worker: Worker, clock: Clock) -> None:
        self.fake, self.worker, self.clock = fake, worker, clock
        self.reports: list[HostReport] = []

    def upstream(self, which: str) -> Upstream:
        kind, _, rest = which.partition("/")
        return self.fake.plus.upstreams[kind, rest]

    def held(self, which: str) -> list[str]:
        return sorted(server.server for server in self.upstream(which).servers.values())

    def calls(self) -> list[str]:
        """Return the requests since the last call, in order."""
        result = [f"{call.method} {call.path.rstrip('/')}" for call in self.fake.calls]
        self.fake.calls.clear()
        return result

    async def until(self, condition: Callable[[], Any]) -> None:
        await patience.until(condition)

    async def idle(self) -> None:
        """Wait until the worker has seen what is desired, and waits for its clock."""
        await self.until(
            lambda: (
                not self.worker._woken.is_set()
                and any(until > self.clock.now() for until in self.clock.waiting)
            )
        )

    async def set_desired(
        self, upstreams: Mapping[str, Sequence[PlusServer | str]], **options: Any
    ) -> None:
        """Set the desired state, and let the worker do what it can do at once."""
        desired = desired_upstreams(upstreams, **options)
        self.worker.set_desired(desired)
        await self.pass_(JITTER)

    async def pass_(self, seconds: float) -> None:
        """Advance the clock, and let the worker do what is due then."""
        await self.idle()
        await self.clock.move(seconds)
        # What is due wakes up.
        await self.until(lambda: all(until > self.clock.now() for until in self.clock.waiting))
        await self.idle()


@contextlib.asynccontextmanager
async def running_host(
    desired: Plus,
    tls: ssl.SSLContext | None = None,
    settings: ir.HostTls | None = None,
    **options: Any,
) -> AsyncIterator[Host]:
    """Run a worker for a fake; ``options`` are those of the fake."""
    clock = Clock()
    fake = FakePlus(desired, **options)
    token = options.get("authorization", "")
    async with fake.serving(tls=tls) as url:
        host = ir.Host(url, settings or ir.HostTls(), SecretBytes(token.encode()))
        reports: list[HostReport] = []
        worker = Worker(host, reports.append, clock, lambda: JITTER)
        result = Host(fake, worker, clock)
        result.reports = reports
        task = asyncio.create_task(worker.run())
        try:
            yield result
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def fleet(
    *models: Plus,
) -> AsyncIterator[tuple[PlusFleet, list[FakePlus], tuple[ir.Host, ...]]]:
    """Run a fleet with hosts, on the real clock."""
    async with contextlib.AsyncExitStack() as stack:
        fakes = [FakePlus(model) for model in models]
        urls = [await stack.enter_async_context(fake.serving()) for fake in fakes]
        result = PlusFleet(lambda name, report: None)
        stack.push_async_callback(result.close)
        yield result, fakes, tuple(ir.Host(url) for url in urls)


def held(fake: FakePlus, name: str = "web") -> list[str]:
    """Return the servers of an upstream of a fake."""
    return sorted(s.server for s in fake.plus.upstreams["http", name].servers.values())
