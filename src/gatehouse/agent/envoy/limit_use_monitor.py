"""Use of limits that data planes share, counted by Envoy, for the control plane.

The need of a data plane is the number of requests in flight. While its share rejects requests, it
is twice the share, so that the control plane moves share by share to the data planes that need it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote

from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.dataplane.limit_use import LimitUse
from gatehouse.dataplane.unready_servers import SERVERS_PREFIX
from gatehouse.dataplane.xds.resources import RUNTIME_TYPE_URL, ResourceSet, XdsResource
from gatehouse.dataplane.xds.runtime_limits import LIMITS_LAYER, own_limit, shared_totals

USE_POLL_SECONDS = 1.0
"""Interval in seconds between two queries of Envoy."""

_SAMPLES = 5
"""Number of samples whose maximum is the need, so that short pauses do not change it."""

_TOLERANCE = 10
"""Lower needs are reported if they differ by more than one such part. Higher ones always are."""

_STAT_PREFIX = f"cluster.{SERVERS_PREFIX.replace(':', '_')}"
_FILTER = rf"^{_STAT_PREFIX}.*/flow/.*[.]upstream_rq_(active|pending_overflow)$"
_STATS = f"/stats?filter={quote(_FILTER, safe='')}"
_CLUSTER = re.compile(rf"{re.escape(SERVERS_PREFIX)}([^/]+)/flow/([^/]+)")
_LINE = re.compile(
    rf"{re.escape(_STAT_PREFIX)}([^/]+/flow/.+)[.]upstream_rq_(active|pending_overflow): (\d+)"
)

_Counts = tuple[int, int]
"""Requests in flight, and requests rejected so far."""


def parse_counts(text: str) -> dict[str, _Counts]:
    """Return the counts from Envoy's statistics, by Envoy cluster with escaped dots."""
    result: dict[str, _Counts] = {}
    for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
        name = f"{SERVERS_PREFIX}{match[1]}".replace(".", "%2E")
        active, rejected = result.get(name, (0, 0))
        value = int(match[3])
        result[name] = (value, rejected) if match[2] == "active" else (active, value)
    return result


class _Need:
    """Need of one limit from successive counts."""

    def __init__(self) -> None:
        self._rejected: int | None = None
        self._samples: deque[int] = deque(maxlen=_SAMPLES)
        self.reported = -1

    def update(self, counts: _Counts, share: int, total: int) -> int:
        active, rejected = counts
        new = self._rejected is not None and rejected > self._rejected
        self._rejected = rejected
        self._samples.append(min(total, max(active, 2 * share, 1) if new else active))
        need = max(self._samples)
        if need > self.reported or self.reported - need > self.reported // _TOLERANCE:
            self.reported = need
        return self.reported


class LimitUseMonitor:
    """Reports the use of shared limits when it changes."""

    def __init__(
        self,
        admin: AdminClient,
        held: Callable[[], ResourceSet],
        report: Callable[[LimitUse], None],
    ) -> None:
        self._admin, self._held, self._report = admin, held, report
        self._needs: dict[str, _Need] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(USE_POLL_SECONDS)
            await self.poll()

    async def poll(self) -> None:
        """Query Envoy if there are shared limits, and report."""
        resource = self._held().get(RUNTIME_TYPE_URL, LIMITS_LAYER)
        totals = shared_totals(resource)
        if resource is None or not totals:
            self._needs.clear()
            return
        try:
            _, text = await self._admin.get(_STATS)
        except OSError:
            return
        self._report(self._use(parse_counts(text), totals, resource))

    def _use(
        self, counts: Mapping[str, _Counts], totals: Mapping[str, int], resource: XdsResource
    ) -> LimitUse:
        self._needs = {name: need for name, need in self._needs.items() if name in totals}
        result: dict[str, dict[str, int]] = {}
        for name, total in totals.items():
            match = _CLUSTER.fullmatch(name)
            # Copies for upgrades carry long-running requests, which do not count.
            if match is not None:
                need = self._needs.setdefault(name, _Need())
                share = own_limit(resource, name)
                current = need.update(counts.get(name.replace(".", "%2E"), (0, 0)), share, total)
                result.setdefault(unquote(match[1]), {})[unquote(match[2])] = current
        return result
