"""Plug-in of pytest: the marker ``peers``, and the report of the tests that have it.

The report has one entry for each program and test function. A run replaces the entries of the tests
that it ran. Skipped tests keep their entries. ``make peers-check`` compares the entries of a run
with those in a report, and writes none.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes import kube_apiserver, peers

SHARED_FIXTURES = dict.fromkeys(("kube_apiserver", "installed_chart"), kube_apiserver.PROGRAM[0])
"""Fixtures of several tests with the program that they start. They mark the tests that use them."""
USED = "peer program"
"""Property of a test's report: a program that the test used."""
COLLECTED = "peer_tests"
"""Output of a worker of pytest-xdist: the tests that it collected."""


class PeerResult(msgspec.Struct):
    """Result of a test function with a program."""

    program: str
    """Name in :data:`fakes.peers.PROGRAMS`; empty if the test used none."""
    test: str
    """Node ID without parameters."""
    date: str
    """Day of the run, in UTC."""
    passed: int = 0
    failed: int = 0


class PeerReport:
    """Results of a run, for the report at a path. Without a path, tests are only marked.

    ``compared``: a report that must have the same programs and tests as the run.
    ``strict``: a skipped test with the marker fails if the directory of programs exists.
    """

    def __init__(
        self, path: Path | None, compared: Path | None = None, strict: bool = False
    ) -> None:
        self._path, self._compared, self._strict = path, compared, strict
        self._collected: set[str] = set()
        self._results: dict[tuple[str, str], PeerResult] = {}
        self._test: peers.RunningTest | None = None
        self._messages: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the tests with a shared fixture, before pytest selects tests by marker."""
        for item in items:
            if SHARED_FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
                item.add_marker("peers")
                item.add_marker("kubernetes")
            self._collected.add(function_id(item.nodeid))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record the programs that a test uses."""
        marked = any(item.get_closest_marker(name) for name in ("peers", "cluster"))
        self._test = peers.RunningTest(item.nodeid, marked)
        peers.begin(self._test)
        try:
            return (yield)
        finally:
            peers.end()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Add the programs to the report of a test. Fail a skipped test of a strict run."""
        report: pytest.TestReport = yield  # type: ignore[assignment]
        if item.get_closest_marker("peers"):
            skipped = report.skipped and not hasattr(report, "wasxfail")
            if skipped and self._strict and peers.directory():
                report.outcome, report.longrepr = "failed", f"skipped: {skip_reason(report)}"
            if (report.when == "call" or report.failed) and not report.skipped:
                report.user_properties += [(USED, name) for name in self._programs(item)]
        return report  # type: ignore[return-value]

    def _programs(self, item: pytest.Item) -> Collection[str]:
        assert self._test is not None
        fixtures = getattr(item, "_request").fixturenames  # noqa: B009
        shared = {program for name, program in SHARED_FIXTURES.items() if name in fixtures}
        return (self._test.programs | shared) or {""}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the result of a test, in the process that gets all reports."""
        day = datetime.datetime.now(datetime.UTC).date()
        test = function_id(report.nodeid)
        for program in (str(value) for key, value in report.user_properties if key == USED):
            new = PeerResult(program, test, day.isoformat())
            result = self._results.setdefault((program, test), new)
            result.passed += report.passed
            result.failed += not report.passed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the tests that a worker of pytest-xdist collected."""
        self._collected |= {*getattr(node, "workeroutput", {}).get(COLLECTED, ())}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report, or compare with one."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[COLLECTED] = sorted(self._collected)
            return
        # Without programs there is no run.
        if self._compared is not None and peers.directory():
            self._messages = self._differences(read_report(self._compared))
            if self._messages and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._path is not None:
            self._write(self._path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the differences from the compared report, or that there was no run."""
        if self._strict and peers.directory() is None:
            terminalreporter.write_line(
                "tests with programs of other projects were not run: no directory of programs",
                red=True,
            )
        for message in self._messages:
            terminalreporter.write_line(message, red=True)

    def _differences(self, expected: Sequence[PeerResult]) -> list[str]:
        """Return the differences of the run from a report, in the files that were collected."""
        reported = {
            (result.program, result.test) for result in expected if not self._is_other(result)
        }
        run = self._results.keys()
        return [
            *(f"{test}: not run with {program}" for program, test in sorted(reported - run)),
            *(
                f"{test}: run with {program or 'no program'}, but not in {self._compared}"
                for program, test in sorted(run - reported)
            ),
        ]

    def _write(self, path: Path) -> None:
        ran = {test for _, test in self._results}
        old = read_report(path) if path.exists() else []
        remaining = [
            result
            for result in old
            if result.test not in ran and (result.test in self._collected or self._is_other(result))
        ]
        results = [*remaining, *self._results.values()]
        results.sort(key=lambda result: (result.program, result.test))
        text = msgspec.json.format(msgspec.json.encode(results), indent=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text + b"\n")

    def _is_other(self, result: PeerResult) -> bool:
        """Return whether a result is that of an existing file of which nothing was collected."""
        file = result.test.partition("::")[0]
        others = all(test.partition("::")[0] != file for test in self._collected)
        return others and (peers.ROOT / file).exists()


def read_report(path: Path) -> list[PeerResult]:
    """Return the results in a report."""
    return msgspec.json.decode(path.read_bytes(), type=list[PeerResult])


def function_id(nodeid: str) -> str:
    """Return the node ID of a test without parameters."""
    return nodeid.partition("[")[0]


def skip_reason(report: pytest.TestReport) -> str:
    """Return the reason of a skipped test, without the location."""
    reason = report.longrepr
    return str(reason[2] if isinstance(reason, tuple) else reason).removeprefix("Skipped: ")
