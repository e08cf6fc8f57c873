"""What can be measured of each host."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.controller.load_balancers.machines import MachineFleet as Machines
from gatehouse.controller.metrics import Metric
from gatehouse.transports.nginx_plus import Fleet

_HOST = ("load_balancer", "host")

Values = Mapping[tuple[str, ...], float]


def figures(
    balancers: Iterable[Balancer], fleet: Fleet, machines: Machines | None = None
) -> Mapping[str, Metric]:
    """Give figures by name, each with a value for every host."""
    workers = fleet.workers()
    known = {place: worker.knowledge for place, worker in workers.items()}
    reports = {(each.name, report.host): report for each in balancers for report in each.ordered()}
    ours = machines.agreed() if machines is not None else {}
    since = time.time() - time.monotonic()
    synced: dict[tuple[str, ...], float] = {
        place: since + each.agreed_at for place, each in known.items() if each.agreed_at is not None
    }
    up: dict[tuple[str, ...], float] = {
        place: float(each.connected) for place, each in known.items()
    }
    synced |= {place: since + each for place, each in ours.items()}
    if machines is not None:
        up |= {place: float(each) for place, each in machines.connected().items()}
    asked: dict[tuple[str, ...], float] = {
        (*place, *said): float(count)
        for place, worker in workers.items()
        for said, count in worker.calls.items()
    }
    return {
        "load_balancer_up": _now(
            "1 if the host answered the last request or its agent is connected, else 0.", up
        ),
        "load_balancer_unsynced_upstreams": _now(
            "Upstreams that are not synchronized.",
            {place: float(each.behind) for place, each in reports.items()},
        ),
        "load_balancer_failed_upstreams": _now(
            "Upstreams that the host did not accept.",
            {place: float(len(each.failing)) for place, each in reports.items()},
        ),
        "load_balancer_last_sync_timestamp_seconds": _now(
            "Unix time at which all upstreams of the host were last seen synchronized.", synced
        ),
        "load_balancer_retries": _total(
            "Retries of failed attempts.",
            {place: float(each.retries) for place, each in known.items()},
        ),
        "load_balancer_drift_corrections": _total(
            "Corrections of upstreams that were changed by others.",
            {place: float(each.drifts) for place, each in known.items()},
        ),
        "load_balancer_requests": _total(
            "Requests to hosts by method and outcome.", asked, "method", "outcome"
        ),
    }


def _now(text: str, values: Values) -> Metric:
    return Metric(0.0, text, labels=_HOST, values=values)


def _total(text: str, values: Values, *more: str) -> Metric:
    return Metric(0.0, text, total=True, labels=(*_HOST, *more), values=values)
