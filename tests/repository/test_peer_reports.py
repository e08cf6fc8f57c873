"""Reports of runs with programs of other projects: strict, compared, and by several workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.source_trees import SEARCH_PATH

TESTS = Path(__file__).parents[1]
TEXT = """
import pytest
from fakes import peers

@pytest.mark.peers
@pytest.mark.parametrize("number", [1, 2])
def test_source(number):
    assert peers.source_files("ngf-v2.6.7", "a.yaml") == {}

@pytest.mark.peers
def test_program():
    peers.binary("nlk-0.3", "nlk")

@pytest.mark.peers
@pytest.mark.xfail(reason="known")
def test_known():
    raise AssertionError

def test_other():
    pytest.skip("without a program")
"""
SOURCE = {"program": "ngf-v2.6.7", "test": "test_some.py::test_source", "passed": 2, "failed": 0}
PROGRAM = {"program": "nlk-0.3", "test": "test_some.py::test_program", "date": "2026-01-01"}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory of programs that lacks a program, and has a source."""
    path = tmp_path / "programs"
    (path / "bin").mkdir(parents=True)
    (path / "src").mkdir()
    archive = path / "src" / "nginx-gateway-fabric-v2.6.7.tar.xz"
    subprocess.run(["tar", "-cJf", str(archive), "--files-from=/dev/null"], check=True)
    return path


def run(directory: Path, programs: Path, *options: str) -> tuple[int, str]:
    """Run the tests. Return the exit status and the output."""
    (directory / "test_some.py").write_text(TEXT)
    search_path = f"{TESTS}:{SEARCH_PATH}"
    environ = os.environ | {"PYTHONPATH": search_path, "GATEHOUSE_PEERS": str(programs), "CI": ""}
    environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    plugins = ["-p", "xdist.plugin", "-p", "_hypothesis_pytestplugin", "-p", "conftest"]
    command = [sys.executable, "-m", "pytest", "-ra", *plugins, "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *options, "test_some.py"],
        cwd=directory, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_strict_run_fails_skipped_test_with_marker(tmp_path: Path, programs: Path) -> None:
    assert run(tmp_path, programs)[0] == 0
    code, output = run(tmp_path, programs, "--peers-strict")
    assert (code, "1 failed, 2 passed, 1 skipped, 1 xfailed" in output) == (1, True), output
    assert "skipped: no nlk-0.3: set GATEHOUSE_PEERS" in output


def test_strict_run_without_directory_skips(tmp_path: Path) -> None:
    code, output = run(tmp_path, tmp_path / "none", "--peers-strict", "--peers-compare", "old")
    assert (code, "4 skipped, 1 xfailed" in output) == (0, True), output
    assert "were not run: no directory of programs" in output


@pytest.mark.parametrize("workers", ["0", "2"])
def test_report_has_results_of_all_workers(tmp_path: Path, programs: Path, workers: str) -> None:
    gone = {**PROGRAM, "test": "test_some.py::test_gone"}
    report = tmp_path / "report.json"
    report.write_text(json.dumps([PROGRAM, gone]))
    code, output = run(tmp_path, programs, "-n", workers, "--peers-report", str(report))
    assert code == 0, output
    results = json.loads(report.read_text())
    # The skipped test keeps its entry. The deleted test loses it.
    source, program = results
    assert SOURCE.items() <= source.items()
    assert PROGRAM.items() <= program.items()


def test_compared_run_names_missing_and_additional_tests(tmp_path: Path, programs: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps([PROGRAM]))
    code, output = run(tmp_path, programs, "--peers-compare", str(report))
    assert code == 1
    assert "test_some.py::test_program: not run with nlk-0.3" in output
    assert "test_some.py::test_source: run with ngf-v2.6.7, but not in" in output
    assert json.loads(report.read_text()) == [PROGRAM]
