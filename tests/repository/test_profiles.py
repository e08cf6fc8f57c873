"""Property tests draw the same examples in every run, unless a run asks for others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.source_trees import SEARCH_PATH

TESTS = Path(__file__).parents[1]

DRAWING = """
from hypothesis import given, settings, strategies as st

{decorator}
@given(st.integers(0, 10**9))
def test_draws(number):
    with open("drawn", "a") as file:
        print(number, file=file)
    assert {assertion}
"""

ORDERED = """
import pytest
from hypothesis import given, strategies as st

def run(name):
    with open("drawn", "a") as file:
        print(name, file=file)

@pytest.mark.parametrize("name", range(8))
@given(st.just(1))
def test_property(name, number):
    run(name)

def test_other():
    run("other")
"""


def run(
    directory: Path,
    profile: str = "",
    *options: str,
    text: str = DRAWING,
    decorator: str = "",
    assertion: str = "True",
) -> tuple[str, str]:
    """Run property tests in their own process. Return what they wrote and the report."""
    text = text.format(decorator=decorator, assertion=assertion)
    (directory / "test_drawing.py").write_text(text)
    drawn = directory / "drawn"
    drawn.unlink(missing_ok=True)
    environ = {k: v for k, v in os.environ.items() if k != "HYPOTHESIS_PROFILE"}
    environ |= {"PYTHONPATH": f"{TESTS}:{SEARCH_PATH}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environ |= {"HYPOTHESIS_PROFILE": profile} if profile else {}
    plugins = ["-p", "_hypothesis_pytestplugin", "-p", "conftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins]
    done = subprocess.run(
        [*command, *options, "test_drawing.py"],
        cwd=directory, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return (drawn.read_text() if drawn.exists() else ""), done.stdout + done.stderr


def test_fixed_profile_draws_the_same_examples_in_every_run(tmp_path: Path) -> None:
    first, report = run(tmp_path)
    assert "hypothesis: profile fixed" in report
    assert len(first.splitlines()) >= 100
    assert run(tmp_path)[0] == first


def test_fixed_profile_has_at_most_a_hundred_examples(tmp_path: Path) -> None:
    many = "@settings(max_examples=300)"
    fixed, everything = (run(tmp_path, name, decorator=many)[0] for name in ("", "random"))
    assert len(fixed.splitlines()) < 150
    assert len(everything.splitlines()) >= 300


def test_failure_report_names_reproduction(tmp_path: Path) -> None:
    _, report = run(tmp_path, assertion="number < 5")
    assert "1 failed" in report
    assert "@reproduce_failure(" in report
    assert not (tmp_path / ".hypothesis" / "examples").exists()


@pytest.mark.parametrize("ci", ["", "1"])
def test_random_runs_differ_and_report_their_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    monkeypatch.setenv("CI", ci) if ci else monkeypatch.delenv("CI", raising=False)
    first, report = run(tmp_path, "random")
    assert run(tmp_path, "random")[0] != first
    seed = re.search(r"--hypothesis-seed=\d+", report)
    assert seed is not None
    assert run(tmp_path, "random", seed[0])[0] == first


def test_random_runs_have_the_order_of_their_seed(tmp_path: Path) -> None:
    inorder = [*map(str, range(8)), "other"]
    assert run(tmp_path, text=ORDERED)[0].split() == inorder
    orders = [
        run(tmp_path, "random", f"--hypothesis-seed={seed}", text=ORDERED)[0].split()
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1]
    assert inorder not in orders
    assert orders[1] != orders[2]
    assert all(sorted(order) == inorder and order[-1] == "other" for order in orders)


def test_random_runs_have_their_files_in_the_order_of_their_seed(tmp_path: Path) -> None:
    files = [f"test_{number}.py" for number in range(8)]
    for name in files:
        text = f"def test():\n    with open('drawn', 'a') as file: print('{name}', file=file)\n"
        (tmp_path / name).write_text(text)
    assert run(tmp_path, "", *files)[0].split()[:8] == files
    orders = [
        [line for line in run(tmp_path, "random", seed, *files)[0].split() if line in files]
        for seed in ("--hypothesis-seed=1", "--hypothesis-seed=1", "--hypothesis-seed=2")
    ]
    assert orders[0] == orders[1]
    assert len({*map(tuple, orders), tuple(files)}) == 3
    assert all(sorted(order) == files for order in orders)


def test_workers_have_the_same_random_order(tmp_path: Path) -> None:
    drawn, report = run(tmp_path, "random", "-p", "xdist", "-n", "2", text=ORDERED)
    assert sorted(drawn.split()) == [*map(str, range(8)), "other"], report


@pytest.mark.parametrize("override", ["derandomize=False", "database=InMemoryExampleDatabase()"])
def test_test_with_profile_override_is_rejected(tmp_path: Path, override: str) -> None:
    text = f"from hypothesis.database import InMemoryExampleDatabase\n@settings({override})"
    drawn, report = run(tmp_path, decorator=text)
    assert drawn == ""
    assert "test_draws: @settings override the Hypothesis profile" in report
