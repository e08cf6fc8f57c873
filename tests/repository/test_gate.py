"""The gate: every stage runs, chance is distinguished from defects, one exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gate
import gate_runs
import pytest
from gate import Outcome, Record, Result, Runner, Stage

from fakes import required_tools
from fakes.patience import SECONDS
from fakes.run_record import StallClock
from fakes.source_trees import SEARCH_PATH

pytestmark = pytest.mark.process

TESTS = Path(__file__).parents[1]
FAILED = Outcome("failed", "TimeoutError", outside=True, stall_seconds=3.2, load=14.0)
PASSED = Outcome("passed", outside=True)


def far() -> float:
    return time.monotonic() + 600


class Target:
    """A stand-in for make, whose runs give prepared records and statuses in turn."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runs = 0

    def then(self, status: int, *, complete: bool = True, **outcomes: Outcome) -> None:
        """Prepare the next run; keys are names of tests in a file `a.py`."""
        self._runs += 1
        lines = [
            json.dumps({"test": f"a.py::{name}", **vars(item)}) for name, item in outcomes.items()
        ]
        lines += [json.dumps({"complete": complete})]
        (self._directory / f"{self._runs}.record").write_text("\n".join(lines) + "\n")
        (self._directory / f"{self._runs}.status").write_text(str(status))

    def calls(self) -> list[str]:
        path = self._directory / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def runner(self) -> Runner:
        script = self._directory / "make.py"
        script.write_text(
            "import pathlib, sys\n"
            f"here = pathlib.Path({str(self._directory)!r})\n"
            "calls = here / 'calls'\n"
            "old = calls.read_text() if calls.exists() else ''\n"
            "calls.write_text(old + ' '.join(sys.argv[1:]) + '\\n')\n"
            "number = old.count('\\n') + 1\n"
            "for word in ' '.join(sys.argv).replace('=', ' ').split():\n"
            "    if word.endswith('.jsonl'):\n"
            "        record = here / f'{number}.record'\n"
            "        pathlib.Path(word).write_text(record.read_text())\n"
            "sys.exit(int((here / f'{number}.status').read_text()))\n"
        )
        return Runner(self._directory / "results", (sys.executable, str(script)))


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


STAGE = Stage("test", "test", repeat="file")


def test_failure_that_passes_in_a_second_run_is_flaky(target: Target) -> None:
    target.then(2, one=PASSED, two=FAILED)
    target.then(0, one=PASSED, two=PASSED)
    result = target.runner.run(STAGE, far())
    assert (result.verdict, result.passed, result.defects) == ("passed", 2, {})
    assert result.flaky == {"a.py::two": FAILED}
    assert "TESTS=a.py WORKERS=0" in target.calls()[1]


def test_failure_in_three_runs_is_a_defect(target: Target) -> None:
    for _ in range(3):
        target.then(2, one=PASSED, two=FAILED)
    result = target.runner.run(STAGE, far())
    assert (result.verdict, result.flaky) == ("failed", {})
    assert [*result.defects] == ["a.py::two"]
    assert len(target.calls()) == 3


def test_failure_of_a_test_of_time_is_listed_and_decides_nothing(target: Target) -> None:
    late = Outcome("failed", "9 s", outside=True, timing=True)
    for _ in range(3):
        target.then(1, test_one=late, test_two=PASSED)
    result = target.runner.run(STAGE, far())
    assert (result.verdict, result.defects, result.passed) == ("passed", {}, 1)
    assert result.flaky == {"a.py::test_one": late}


def test_failure_without_processes_runs_once(target: Target) -> None:
    target.then(2, one=Outcome("passed"), two=Outcome("failed"))
    result = target.runner.run(STAGE, far())
    assert (result.verdict, [*result.defects]) == ("failed", ["a.py::two"])
    assert len(target.calls()) == 1


def test_more_failures_than_chance_explains_run_once(target: Target) -> None:
    outcomes = {f"t{number}": FAILED for number in range(gate.MAX_REPEATED_TESTS + 1)}
    target.then(2, complete=True, **outcomes)
    result = target.runner.run(STAGE, far())
    assert (result.verdict, len(target.calls())) == ("failed", 1)


@pytest.mark.parametrize("complete", [True, False])
def test_failed_run_with_passed_tests_is_red(target: Target, complete: bool) -> None:
    target.then(2, complete=complete, one=PASSED)
    assert gate.is_red(target.runner.run(STAGE, far()))


def test_run_that_broke_off_is_red_although_its_failure_was_flaky(target: Target) -> None:
    target.then(2, complete=False, one=FAILED)
    target.then(0, one=PASSED)
    assert gate.is_red(target.runner.run(STAGE, far()))


def test_tests_of_a_suite_run_again_by_name(target: Target, tmp_path: Path) -> None:
    target.then(2, one=FAILED)
    target.then(0, one=PASSED)
    runner = target.runner
    (tmp_path / "1.record").write_text(
        json.dumps({"test": "HTTPRouteSimple", **vars(FAILED)}) + '\n{"complete": true}\n'
    )
    (tmp_path / "2.record").write_text(json.dumps({"test": "HTTPRouteSimple", **vars(PASSED)}))
    result = runner.run(Stage("conformance", "conformance", repeat="test"), far())
    assert [*result.flaky] == ["HTTPRouteSimple"]
    assert "--run=HTTPRouteSimple" in target.calls()[1]


def test_stage_ends_at_its_limit_with_all_its_processes(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ > {pid}; exec sleep 600' & trap '' INT; wait; exec sleep 600"
    gate_process = (
        "import ctypes, gate, sys\n"
        "gate._END_SECONDS = 1\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        f"assert gate.run_limited(['sh', '-c', {script!r}], {{}}, 2) is None\n"
    )
    env = {**os.environ, "PYTHONPATH": str(gate.ROOT / "scripts")}
    subprocess.run([sys.executable, "-c", gate_process], env=env, check=True, timeout=SECONDS)
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_each_of_the_longest_stages_is_the_first_of_them_every_third_day() -> None:
    turns = gate.DAILY_TURNS
    days = [gate.stages(day, decide=False) for day in range(6)]
    orders = [stages[-len(turns) :] for stages in days]
    assert {stages[0].name for stages in orders} == {stage.name for stage in turns}
    assert orders[:3] == orders[3:]
    every = {stage.name for stage in gate.STAGES if not stage.decides}
    assert all({stage.name for stage in stages} == every for stages in days)
    assert gate.stages(0, decide=True) == [stage for stage in gate.STAGES if stage.decides]


def test_every_stage_is_a_target_with_the_options_that_it_gets() -> None:
    makefile = (gate.ROOT / "Makefile").read_text()
    for stage in gate.STAGES:
        recipe = makefile.split(f"\n{stage.target}:")[1].split("\n\n")[0]
        assert not stage.repeat or "$(ARGS)" in recipe, stage
        assert stage.repeat != "file" or "TESTS)" in recipe, stage


def test_directories_with_a_suite_of_their_own_are_stages() -> None:
    makefile = (gate.ROOT / "Makefile").read_text()
    others = makefile.split("\nOTHERS := ")[1].splitlines()[0].split()
    assert set(others) == set(gate.SUITES) - {"test"}
    for suite in others:
        assert f"$(or $(TESTS),tests/{suite}) $(ARGS)" in makefile.split(f"\n{suite}:")[1]


def test_summary_lists_stages_and_failures_with_the_load_of_the_machine() -> None:
    flaky = {f"a.py::{number}": FAILED for number in range(gate.FLAKY_BUDGET + 1)}
    results = [
        Result(STAGE, seconds=600, passed=10, skipped=2, flaky=flaky),
        Result(Stage("long", "long", decides=False), "failed", defects={"b.py::x": FAILED}),
    ]
    lines = gate.summary(results)
    assert " ".join(lines[0].split()) == "stage ring result seconds passed failed flaky skipped"
    assert lines[1].split() == ["test", "gate", "passed", "600", "10", "0", "6", "2"]
    assert "FAILED b.py::x: TimeoutError, machine stalled 3.2 s, load 14.0" in lines
    assert "FLAKY a.py::0: TimeoutError, machine stalled 3.2 s, load 14.0" in lines
    assert lines[-1].startswith("FLAKY BUDGET EXCEEDED: 6 of 5")
    assert gate.closing_line(gate.deciding_counts(results)) == "10 passed, 0 failed, 2 skipped"


@pytest.mark.parametrize(("verdict", "failed"), [("failed", 1), ("stopped", 1), ("left out", 0)])
def test_stage_that_fails_without_a_test_counts(verdict: str, failed: int) -> None:
    result = Result(Stage("check", "check"), verdict)
    assert gate.deciding_counts([result])["failed"] == failed
    assert gate.is_red(result) == bool(failed)


SUITE = """
import subprocess
import pytest

def test_alone():
    raise ValueError("first line\\nsecond")

def test_skipped():
    pytest.skip("no tool")

@pytest.mark.xfail(reason="known")
def test_known():
    raise AssertionError
"""
WITH_PROCESS = SUITE + "\ndef test_process():\n    subprocess.run(['true'], check=True)\n"


def record_of(directory: Path, *options: str, **files: str) -> tuple[Record, Path]:
    """Run tests with the plug-ins, and return their record."""
    for name, text in files.items():
        (directory / f"test_{name}.py").write_text(text)
    path = directory / "run.jsonl"
    search_path = f"{TESTS}:{SEARCH_PATH}"
    env = {**os.environ, "PYTHONPATH": search_path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ["-p", "xdist.plugin", "-p", "_hypothesis_pytestplugin", "-p", "conftest"]
    names = [f"test_{name}.py" for name in files]
    subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, f"--record={path}", *options, *names],
        cwd=directory, env=env, check=False, capture_output=True,
    )  # fmt: skip
    return gate.read_record(path), path


@pytest.mark.parametrize("workers", ["0", "2"])
def test_record_has_outcomes_and_whether_a_file_uses_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.delenv("CI", raising=False)
    record, _ = record_of(tmp_path, "-n", workers, unit=SUITE, process=WITH_PROCESS)
    assert record.complete
    outcomes = {test: item.outcome for test, item in record.outcomes.items()}
    assert outcomes == {
        "test_unit.py::test_alone": "failed",
        "test_unit.py::test_skipped": "skipped",
        "test_unit.py::test_known": "skipped",
        "test_process.py::test_alone": "failed",
        "test_process.py::test_skipped": "skipped",
        "test_process.py::test_known": "skipped",
        "test_process.py::test_process": "passed",
    }
    assert record.outcomes["test_unit.py::test_alone"].message == "ValueError: first line"
    assert [*record.repeatable()] == ["test_process.py::test_alone"]


def test_record_has_files_that_cannot_be_collected(tmp_path: Path) -> None:
    record, _ = record_of(tmp_path, broken="import nothing_like_it\n")
    assert record.outcomes["test_broken.py"].outcome == "failed"
    assert not record.complete


def test_skip_fails_in_ci_unless_its_reason_is_permitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    permitted = SUITE.replace("no tool", f"kubectl 1.20 {required_tools.PERMITTED[0]}")
    marked = SUITE.replace("def test_skip", "@pytest.mark.trace_module\ndef test_skip")
    record, _ = record_of(tmp_path, unit=SUITE, permitted=permitted, marked=marked)
    assert record.outcomes["test_unit.py::test_skipped"] == Outcome(
        "failed",
        "skipped in CI: no tool",
        load=record.outcomes["test_unit.py::test_skipped"].load,
        stall_seconds=record.outcomes["test_unit.py::test_skipped"].stall_seconds,
    )
    assert record.outcomes["test_permitted.py::test_skipped"].outcome == "skipped"
    assert record.outcomes["test_marked.py::test_skipped"].outcome == "skipped"
    assert record.outcomes["test_unit.py::test_known"].outcome == "skipped"


def test_record_of_a_killed_run_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text(json.dumps({"test": "a.py::x", "outcome": "failed"}) + '\n{"test": "a.py::')
    record = gate.read_record(path)
    assert ([*record.failures()], record.complete) == (["a.py::x"], False)


def test_stall_clock_reports_the_longest_stall_since_a_time() -> None:
    clock = StallClock()
    clock._stalls.extend([(10.0, 5.0), (20.0, 1.0), (30.0, 2.0)])
    assert clock.longest_seconds(15.0) >= 2.0


def test_repeated_runs_count_the_stages_that_decide() -> None:
    check, test, evidence = gate.STAGES[1], gate.STAGES[2], gate.STAGES[-1]
    results = [
        Result(check),
        Result(test, passed=7, defects={"a.py::bad": FAILED}, flaky={"a.py::once": FAILED}),
        Result(evidence, verdict="failed", passed=5, defects={"b.py::x gate y": FAILED}),
    ]
    counts = gate.deciding_counts(results)
    assert counts == {"passed": 7, "failed": 1, "flaky": 1, "skipped": 0}
    row = gate_runs.row(3, counts, 61.0, busy=True, green=False)
    assert row.split() == ["3", "yes", "red", "61", "7", "1", "1"]
    assert len(row) == len(gate_runs.HEADER)
