"""What can be measured of each host."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from gatehouse.controller.health import Figure
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.transports.nginx_plus import Fleet

_HOST = ("load_balancer", "host")


def figures(balancers: Iterable[Balancer], fleet: Fleet) -> Mapping[str, Figure]:
    """Give figures by name, each with a value for every host."""
    workers = fleet.workers()
    reports = {
        (balancer.name, report.url): report
        for balancer in balancers
        for report in balancer.ordered()
    }
    now = time.monotonic()
    known = {place: worker.knowledge for place, worker in workers.items()}
    asked: dict[tuple[str, ...], float] = {
        (*place, *said): float(count)
        for place, worker in workers.items()
        for said, count in worker.calls.items()
    }
    values: dict[str, tuple[str, bool, Mapping[tuple[str, ...], float]]] = {
        "up": (
            "Whether the host answered the last time.",
            False,
            {place: float(each.connected) for place, each in known.items()},
        ),
        "behind": (
            "Upstreams that are not known to hold what they are to hold.",
            False,
            {place: float(each.behind) for place, each in reports.items()},
        ),
        "failing": (
            "Upstreams that the host refused to change.",
            False,
            {place: float(len(each.failing)) for place, each in reports.items()},
        ),
        "agreed_seconds": (
            "Seconds since the host was last seen to hold all that it is to hold.",
            False,
            {p: now - each.agreed_at for p, each in known.items() if each.agreed_at is not None},
        ),
        "retries": (
            "Attempts that failed, and so are made again.",
            True,
            {place: float(each.retries) for place, each in known.items()},
        ),
        "drifts": (
            "Upstreams of ours that somebody else changed, and that were put right.",
            True,
            {place: float(each.drifts) for place, each in known.items()},
        ),
    }
    found = {
        f"load_balancer_{name}": Figure(0.0, text, total, _HOST, given)
        for name, (text, total, given) in values.items()
    }
    labels = (*_HOST, "method", "outcome")
    found["load_balancer_requests"] = Figure(0.0, "Requests to hosts.", True, labels, asked)
    return found
