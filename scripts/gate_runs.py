"""Run the gate again and again on one commit, some runs beside busy processes, and print a table.

Usage: gate_runs.py [--runs 10] [--busy 3]

The last runs are the busy ones: three processes compute beside them. Each run adds its line to
`.cache/gate-runs/<commit>/table.txt`, with its output beside it, so that what was run stays if the
rest is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / ".cache" / "gate" / "counts.json"
BUSY_PROCESSES = 3
HEADER = f"{'run':>4}{'busy':>6}{'result':>8}{'seconds':>9}{'passed':>8}{'failed':>8}{'flaky':>7}"


def row(number: int, counts: Mapping[str, int], seconds: float, *, busy: bool, green: bool) -> str:
    """Return the line of a run. ``counts``: those of `scripts/gate.py`; empty if it died."""
    numbers = [counts.get(name, "-") for name in ("passed", "failed", "flaky")]
    return (
        f"{number:4}{'yes' if busy else 'no':>6}{'green' if green else 'red':>8}{seconds:9.0f}"
        "{:>8}{:>8}{:>7}".format(*numbers)
    )


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run processes that compute all the time."""
    endless = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(endless) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> int:
    """Run the gate. Return 1 if a run was red."""
    parser = argparse.ArgumentParser(description="Run the gate several times on one commit.")
    parser.add_argument("--runs", type=int, default=10, help="number of runs (default: 10)")
    parser.add_argument(
        "--busy", type=int, default=3, help="how many of them are busy (default: 3)"
    )
    arguments = parser.parse_args()
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(
        git, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    directory = ROOT / ".cache" / "gate-runs" / commit
    directory.mkdir(parents=True, exist_ok=True)
    table = directory / "table.txt"
    table.write_text(HEADER + "\n", encoding="utf-8")
    print(HEADER, flush=True)
    red = False
    for number in range(1, arguments.runs + 1):
        busy = number > arguments.runs - arguments.busy
        start = time.monotonic()
        COUNTS.unlink(missing_ok=True)
        with (
            (directory / f"{number:02}.log").open("wb") as log,
            busy_processes(BUSY_PROCESSES if busy else 0),
        ):
            gate = [sys.executable, "scripts/gate.py", "gate"]
            status = subprocess.call(gate, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        counts = json.loads(COUNTS.read_bytes()) if COUNTS.exists() else {}
        seconds = time.monotonic() - start
        line = row(number, counts, seconds, busy=busy, green=status == 0)
        red |= status != 0
        with table.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)
    return int(red)


if __name__ == "__main__":
    sys.exit(main())
