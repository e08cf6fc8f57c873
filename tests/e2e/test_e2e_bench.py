"""The benchmark still runs: a small round of it, with no wrong answer."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.process
def test_route_propagation_runs_and_no_answer_is_wrong(tmp_path: Path) -> None:
    pool = f"127.{random.randint(20, 80)}.{random.randint(0, 255)}.0/24"
    command = (sys.executable, str(ROOT / "bench" / "route_propagation.py"))
    done = subprocess.run(
        (*command, "--routes", "5", "--samples", "3", "--pool", pool, "--out", str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads((tmp_path / "route_propagation.json").read_text())
    assert (row["samples"], row["wrong_answers"]) == (3, 0)
    assert all(row["rss_mb"].values())
    assert (tmp_path / "route_propagation.png").stat().st_size > 1000
