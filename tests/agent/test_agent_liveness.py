"""Judgement about proxies that do not respond, without processes."""

from __future__ import annotations

import pytest

from gatehouse.agent.liveness import BUSY_FACTOR, LivenessPolicy, LivenessTracker, ProbeTarget
from gatehouse.agent.options import AgentOptionsError, options_from_environment
from kube_base.runtime.time_limits import scaled

WORKER, OTHER = ProbeTarget(7, "NGINX worker"), ProbeTarget(8, "NGINX worker")
SERVER = {"NGINX_AGENT_COMMAND_SERVER_HOST": "host", "NGINX_AGENT_COMMAND_SERVER_PORT": "1"}


class Machine:
    """CPU time and state of the only process, and a clock."""

    def __init__(self, kill_seconds: float = 10.0) -> None:
        policy = LivenessPolicy(kill_seconds=kill_seconds)
        self.now = 100.0
        self.cpu = 0.0
        self.state = "S"
        self.tracker = LivenessTracker(policy, lambda _pid: self.cpu, lambda _pid: self.state)
        self.killed: list[ProbeTarget] = []

    def probe(self, *silent: ProbeTarget, times: int = 1, step: float = 1.0) -> None:
        for _ in range(times):
            self.now += step
            self.tracker.observe(frozenset(silent), self.now)
            self.killed += self.tracker.overdue()


def test_silent_process_is_unhealthy_after_threshold() -> None:
    machine = Machine()
    machine.probe(WORKER, times=2)
    assert machine.tracker.unhealthy == ""
    machine.probe(WORKER)
    assert machine.tracker.unhealthy == "NGINX worker (process 7) does not respond"
    machine.probe()
    assert machine.tracker.unhealthy == ""


def test_silence_of_different_processes_does_not_add_up() -> None:
    machine = Machine()
    for target in (WORKER, OTHER) * 10:
        machine.probe(target)
    assert machine.tracker.unhealthy == ""
    assert machine.killed == []


def test_silent_process_is_killed_once_after_limit() -> None:
    machine = Machine()
    machine.probe(WORKER, times=9)
    assert machine.killed == []
    machine.probe(WORKER, times=11)
    assert machine.killed == [WORKER]
    assert machine.tracker.not_live == ""
    machine.probe(WORKER)
    assert machine.tracker.not_live == "NGINX worker (process 7) cannot be killed"


def test_process_is_never_killed_when_turned_off() -> None:
    machine = Machine(kill_seconds=0.0)
    machine.probe(WORKER, times=1000)
    assert machine.killed == []
    assert machine.tracker.unhealthy
    assert machine.tracker.not_live == ""


@pytest.mark.parametrize("state", ["R", "D"])
def test_busy_process_is_killed_later(state: str) -> None:
    machine = Machine()
    machine.state = state
    for _ in range(10 * BUSY_FACTOR - 1):
        machine.cpu += 0.1 if state == "R" else 0.0
        machine.probe(WORKER)
    assert machine.killed == []
    machine.cpu += 0.1
    machine.probe(WORKER)
    assert machine.killed == [WORKER]


def test_time_in_which_agent_was_paused_does_not_count() -> None:
    machine = Machine()
    machine.probe(WORKER, times=9)
    machine.probe(WORKER, step=60.0)
    assert machine.killed == []
    assert machine.tracker.unhealthy == ""
    machine.probe(WORKER, times=9)
    assert machine.killed == []
    machine.probe(WORKER)
    assert machine.killed == [WORKER]


def test_slow_machine_kills_no_process() -> None:
    machine = Machine()
    machine.probe(WORKER, times=100, step=3.0)
    assert machine.killed == []


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PROBE_PERIOD_SECONDS", "0.01", "gatehouse.probe_period_seconds: must be 0 or at least"),
        ("PROBE_PERIOD_SECONDS", "61", "gatehouse.probe_period_seconds: '61' must be a number"),
        ("PROBE_FAILURE_THRESHOLD", "0", "gatehouse.probe_failure_threshold: '0' must be"),
        ("HANG_KILL_SECONDS", "2", "gatehouse.hang_kill_seconds: must be 0 or at least"),
    ],
)
def test_invalid_option_is_rejected(variable: str, value: str, message: str) -> None:
    with pytest.raises(AgentOptionsError, match=message):
        options_from_environment(SERVER | {f"GATEHOUSE_AGENT_{variable}": value})


def test_options_are_read() -> None:
    assert options_from_environment(SERVER).liveness == LivenessPolicy(1.0, 3, scaled(10.0))
    values = {"PROBE_PERIOD_SECONDS": "0.5", "PROBE_FAILURE_THRESHOLD": "5"}
    environ = {f"GATEHOUSE_AGENT_{name}": value for name, value in values.items()}
    environ["GATEHOUSE_AGENT_HANG_KILL_SECONDS"] = "0"
    assert options_from_environment(SERVER | environ).liveness == LivenessPolicy(0.5, 5, 0.0)
