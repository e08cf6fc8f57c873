"""All NGINX Plus hosts of all load balancers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from gatehouse.compiler.ir.load_balancing import Host
from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.nginx_plus import DesiredUpstreams
from gatehouse.transports.nginx_plus.worker import Clock, RealClock, Worker

HostKey = tuple[str, Host, float]
"""Name of a load balancer, one of its hosts, and the host's timeout in seconds."""


class PlusFleet:
    """One worker per host of each load balancer, so that hosts do not block each other."""

    def __init__(
        self, on_report: Callable[[str, HostReport], None], clock: Clock | None = None
    ) -> None:
        """``on_report`` is called in the event loop with a load balancer's name and a changed
        report."""
        self._on_report = on_report
        self._clock = clock or RealClock()
        self._workers: dict[HostKey, tuple[Worker, asyncio.Task[None]]] = {}

    def want(self, desired: Mapping[str, tuple[tuple[Host, ...], DesiredUpstreams]]) -> None:
        """Synchronize these load balancers from now on, and no others. Idempotent.

        A host that is not desired now keeps its state.
        """
        by_key = {
            (name, host, upstreams.timeout): upstreams
            for name, (hosts, upstreams) in desired.items()
            for host in hosts
        }
        for key in self._workers.keys() - by_key.keys():
            self._workers.pop(key)[1].cancel()
        for key, upstreams in by_key.items():
            worker = self._worker(key)
            if worker.knowledge.desired is not upstreams:
                worker.set_desired(upstreams)

    def _worker(self, key: HostKey) -> Worker:
        if key not in self._workers:
            name, host, _ = key
            worker = Worker(host, lambda report: self._on_report(name, report), self._clock)
            self._workers[key] = (worker, asyncio.create_task(worker.run()))
        return self._workers[key][0]

    def workers(self) -> Mapping[tuple[str, str], Worker]:
        """Return the workers by load balancer and URL."""
        return {(name, host.url): worker for (name, host, _), (worker, _) in self._workers.items()}

    async def close(self) -> None:
        """Stop all workers. Hosts keep their state."""
        tasks = [task for _, task in self._workers.values()]
        self._workers.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
