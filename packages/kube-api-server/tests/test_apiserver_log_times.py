"""Timestamps of Pod log lines."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kube_api_server.http.log_timestamps import LogTimes, TimestampWriter


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three lines, the second of which was written in two parts."""
    (tmp_path / "log").write_bytes(b"one\ntwo\nthree\n")
    (tmp_path / "log.index").write_text("100.000 4\n101.000 6\n102.500 8\n103.000 14\n")
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("moment", "place"),
    [(99.0, 0), (100.0, 4), (100.9, 4), (101.5, 4), (102.5, 8), (103.0, 14), (1e12, 14)],
)
def test_line_at_time_is_start_of_a_line(log: Path, moment: float, place: int) -> None:
    assert LogTimes(log).line_at(moment) == place


def test_timestamps_are_independent_of_read_boundaries(log: Path) -> None:
    whole = TimestampWriter(LogTimes(log), 0).stamp(log.read_bytes())
    assert whole.splitlines() == [
        b"1970-01-01T00:01:40.000000000Z one",
        b"1970-01-01T00:01:41.000000000Z two",
        b"1970-01-01T00:01:43.000000000Z three",
    ]
    pieces = TimestampWriter(LogTimes(log), 0)
    assert b"".join(pieces.stamp(bytes([byte])) for byte in log.read_bytes()) == whole


def test_timestamp_of_unindexed_bytes_is_now_until_indexed(log: Path) -> None:
    times = LogTimes(log)
    assert times.written_at(13) == 103.0
    begun = time.time()
    assert begun <= times.written_at(14) <= time.time()
    with log.with_name("log.index").open("a") as file:
        file.write("104.000 20\n105.0")
    assert times.written_at(14) == 104.0


def test_log_without_index_is_returned_completely(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\n")
    assert LogTimes(tmp_path / "log").line_at(100.0) == 0
