"""Tests wait for what must come with one limit, which `GATEHOUSE_TIME_FACTOR` scales."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import patience

TESTS = Path(__file__).parents[1]

LIMITED = """
import pytest
from fakes import patience

@pytest.fixture
def limits(request):
    own = request.node.get_closest_marker("timeout")
    return own.args[0] if own else request.config._env_timeout, patience.SECONDS

def test_default(limits):
    assert limits == (90, 180)

@pytest.mark.timeout(100)
def test_own(limits):
    assert limits == (150, 180)
"""


def test_time_factor_scales_limits_of_tests_and_of_waiting(tmp_path: Path) -> None:
    (tmp_path / "test_limited.py").write_text(LIMITED)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 60\n")
    environ = {"PYTHONPATH": str(TESTS), "GATEHOUSE_TIME_FACTOR": "1.5"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider"],
        cwd=tmp_path, env=os.environ | environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout


async def test_waiting_returns_the_value_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter(["", 0, "three", "four"])

    async def following() -> object:
        return next(values)

    assert await patience.until(following) == "three"
    assert await patience.until(lambda: next(values)) == "four"
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    with pytest.raises(TimeoutError):
        await patience.until(lambda: False)


def test_waiting_without_an_event_loop_tells_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter(["", 0, "three"])
    assert patience.wait_until(lambda: next(values)) == "three"
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    with pytest.raises(AssertionError, match="only this"):
        patience.wait_until(lambda: False, lambda: "only this")
