"""Specification of the work queue, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import virtual_time
from kube_base.runtime.backoff import BackoffPolicy
from kube_base.runtime.work_queue import RetryError, WorkQueue

RETRIES = BackoffPolicy(first=1.0, maximum=8.0)


class Step(msgspec.Struct, frozen=True):
    """Call of the queue at a time in seconds."""

    at: float
    call: str
    key: str = ""
    seconds: float = 0.0


class Run:
    """A queue whose work takes time and fails as specified, and the record of its work."""

    def __init__(
        self,
        *,
        duration: float = 0.0,
        failures: Mapping[str, int] = {},
        min_delay: float | None = None,
        workers: int = 1,
        debounce: float = 0.0,
    ) -> None:
        self._duration, self._min_delay = duration, min_delay
        self._left = dict(failures)
        self.queue = WorkQueue(self._work, RETRIES, workers=workers, debounce=debounce)
        self.started: list[tuple[float, str]] = []
        self.ended: list[tuple[float, str]] = []
        self.succeeded: dict[str, float] = {}
        """Start of the last successful attempt at each key, in seconds."""
        self.active: list[str] = []
        self.max_active = 0

    async def _work(self, key: str) -> None:
        started = asyncio.get_running_loop().time()
        assert key not in self.active, f"two workers process {key}"
        self.active.append(key)
        self.max_active = max(self.max_active, len(self.active))
        self.started.append((started, key))
        await asyncio.sleep(self._duration)
        self.active.remove(key)
        self.ended.append((asyncio.get_running_loop().time(), key))
        if self._left.get(key, 0) > 0:
            self._left[key] -= 1
            raise RetryError(self._min_delay)
        self.succeeded[key] = started

    def play(self, *steps: Step, until: float = 1000.0) -> list[tuple[float, str]]:
        """Call the queue while it runs. Return the start time and key of all work."""
        virtual_time.run(self._play(steps, until))
        return self.started

    async def _play(self, steps: tuple[Step, ...], until: float) -> None:
        loop = asyncio.get_running_loop()
        running = asyncio.create_task(self.queue.run())
        calls: dict[str, Callable[[Step], object]] = {
            "add": lambda step: self.queue.add(step.key),
            "add_urgent": lambda step: self.queue.add(step.key, urgent=True),
            "add_after": lambda step: self.queue.add_after(step.key, step.seconds),
            "forget": lambda step: self.queue.forget(step.key),
            "stop": lambda _: self.queue.stop(),
            "cancel": lambda _: running.cancel(),
        }
        for step in sorted(steps, key=lambda step: step.at):
            await asyncio.sleep(step.at - loop.time())
            calls[step.call](step)
        await asyncio.wait({running}, timeout=until - loop.time())
        if not running.done():
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([Step(0, "add", "a")], [(0, "a")], id="key"),
        pytest.param(
            [Step(0, "add", "b"), Step(0, "add", "a")], [(0, "b"), (10, "a")], id="in order"
        ),
        pytest.param(
            [Step(0, "add", "a"), Step(1, "add", "b"), Step(2, "add", "b")],
            [(0, "a"), (10, "b")],
            id="queued key is not added again",
        ),
        pytest.param(
            [Step(0, "add", "a"), Step(1, "add", "a"), Step(2, "add", "a")],
            [(0, "a"), (10, "a")],
            id="key added while it is processed",
        ),
        pytest.param(
            [Step(0, "add", "a"), Step(1, "add", "a"), Step(2, "add", "b")],
            [(0, "a"), (10, "b"), (20, "a")],
            id="key added while it is processed goes behind queued keys",
        ),
        pytest.param(
            [
                *(Step(0, "add", key) for key in "abcd"),
                *(Step(1, "add_urgent", key) for key in "dc"),
                Step(2, "add", "d"),
            ],
            [(0, "a"), (10, "d"), (20, "c"), (30, "b")],
            id="urgent keys go first, in order",
        ),
        pytest.param(
            [
                *(Step(0, "add", key) for key in "abc"),
                Step(1, "add_urgent", "a"),
                Step(2, "add", "a"),
            ],
            [(0, "a"), (10, "a"), (20, "b"), (30, "c")],
            id="key added as urgent while it is processed",
        ),
        pytest.param([Step(1, "add_after", "a", 5)], [(6, "a")], id="delay"),
        pytest.param(
            [Step(0, "add_after", "a", 5), Step(1, "add", "a")],
            [(1, "a"), (11, "a")],
            id="delay is kept when key is added before",
        ),
        pytest.param(
            [Step(0, "add_after", "a", 50), Step(0, "stop"), Step(1, "add", "b")],
            [],
            id="queue that stops ignores delays and keys",
        ),
        pytest.param(
            [Step(0, "add", "a"), Step(1, "add", "a"), Step(2, "add", "b"), Step(3, "stop")],
            [(0, "a"), (10, "b"), (20, "a")],
            id="queue that stops processes queued keys",
        ),
        pytest.param(
            [Step(0, "add", "a"), Step(0, "add", "b"), Step(5, "cancel")],
            [(0, "a")],
            id="cancelled queue processes no key",
        ),
    ],
)
def test_queue_processes_keys(steps: list[Step], expected: list[tuple[float, str]]) -> None:
    assert Run(duration=10).play(*steps) == expected


@pytest.mark.parametrize(
    ("failures", "steps", "expected"),
    [
        pytest.param(2, [], [0, 1, 3], id="until success"),
        pytest.param(6, [], [0, 1, 3, 7, 15, 23, 31], id="up to maximum delay"),
        pytest.param(1, [Step(10, "add", "a")], [0, 1, 10], id="success ends back-off"),
        pytest.param(3, [Step(4, "add", "a")], [0, 1, 3, 4], id="attempt replaces retry"),
        pytest.param(4, [Step(4, "add", "a")], [0, 1, 3, 4, 12], id="attempt counts as failure"),
        pytest.param(9, [Step(4, "forget", "a")], [0, 1, 3], id="forgotten key"),
        pytest.param(
            9,
            [Step(2, "forget", "a"), Step(5, "add", "a"), Step(5.5, "stop")],
            [0, 1, 5],
            id="forgotten and stopped",
        ),
    ],
)
def test_failed_key_is_retried_with_back_off(
    failures: int, steps: list[Step], expected: list[float]
) -> None:
    started = Run(failures={"a": failures}).play(Step(0, "add", "a"), *steps)
    assert started == [(seconds, "a") for seconds in expected]


def test_retry_respects_minimum_delay() -> None:
    run = Run(failures={"a": 2}, min_delay=1.5)
    assert run.play(Step(0, "add", "a")) == [(0, "a"), (1.5, "a"), (3.5, "a")]


def test_failing_key_does_not_delay_others() -> None:
    run = Run(failures={"a": 3})
    started = run.play(Step(0, "add", "a"), Step(0, "add", "b"), Step(2, "add", "b"))
    assert started == [(0, "a"), (0, "b"), (1, "a"), (2, "b"), (3, "a"), (7, "a")]


def test_queue_counts_failures_until_success() -> None:
    counts = []

    async def work(key: str) -> None:
        counts.append(queue.failures(key))
        if len(counts) < 3:
            raise RetryError

    async def main() -> None:
        queue.add("a")
        queue.add_after("a", 10)
        await asyncio.wait({asyncio.create_task(queue.run())}, timeout=20)

    queue = WorkQueue(work, RETRIES)
    virtual_time.run(main())
    assert counts == [0, 1, 2, 0]


def test_workers_process_different_keys_concurrently() -> None:
    run = Run(duration=10, workers=2)
    started = run.play(*(Step(0, "add", key) for key in "abc"))
    assert started == [(0, "a"), (0, "b"), (10, "c")]
    assert run.max_active == 2


def test_idle_workers_end_when_queue_stops() -> None:
    run = Run(duration=10, workers=3)
    steps = (Step(0, "add", "a"), Step(1, "add", "a"), Step(2, "stop"))
    virtual_time.run(asyncio.wait_for(run._play(steps, 1000), 30))
    assert run.ended == [(10, "a"), (20, "a")]


@pytest.mark.parametrize(
    ("added", "started"), [(5, [0, 13]), (11, [0, 13]), (13, [0, 13]), (14, [0, 14])]
)
def test_debounced_key_waits_after_its_work(added: float, started: list[float]) -> None:
    run = Run(duration=10, debounce=3)
    starts = run.play(Step(0, "add", "a"), Step(added, "add", "a"))
    assert starts == [(seconds, "a") for seconds in started]


def test_debounced_key_does_not_delay_others() -> None:
    run = Run(debounce=3)
    started = run.play(Step(0, "add", "a"), Step(1, "add", "a"), Step(1, "add", "b"))
    assert started == [(0, "a"), (1, "b"), (3, "a")]


def test_keys_added_before_run_are_processed() -> None:
    run = Run()
    run.queue.add("a")
    assert run.play() == [(0, "a")]


@pytest.mark.parametrize("call", ["cancel", "stop"])
def test_queue_is_empty_when_it_runs_again(call: str) -> None:
    run = Run(duration=10, failures={"a": 1, "b": 1})
    first = run.play(
        *(Step(0, "add", key) for key in "ab"), Step(0, "add_after", "c", 9), Step(5, call)
    )
    count = len(first)
    assert run.play(Step(1, "add", "d"))[count:] == [(1, "d")]


def test_unexpected_exception_ends_queue() -> None:
    async def work(_: str) -> None:
        raise LookupError("bug")

    async def main() -> None:
        queue.add("a")
        await queue.run()

    queue = WorkQueue(work, RETRIES)
    with pytest.raises(ExceptionGroup) as raised:
        virtual_time.run(main())
    assert raised.group_contains(LookupError)


KEYS = st.sampled_from("abcd")
STEPS = st.builds(
    Step,
    at=st.integers(0, 60).map(float),
    call=st.sampled_from(["add", "add", "add_after"]),
    key=KEYS,
    seconds=st.integers(0, 20).map(float),
)


@given(
    steps=st.lists(STEPS, max_size=30),
    failures=st.dictionaries(KEYS, st.integers(0, 5)),
    duration=st.sampled_from([0.0, 0.5, 3.0]),
    workers=st.integers(1, 3),
    debounce=st.sampled_from([0.0, 2.0]),
)
def test_every_key_is_processed_after_it_was_last_added(
    steps: list[Step], failures: dict[str, int], duration: float, workers: int, debounce: float
) -> None:
    run = Run(duration=duration, failures=failures, workers=workers, debounce=debounce)
    run.play(*steps)
    last: dict[str, float] = {}
    for step in steps:
        due = step.at + (step.seconds if step.call == "add_after" else 0.0)
        last[step.key] = max(last.get(step.key, 0.0), due)
    assert run.succeeded.keys() == last.keys()
    for key, due in last.items():
        assert run.succeeded[key] >= due, key
    assert run.max_active <= workers
    ends = {key: [end for end, key_ended in run.ended if key_ended == key] for key in last}
    starts = {
        key: [start for start, key_started in run.started if key_started == key] for key in last
    }
    for key in last:
        for end, start in zip(ends[key], starts[key][1:], strict=False):
            assert start >= end + debounce
