"""Metrics of each host of a load balancer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.controller.load_balancers.machines import MachineFleet as Machines
from gatehouse.controller.metrics import Metric
from gatehouse.transports.nginx_plus import Fleet

_HOST = ("load_balancer", "host")

Values = Mapping[tuple[str, ...], float]


def host_metrics(
    balancers: Iterable[Balancer], fleet: Fleet, machines: Machines | None = None
) -> Mapping[str, Metric]:
    """Return metrics by name, each with a value for every host."""
    workers = fleet.workers()
    knowledge = {host: worker.knowledge for host, worker in workers.items()}
    reports = {(each.name, report.host): report for each in balancers for report in each.ordered()}
    up: dict[tuple[str, ...], float] = {
        host: float(each.connected) for host, each in knowledge.items()
    }
    synchronized: dict[tuple[str, ...], float | None] = {
        host: each.agreed_at for host, each in knowledge.items()
    }
    if machines is not None:
        up |= {host: float(each) for host, each in machines.connected().items()}
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
            {host: float(each.behind) for host, each in reports.items()},
        ),
        "load_balancer_failed_upstreams": _gauge(
            "Upstreams that the host did not accept.",
            {host: float(len(each.failing)) for host, each in reports.items()},
        ),
        "load_balancer_last_sync_timestamp_seconds": _gauge(
            "Unix time at which all upstreams of the host were last seen synchronized.",
            _unix_times(synchronized),
        ),
        "load_balancer_retries": _counter(
            "Retries of failed attempts.",
            {host: float(each.retries) for host, each in knowledge.items()},
        ),
        "load_balancer_drift_corrections": _counter(
            "Corrections of upstreams that were changed by others.",
            {host: float(each.drifts) for host, each in knowledge.items()},
        ),
        "load_balancer_requests": _counter(
            "Requests to hosts by method and outcome.", requests, "method", "outcome"
        ),
    }


def _unix_times(times: Mapping[tuple[str, ...], float | None]) -> Values:
    """Return monotonic times in seconds as Unix times."""
    start = time.time() - time.monotonic()
    return {host: start + seconds for host, seconds in times.items() if seconds is not None}


def _gauge(help_text: str, values: Values) -> Metric:
    return Metric(0.0, help_text, labels=_HOST, values=values)


def _counter(help_text: str, values: Values, *more_labels: str) -> Metric:
    return Metric(0.0, help_text, total=True, labels=(*_HOST, *more_labels), values=values)
