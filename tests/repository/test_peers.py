"""Tests with programs of other projects are marked, and the report has exactly these tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import compatibility
import pytest

from fakes import peers
from fakes.peer_differences import PEER_DIFFERENCES
from fakes.peer_report import SHARED_FIXTURES, PeerResult, function_id, read_report

TESTS = compatibility.ROOT / "tests"


def collected() -> set[str]:
    """Return the tests with the marker, without parameters."""
    # Only these files can have the marker.
    words = ("pytest.mark.peers", *(f"{fixture}:" for fixture in SHARED_FIXTURES))
    files = [
        str(path)
        for path in TESTS.rglob("test_*.py")
        if any(word in path.read_text("utf-8") for word in words)
    ]
    options = ("--collect-only", "-q", "-m", "peers and not cluster", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(
        command, cwd=compatibility.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {function_id(line) for line in done.stdout.splitlines() if "::" in line}


def test_report_has_exactly_the_marked_tests() -> None:
    reported = {result.test for result in read_report(compatibility.REPORT)}
    assert reported == collected(), "run `make peers`"


def test_every_reported_result_names_a_program_and_passed() -> None:
    for result in read_report(compatibility.REPORT):
        assert result.program in peers.PROGRAMS, f"{result.test} used no program"
        assert (result.failed, result.passed > 0) == (0, True), result.test


def test_accepted_differences_name_programs() -> None:
    titles = {program.title for program in peers.PROGRAMS.values()}
    assert {difference.program for difference in PEER_DIFFERENCES} <= titles


@pytest.fixture
def unmarked() -> Iterator[None]:
    peers.begin(peers.RunningTest("test_without_marker", marked=False))
    yield
    peers.end()


def test_test_without_the_peer_marker_gets_no_program(unmarked: None) -> None:
    with pytest.raises(AssertionError, match="mark it with"):
        peers.binary("nlk-0.3", "nlk")


def test_failed_cases_are_on_the_page() -> None:
    result = PeerResult("nlk-0.3", "test_a", "2026-01-01", passed=2, failed=1)
    assert compatibility.outcome([result]) == "1 of 3 cases failed"
