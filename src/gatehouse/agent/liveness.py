"""Liveness of a proxy: notices processes that run but do not respond, and kills them.

A process that stays silent for some probes makes the agent unhealthy. One that stays silent for
longer is killed, and its supervisor or its master replaces it. Time in which the agent itself did
not run does not count: then the proxy may not have run either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from collections.abc import Set as AbstractSet

import msgspec
import structlog

from gatehouse.runtime import procfs
from gatehouse.runtime.prometheus import Sample
from kube_base.runtime.time_limits import scaled

log = structlog.get_logger("gatehouse.agent")

BUSY_FACTOR = 6
"""Factor by which a process may be silent for longer if it is busy, starved or waits for a disk."""

BUSY_SHARE = 0.01
"""Share of a CPU above which a process is busy. One that is stopped or blocked uses none."""


class LivenessPolicy(msgspec.Struct, frozen=True):
    """Options of liveness probes."""

    period_seconds: float = 1.0
    """Interval between probes in seconds. 0: no probes."""
    failure_threshold: int = 3
    """Number of consecutive probes without response after which the proxy is unhealthy."""
    kill_seconds: float = scaled(10.0)
    """Time in seconds without response after which a process is killed. 0: never."""

    @property
    def max_step_seconds(self) -> float:
        """Longest time in seconds between two probes of an agent that runs without a break."""
        return 2 * self.period_seconds + 0.5


class ProbeTarget(msgspec.Struct, frozen=True, order=True):
    """A process, or a part of one, that must respond."""

    pid: int
    name: str


class _Silence(msgspec.Struct):
    cpu: float
    """CPU time of the process at the start of the silence, in seconds."""
    probes: int = 0
    seconds: float = 0.0
    killed: bool = False


class LivenessTracker:
    """Durations of silence by target. No I/O except by its arguments."""

    def __init__(
        self,
        policy: LivenessPolicy,
        cpu_seconds: Callable[[int], float] = procfs.cpu_seconds,
        state: Callable[[int], str] = procfs.state,
    ) -> None:
        """`cpu_seconds`, `state`: return CPU time and state of a process."""
        self._policy = policy
        self._cpu_seconds, self._state = cpu_seconds, state
        self._silences: dict[ProbeTarget, _Silence] = {}
        self._observed_at: float | None = None

    def observe(self, silent: AbstractSet[ProbeTarget], now: float) -> None:
        """Record the targets that did not respond to the probe that ends at `now`."""
        step = self._policy.period_seconds if self._observed_at is None else now - self._observed_at
        self._observed_at = now
        if step > self._policy.max_step_seconds:
            # The agent was stopped, or the machine is too slow to judge.
            self._silences.clear()
            return
        previous = self._silences
        self._silences = {}
        for target in silent:
            silence = previous.get(target) or _Silence(self._cpu_seconds(target.pid))
            silence.probes += 1
            silence.seconds += step
            self._silences[target] = silence

    @property
    def unhealthy(self) -> str:
        """Name of a target that is unhealthy. Empty if there is none."""
        for target, silence in sorted(self._silences.items()):
            if silence.probes >= self._policy.failure_threshold:
                return f"{target.name} (process {target.pid}) does not respond"
        return ""

    @property
    def not_live(self) -> str:
        """Name of a target that stays silent although it was killed. Empty if there is none."""
        for target, silence in sorted(self._silences.items()):
            if silence.killed and silence.seconds > 2 * self._limit(target, silence):
                return f"{target.name} (process {target.pid}) cannot be killed"
        return ""

    def overdue(self) -> list[ProbeTarget]:
        """Return the targets to kill. Each is returned once."""
        if not self._policy.kill_seconds:
            return []
        overdue = [
            target
            for target, silence in sorted(self._silences.items())
            if not silence.killed and silence.seconds >= self._limit(target, silence)
        ]
        for target in overdue:
            self._silences[target].killed = True
        return overdue

    def _limit(self, target: ProbeTarget, silence: _Silence) -> float:
        used = self._cpu_seconds(target.pid) - silence.cpu
        # A process that waits for a disk cannot be killed, and may not be at fault.
        busy = used > BUSY_SHARE * silence.seconds or self._state(target.pid) == "D"
        return self._policy.kill_seconds * (BUSY_FACTOR if busy else 1)


class LivenessMonitor:
    """Probes one proxy."""

    def __init__(
        self,
        policy: LivenessPolicy,
        probe: Callable[[float], Awaitable[AbstractSet[ProbeTarget]]],
        kill: Callable[[int], None],
    ) -> None:
        """`probe` waits at most so many seconds for responses, and returns the silent targets.

        `kill` kills a process of the proxy.
        """
        self.unhealthy = ""
        """Reason why the proxy is unhealthy. Empty if it responds."""
        self.failures = 0
        """Number of probes without response."""
        self.kills = 0
        """Number of processes killed because they did not respond."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when `unhealthy` has changed."""
        self._policy, self._probe, self._kill = policy, probe, kill
        self._tracker = LivenessTracker(policy)

    def not_live(self) -> str:
        """Return why the container must be restarted. Empty if it need not be."""
        return self._tracker.not_live

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of probes."""
        name = "gatehouse_agent"
        help_ = "1 if the proxy responds to probes, else 0."
        yield Sample(f"{name}_proxy_responding", help_, not self.unhealthy)
        help_ = "Probes to which the proxy did not respond in time."
        yield Sample(f"{name}_probe_failures", help_, self.failures, "counter")
        help_ = "Proxy processes killed because they did not respond."
        yield Sample(f"{name}_hung_kills", help_, self.kills, "counter")

    async def run(self) -> None:
        """Probe until cancelled. Returns at once if there are no probes."""
        period = self._policy.period_seconds
        while period:
            started_at = time.monotonic()
            silent = await self._probe(period)
            self.failures += bool(silent)
            self._tracker.observe(silent, time.monotonic())
            self._update()
            overdue = self._tracker.overdue()
            for pid in sorted({target.pid for target in overdue}):
                names = [target.name for target in overdue if target.pid == pid]
                log.error("hung process killed", pid=pid, silent=names)
                self.kills += 1
                self._kill(pid)
            await asyncio.sleep(max(0.0, started_at + period - time.monotonic()))

    def _update(self) -> None:
        unhealthy = self._tracker.unhealthy
        if unhealthy != self.unhealthy:
            self.unhealthy = unhealthy
            if unhealthy:
                log.error("proxy unhealthy", reason=unhealthy)
            else:
                log.info("proxy responds")
            self.on_change()
