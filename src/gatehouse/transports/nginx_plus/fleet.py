"""All hosts of all load balancers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from gatehouse.compiler.ir.load_balancing import Host
from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.nginx_plus import DesiredUpstreams
from gatehouse.transports.nginx_plus.worker import Clock, RealClock, Worker

Place = tuple[str, Host, float]
"""A load balancer's name, one of its hosts, and how long that may take to answer."""


class Fleet:
    """One worker for each host of each load balancer, so that none waits for another."""

    def __init__(
        self, on_report: Callable[[str, HostReport], None], clock: Clock | None = None
    ) -> None:
        """``on_report`` is called, in the event loop, with a load balancer's name and the news."""
        self._on_report = on_report
        self._clock = clock or RealClock()
        self._workers: dict[Place, tuple[Worker, asyncio.Task[None]]] = {}

    def want(self, wanted: Mapping[str, tuple[tuple[Host, ...], DesiredUpstreams]]) -> None:
        """Keep these load balancers in step from now on, and no others; idempotent.

        A host that is wanted no more is left as it is.
        """
        places = {
            (name, host, holdings.timeout): holdings
            for name, (hosts, holdings) in wanted.items()
            for host in hosts
        }
        for place in self._workers.keys() - places.keys():
            self._workers.pop(place)[1].cancel()
        for place, holdings in places.items():
            worker = self._worker(place)
            if worker.knowledge.wanted is not holdings:
                worker.want(holdings)

    def _worker(self, place: Place) -> Worker:
        if place not in self._workers:
            name, host, _ = place
            worker = Worker(host, lambda report: self._on_report(name, report), self._clock)
            self._workers[place] = (worker, asyncio.create_task(worker.run()))
        return self._workers[place][0]

    def workers(self) -> Mapping[tuple[str, str], Worker]:
        """Give the workers by load balancer and URL."""
        return {(name, host.url): made for (name, host, _), (made, _) in self._workers.items()}

    async def close(self) -> None:
        """Stop; hosts stay as they are."""
        tasks = [task for _, task in self._workers.values()]
        self._workers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
