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
    now = time.monotonic()
    agreed: dict[tuple[str, ...], float] = {
        place: now - each.agreed_at for place, each in known.items() if each.agreed_at is not None
    }
    up: dict[tuple[str, ...], float] = {
        place: float(each.connected) for place, each in known.items()
    }
    agreed |= {place: now - each for place, each in ours.items()}
    if machines is not None:
        up |= {place: float(each) for place, each in machines.connected().items()}
    asked: dict[tuple[str, ...], float] = {
        (*place, *said): float(count)
        for place, worker in workers.items()
        for said, count in worker.calls.items()
    }
    return {
        "load_balancer_up": _now(
            "Whether the host answered the last time, or its agent is connected.", up
        ),
        "load_balancer_behind": _now(
            "Upstreams that are not known to hold what they are to hold.",
            {place: float(each.behind) for place, each in reports.items()},
        ),
        "load_balancer_failing": _now(
            "Upstreams that the host refused to change.",
            {place: float(len(each.failing)) for place, each in reports.items()},
        ),
        "load_balancer_agreed_seconds": _now(
            "Seconds since the host was last seen to hold all that it is to hold.", agreed
        ),
        "load_balancer_retries": _total(
            "Attempts that failed, and so are made again.",
            {place: float(each.retries) for place, each in known.items()},
        ),
        "load_balancer_drifts": _total(
            "Upstreams of ours that somebody else changed, and that were put right.",
            {place: float(each.drifts) for place, each in known.items()},
        ),
        "load_balancer_requests": _total("Requests to hosts.", asked, "method", "outcome"),
    }


def _now(text: str, values: Values) -> Metric:
    return Metric(0.0, text, labels=_HOST, values=values)


def _total(text: str, values: Values, *more: str) -> Metric:
    return Metric(0.0, text, total=True, labels=(*_HOST, *more), values=values)
