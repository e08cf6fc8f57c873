"""Growth of work with the size of an input: of CPU time, and of steps of Python."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

MEASURABLE_SECONDS = 0.004
_FIRST_SIZE = 250
_FACTOR = 16
_MAX_TIME_GROWTH = 4 * _FACTOR
"""The middle, in logarithms, between linear (16) and quadratic growth (256).

Other load makes measured times differ by less than 2. Tables that no longer fit into the caches of
the processor take up to 2 times more for each entry.
"""
_MAX_STEP_GROWTH = 1.25 * _FACTOR
"""Steps do not depend on the machine."""


def cpu_seconds(work: Callable[[], Any], runs: int = 3) -> float:
    """Return the least CPU time in seconds of several runs in this thread.

    Garbage collection is off: its time depends on the objects of other tests.
    """
    durations = []
    gc.disable()
    try:
        for _ in range(runs):
            started = time.thread_time()
            work()
            durations.append(time.thread_time() - started)
    finally:
        gc.enable()
    return min(durations)


def steps(work: Callable[[], Any]) -> int:
    """Return the number of lines of Python that run. Equal work has equal steps on any machine."""
    count = 0

    def trace(_frame: object, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def assert_linear(work: Callable[[Any], Any], make: Callable[[int], Any], most: int) -> None:
    """Check that the work grows in proportion to the size of the input that `make` returns.

    Steps of Python are counted. CPU time shows what happens below Python, such as in regular
    expressions. It is measured from a small size on, so that quadratic work fails soon.
    """
    assert most >= _FIRST_SIZE * _FACTOR
    few, many = (_steps_on(work, make(size)) for size in (_FIRST_SIZE, _FIRST_SIZE * _FACTOR))
    assert many <= _MAX_STEP_GROWTH * few, f"{many} steps after {few} for {_FACTOR} times the size"
    size = _FIRST_SIZE
    while (seconds := _seconds_on(work, make(size))) < MEASURABLE_SECONDS:
        if 2 * size * _FACTOR > most:
            break
        size *= 2
    # A time that is too short to measure counts as the shortest that is not.
    limit = _MAX_TIME_GROWTH * max(seconds, MEASURABLE_SECONDS)
    value = make(size * _FACTOR)
    for _ in range(3):
        # One run shows that the work is linear. Quadratic work is slow in every run.
        used = cpu_seconds(lambda: work(value), 1)
        if used < limit:
            return
    raise AssertionError(f"{used:.3f} s after {seconds:.3f} s for {_FACTOR} times the size")


def _steps_on(work: Callable[[Any], Any], value: Any) -> int:
    return steps(lambda: work(value))


def _seconds_on(work: Callable[[Any], Any], value: Any) -> float:
    return cpu_seconds(lambda: work(value))
