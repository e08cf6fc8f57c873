"""Metrics of each host of a load balancer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.controller.load_balancers.machines import MachineFleet as Machines
from gatehouse.controller.metrics import Metric
from gatehouse.transports.nginx_plus import PlusFleet

_HOST = ("load_balancer", "host")

_Values = Mapping[tuple[str, ...], float]


def host_metrics(
    balancers: Iterable[Balancer], fleet: PlusFleet, machines: Machines | None = None
) -> Mapping[str, Metric]:
    """Return metrics by name, each with a value for every host."""
    workers = fleet.workers()
    knowledge = {host: worker.knowledge for host, worker in workers.items()}
    reports = {(b.name, report.host): report for b in balancers for report in b.ordered()}
    up: dict[tuple[str, ...], float] = {
        host: float(host_knowledge.connected) for host, host_knowledge in knowledge.items()
    }
    synchronized: dict[tuple[str, ...], float | None] = {
        host: host_knowledge.agreed_at for host, host_knowledge in knowledge.items()
    }
    if machines is not None:
        up |= {host: float(connected) for host, connected in machines.connected().items()}
        for host, seconds in machines.synchronized_at().items():
            synchronized[host] = seconds
    requests: dict[tuple[str, ...], float] = {
        (*host, *call_labels): float(count)
        for host, worker in workers.items()
        for call_labels, count in worker.calls.items()
    }
    return {
        "load_balancer_up": _gauge(
            "1 if the host answered the last request or its agent is connected, else 0.", up
        ),
        "load_balancer_unsynced_upstreams": _gauge(
            "Upstreams that are not synchronized.",
            {host: float(host_report.behind) for host, host_report in reports.items()},
        ),
        "load_balancer_failed_upstreams": _gauge(
            "Upstreams that the host did not accept.",
            {host: float(len(host_report.failing)) for host, host_report in reports.items()},
        ),
        "load_balancer_last_sync_timestamp_seconds": _gauge(
            "Unix time at which all upstreams of the host were last seen synchronized.",
            _unix_times(synchronized),
        ),
        "load_balancer_retries": _counter(
            "Retries of failed attempts.",
            {host: float(host_knowledge.retries) for host, host_knowledge in knowledge.items()},
        ),
        "load_balancer_drift_corrections": _counter(
            "Corrections of upstreams that were changed by others.",
            {host: float(host_knowledge.drifts) for host, host_knowledge in knowledge.items()},
        ),
        "load_balancer_requests": _counter(
            "Requests to hosts by method and outcome.", requests, "method", "outcome"
        ),
    }


def _unix_times(times: Mapping[tuple[str, ...], float | None]) -> _Values:
    """Return monotonic times in seconds as Unix times."""
    start = time.time() - time.monotonic()
    return {host: start + seconds for host, seconds in times.items() if seconds is not None}


def _gauge(help_text: str, values: _Values) -> Metric:
    return Metric(0.0, help_text, labels=_HOST, values=values)


def _counter(help_text: str, values: _Values, *more_labels: str) -> Metric:
    return Metric(0.0, help_text, total=True, labels=(*_HOST, *more_labels), values=values)
