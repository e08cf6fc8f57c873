"""Plug-in of pytest: the record of a run, a line of JSON for each outcome of a test.

``--record FILE`` appends the lines while the run goes on, so that a run that is killed leaves them.
``scripts/gate.py`` reads them. Each line has the longest time for which the machine stalled while
the test ran and the load of the machine, which tell a slow machine from a defect.
"""

from __future__ import annotations

import collections
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_INTERVAL_SECONDS = 0.05
_MIN_STALL_SECONDS = 0.1
_MAX_STALLS = 10_000
_OUTSIDE_EVENTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "socket.bind")
"""Audit events of a test that needs more than its own thread: a process or a server."""
_OUTSIDE = "outside"
"""Property of a test's report: the test or one before it in its file caused such an event."""


class StallClock:
    """Measurement of the times in which this process got no processor."""

    def __init__(self) -> None:
        self._stalls: collections.deque[tuple[float, float]] = collections.deque(maxlen=_MAX_STALLS)
        threading.Thread(target=self._run, daemon=True, name="stall-clock").start()

    def longest_seconds(self, since: float) -> float:
        """Return the longest stall that ended after a time of the monotonic clock."""
        return max((stall for end, stall in tuple(self._stalls) if end >= since), default=0.0)

    def _run(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(_INTERVAL_SECONDS)
            now = time.monotonic()
            stall = now - before - _INTERVAL_SECONDS
            if stall > _MIN_STALL_SECONDS:
                self._stalls.append((now, stall))
            before = now


class OutsideEvents:
    """Detection of tests that use processes or servers, in the process that runs the tests."""

    def __init__(self) -> None:
        self._file = ""
        self._seen = False
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: object) -> None:
        if event in _OUTSIDE_EVENTS:
            self._seen = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Forget the events of another file."""
        file = nodeid.partition("::")[0]
        if file != self._file:
            self._file, self._seen = file, False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Add the property to the report of a test."""
        report: pytest.TestReport = yield  # type: ignore[assignment]
        if self._seen:
            report.user_properties.append((_OUTSIDE, True))
        return report  # type: ignore[return-value]


class RunRecord:
    """Writer of the record, in the process that gets all reports."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1)
        self._clock = StallClock()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the outcome of a test, if the report decides it."""
        if report.passed and report.when != "call":
            return
        self._write(report.nodeid, report.outcome, report, report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write that a file cannot be collected."""
        if report.failed:
            self._write(report.nodeid, report.outcome, report, 0.0)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write that the run came to its end, unless anything but tests failed."""
        complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        self._file.write(json.dumps({"complete": complete}) + "\n")

    def _write(
        self,
        test: str,
        outcome: str,
        report: pytest.TestReport | pytest.CollectReport,
        seconds: float,
    ) -> None:
        properties = dict(getattr(report, "user_properties", ()))
        line = {
            "test": test,
            "outcome": outcome,
            "seconds": round(seconds, 3),
            "message": "" if outcome == "passed" else message_of(report),
            "outside": bool(properties.get(_OUTSIDE)),
            "timing": "timing" in getattr(report, "keywords", ()),
            "stall_seconds": round(self._clock.longest_seconds(time.monotonic() - seconds - 1), 1),
            "load": round(os.getloadavg()[0], 1),
        }
        self._file.write(json.dumps(line) + "\n")


def message_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the first line of the message of a failure, or the reason of a skip."""
    detail = report.longrepr
    if isinstance(detail, tuple):
        return str(detail[2]).removeprefix("Skipped: ")
    crash = getattr(detail, "reprcrash", None)
    text = crash.message if crash is not None else str(detail)
    return next(iter(text.strip().splitlines()), "")
