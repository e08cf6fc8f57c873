"""Run the stages of CI, each whatever the stages before it gave, and print one summary.

Usage: gate.py [gate | evidence | all]

The gate is what decides the exit status. The evidence takes more time and more chance: it is run
after the gate, within a limit, and printed. A failing test that uses processes or servers runs
again in a new process, with its whole file and nothing beside it, up to twice. One that passes then
is flaky: it is listed, and decides nothing. One that fails three times is a defect, and so is any
failure of a test that uses neither. A failure of a test with the mark `timing` is never a defect.
CONTRIBUTING.md says what to do with a flaky test.

Only the preparation and the stages that say so reach package registries.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".cache" / "gate"
MAX_REPEATS = 2
MAX_REPEATED_TESTS = 15
"""Number of first failures above which no test runs again: that many are no chance."""
FLAKY_BUDGET = 5
EVIDENCE_SECONDS = 33 * 60
"""Limit of the evidence: the whole run takes less than 60 minutes."""
RUN_SECONDS = 80 * 60
"""Limit of a whole run: CI ends it after 90 minutes without a summary."""
_END_SECONDS = 30
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux: processes without a parent become children of this one."""
OFFLINE = {"GOPROXY": "off", "PIP_NO_INDEX": "1", "npm_config_offline": "true"}
"""Environment in which package clients use no registry."""


@dataclass(frozen=True)
class Stage:
    """A target of the Makefile, and how its result is read."""

    name: str
    target: str
    variables: Mapping[str, str] = field(default_factory=dict)
    decides: bool = True
    """The stage is part of the gate; otherwise it is evidence."""
    options: tuple[str, ...] = ()
    """Options of the command that runs the tests."""
    repeat: str = ""
    """Unit in which a failed test runs again: `file`, or `test` by its name. Empty: no record."""
    network: bool = False
    inputs: tuple[str, ...] = ()
    """Paths on which the result depends: the stage is left out if no commit of the last day changed
    one. Empty: every path."""


DAILY_TURNS = (
    Stage("faults", "faults", decides=False, options=("-m", "not smoke"), repeat="file"),
    Stage("long", "long", {"CHANGE_SECONDS": "120"}, decides=False, repeat="file"),
    Stage("cluster", "cluster-evidence", decides=False, repeat="file", network=True),
)
"""Stages that the limit of the evidence does not hold together: another is the first each day."""

SUITES = ("test", "e2e", "security", "clients", "charts")

PROXIES = ("nginx", "envoy")

STAGES = (
    Stage("prepare", "prepare", network=True),
    Stage("check", "check"),
    *(Stage(suite, suite, repeat="file") for suite in SUITES),
    *(
        Stage(
            f"conformance {proxy}",
            "conformance",
            {"CLASS": f"gatehouse-{proxy}"},
            # The documents have the report of `make conformance`.
            options=(f"--report=.cache/conformance/{proxy}.yaml",),
            repeat="test",
        )
        for proxy in PROXIES
    ),
    Stage("one fault of each kind", "smoke-faults", repeat="file"),
    # The shortest first, so that they are reached within the limit of the evidence.
    # Advisories come from the package registry. Packages that it does not know are skipped.
    Stage("advisories", "audit", decides=False, network=True),
    Stage(
        "images",
        "images-test",
        decides=False,
        repeat="file",
        network=True,
        inputs=(
            "images/",
            "requirements/",
            "pyproject.toml",
            "packages/kube-base/",
            "hatch_build.py",
            "charts/",
        ),
    ),
    *(
        Stage(
            f"inference {proxy}",
            "conformance",
            {"CLASS": f"gatehouse-{proxy}", "SUITE": "inference"},
            decides=False,
            options=(f"--report=.cache/conformance/inference-{proxy}.yaml",),
            repeat="test",
            network=True,
        )
        for proxy in PROXIES
    ),
    Stage("peers", "peers-available", decides=False, repeat="file"),
    *DAILY_TURNS,
)


@dataclass(frozen=True)
class Outcome:
    """Result of a test in one run, as :mod:`fakes.run_record` writes it."""

    outcome: str
    message: str = ""
    outside: bool = False
    timing: bool = False
    stall_seconds: float = 0.0
    load: float = 0.0


@dataclass
class Result:
    """Result of a stage."""

    stage: Stage
    verdict: str = "passed"
    """One of `passed`, `failed`, `stopped` at its limit, and `left out`."""
    seconds: float = 0.0
    passed: int = 0
    skipped: int = 0
    defects: dict[str, Outcome] = field(default_factory=dict)
    flaky: dict[str, Outcome] = field(default_factory=dict)


@dataclass
class Record:
    """Outcomes of a run, as :mod:`fakes.run_record` writes them."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    complete: bool = False
    """The run came to its end, and only the outcomes of its tests decide its exit status."""

    def failures(self) -> dict[str, Outcome]:
        """Return the tests that failed."""
        return {test: item for test, item in self.outcomes.items() if item.outcome == "failed"}

    def repeatable(self) -> dict[str, Outcome]:
        """Return the failures that may be chance: those in files that use processes or servers.

        Empty if there are too many.
        """
        failures = self.failures()
        if len(failures) > MAX_REPEATED_TESTS:
            return {}
        outside = {file_of(test) for test, item in self.outcomes.items() if item.outside}
        return {test: item for test, item in failures.items() if file_of(test) in outside}


def read_record(path: Path) -> Record:
    """Read a record. A failure of a test overrides its success."""
    record = Record()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):  # the last line of a run that was killed
            entry = json.loads(line)
            record.complete = entry.get("complete", record.complete)
            test = entry.pop("test", "")
            old = record.outcomes.get(test)
            if test and (old is None or old.outcome != "failed"):
                names = Outcome.__dataclass_fields__.keys() & entry.keys()
                record.outcomes[test] = Outcome(**{name: entry[name] for name in names})
    return record


def file_of(test: str) -> str:
    """Return the path of a test's file."""
    return test.partition("::")[0]


class Runner:
    """Execution of stages, one after the other."""

    def __init__(self, results: Path = RESULTS, make: Sequence[str] = ("make",)) -> None:
        self._results = results
        self._make = tuple(make)
        self._runs = 0
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir(parents=True)

    def run(self, stage: Stage, deadline: float) -> Result:
        """Run a stage until a time of the monotonic clock, and its failed tests again."""
        result = Result(stage)
        start = time.monotonic()
        if stage.inputs and not changed(stage.inputs):
            result.verdict = "left out"
            return result
        status, record = self._run_target(stage, deadline)
        counts = collections.Counter(item.outcome for item in record.outcomes.values())
        failures = record.failures()
        result.flaky = self._repeat(stage, record.repeatable(), deadline)
        result.passed, result.skipped = counts["passed"] + len(result.flaky), counts["skipped"]
        result.flaky |= {test: item for test, item in failures.items() if item.timing}
        result.defects = {test: item for test, item in failures.items() if test not in result.flaky}
        if status is None:
            result.verdict = "stopped"
        elif status and not (record.complete and failures and not result.defects):
            result.verdict = "failed"
        result.seconds = time.monotonic() - start
        return result

    def _repeat(
        self, stage: Stage, failures: Mapping[str, Outcome], deadline: float
    ) -> dict[str, Outcome]:
        """Run failed tests again, up to twice. Return those that passed once."""
        pending = dict(failures)
        flaky: dict[str, Outcome] = {}
        for _ in range(MAX_REPEATS):
            for unit in dict.fromkeys(map(file_of, pending)):
                _, record = self._run_target(stage, deadline, unit)
                for test, item in record.outcomes.items():
                    if item.outcome == "passed" and test in pending:
                        flaky[test] = pending.pop(test)
        return flaky

    def _run_target(
        self, stage: Stage, deadline: float, unit: str = ""
    ) -> tuple[int | None, Record]:
        """Run a target of the Makefile, or a unit of its tests.

        Return the exit status, which is None at the deadline, and the record.
        """
        variables = dict(stage.variables)
        self._runs += 1
        path = self._results / f"{self._runs:02}-{stage.target}.jsonl"
        options = [*stage.options, *([f"--record={path}"] if stage.repeat else [])]
        if unit and stage.repeat == "file":
            variables |= {"TESTS": unit, "WORKERS": "0"}
        elif unit:
            options.append(f"--run={unit}")
        if options:
            variables["ARGS"] = shlex.join(options)
        environment = {**os.environ, **ENVIRONMENT, **({} if stage.network else OFFLINE)}
        command = [*self._make, stage.target, *(f"{k}={v}" for k, v in variables.items())]
        print(f"\n=== {stage.name}: {shlex.join(command)}", flush=True)
        limit = deadline - time.monotonic()
        status = run_limited(command, environment, limit) if limit > 0 else None
        return status, read_record(path)


def run_limited(
    command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> int | None:
    """Run a command and end all that it leaves. Return its exit status, or None at the limit."""
    status: int | None = None
    before = children()
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        print(f"=== stopped after {seconds:.0f} s", flush=True)
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
                break
    while orphans := children() - before:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
    return status


def children() -> set[int]:
    """Return the child processes of this one, among them those whose parent ended."""
    path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return set(map(int, path.read_text().split())) if path.exists() else set()


def stages(day: int, *, decide: bool) -> list[Stage]:
    """Return the stages of the gate, or those of the evidence on a day, counted from any day."""
    chosen = [stage for stage in STAGES if stage.decides is decide and stage not in DAILY_TURNS]
    first = day % len(DAILY_TURNS)
    return chosen if decide else [*chosen, *DAILY_TURNS[first:], *DAILY_TURNS[:first]]


def changed(prefixes: Iterable[str]) -> bool:
    """Return whether a commit of the last day changed a path with one of the prefixes."""
    done = subprocess.run(
        ["git", "log", "--since=1 day ago", "--name-only", "--format="],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode != 0 or any(
        path.startswith(tuple(prefixes)) for path in done.stdout.splitlines()
    )


def describe(test: str, item: Outcome) -> str:
    """Return a line on a failure: its test and message, and how busy the machine was."""
    return (
        f"{test}: {item.message}, machine stalled {item.stall_seconds:.1f} s, load {item.load:.1f}"
    )


def summary(results: Sequence[Result]) -> list[str]:
    """Return the lines of the summary."""
    lines = [
        f"{'stage':24}{'ring':10}{'result':10}{'seconds':>8}{'passed':>8}{'failed':>8}"
        f"{'flaky':>8}{'skipped':>8}"
    ]
    for result in results:
        ring = "gate" if result.stage.decides else "evidence"
        counts = (result.passed, len(result.defects), len(result.flaky), result.skipped)
        lines.append(
            f"{result.stage.name:24}{ring:10}{result.verdict:10}{result.seconds:8.0f}"
            + "".join(f"{count:8}" for count in counts)
        )
    for result in results:
        lines += [f"FAILED {describe(*entry)}" for entry in result.defects.items()]
    flaky = {test: item for result in results for test, item in result.flaky.items()}
    lines += [f"FLAKY {describe(*entry)}" for entry in flaky.items()]
    if len(flaky) > FLAKY_BUDGET:
        lines.append(f"FLAKY BUDGET EXCEEDED: {len(flaky)} of {FLAKY_BUDGET}, repair them first")
    return lines


def deciding_counts(results: Sequence[Result]) -> dict[str, int]:
    """Return the numbers of the tests that decide; a stage that failed without a test counts."""
    deciding = [result for result in results if result.stage.decides]
    return {
        "passed": sum(result.passed for result in deciding),
        "failed": sum(len(result.defects) or bool(is_red(result)) for result in deciding),
        "flaky": sum(len(result.flaky) for result in deciding),
        "skipped": sum(result.skipped for result in deciding),
    }


def closing_line(counts: Mapping[str, int]) -> str:
    """Return the counts in the form of a test runner."""
    return "{passed} passed, {failed} failed, {skipped} skipped".format(**counts)


def is_red(result: Result) -> bool:
    """Return whether a stage of the gate makes the run fail."""
    return result.stage.decides and result.verdict not in ("passed", "left out")


def _environment() -> dict[str, str]:
    """Return where the preparation puts programs that the machine does not have."""
    cache = ROOT / ".cache"
    go = cache / "go" / "bin"
    return {
        "PATH": f"{os.environ.get('PATH', os.defpath)}:{go}",
        "KUBECTLS": str(cache / "kubernetes-client" / "usr" / "bin" / "kubectl"),
        "GATEHOUSE_TEST_NGINX": str(cache / "nginx" / "usr" / "sbin" / "nginx"),
    }


ENVIRONMENT = _environment()


def main() -> int:
    """Run the chosen stages. Return 1 if the gate is red."""
    parser = argparse.ArgumentParser(description="Run the stages of CI and print one summary.")
    parser.add_argument("ring", nargs="?", default="all", choices=("gate", "evidence", "all"))
    ring = parser.parse_args().ring
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    runner = Runner()
    results = []
    end = time.monotonic() + RUN_SECONDS
    for decides, seconds in ((True, RUN_SECONDS), (False, EVIDENCE_SECONDS)):
        if ring in ("all", "gate" if decides else "evidence"):
            deadline = min(end, time.monotonic() + seconds)
            today = datetime.now(UTC).toordinal()
            results += [runner.run(stage, deadline) for stage in stages(today, decide=decides)]
    lines = summary(results)
    (RESULTS / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    counts = deciding_counts(results)
    (RESULTS / "counts.json").write_text(json.dumps(counts), encoding="utf-8")
    print("\n" + "\n".join(lines) + "\n\n" + closing_line(counts), flush=True)
    return int(any(map(is_red, results)))


if __name__ == "__main__":
    sys.exit(main())
