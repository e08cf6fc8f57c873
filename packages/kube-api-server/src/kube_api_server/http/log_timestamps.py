"""Timestamps of Pod log lines, from the index that the node writes beside each log."""

from __future__ import annotations

import bisect
import re
import time
from datetime import UTC, datetime
from pathlib import Path

_INDEX = "log.index"
"""Name of the index. Each line has a time in seconds since 1970 and the length of the log then.
Lengths increase.
"""

_LINE_PATTERN = re.compile(rb"[^\n]*\n|[^\n]+")


class LogTimes:
    """Timestamps of one log. New index lines are read when needed."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._index = log.with_name(_INDEX)
        self._read = 0
        self._timestamps: list[float] = []
        self._lengths: list[int] = []

    def line_at(self, timestamp: float) -> int:
        """Return the offset of the first line that was incomplete at `timestamp`."""
        self._follow()
        count = bisect.bisect_right(self._timestamps, timestamp)
        return self._line_start(self._lengths[count - 1]) if count else 0

    def written_at(self, offset: int) -> float:
        """Return the time at which the byte at `offset` was written; now, if not in the index."""
        if not self._lengths or offset >= self._lengths[-1]:
            self._follow()
        count = bisect.bisect_right(self._lengths, offset)
        return self._timestamps[count] if count < len(self._timestamps) else time.time()

    def _follow(self) -> None:
        try:
            with self._index.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        # The last line may be incomplete.
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            timestamp, _, length = line.partition(b" ")
            try:
                entry = float(timestamp), int(length)
            except ValueError:
                continue
            self._timestamps.append(entry[0])
            self._lengths.append(entry[1])

    def _line_start(self, offset: int) -> int:
        """Return the offset of the line that contains `offset`. A line may be written in several
        parts.
        """
        with self._log.open("rb") as file:
            begin = max(0, offset - 64 * 1024)
            file.seek(begin)
            newline = file.read(offset - begin).rfind(b"\n")
        return begin + newline + 1


class TimestampWriter:
    """Prefixes each line of a log with its timestamp, starting at offset `offset`."""

    def __init__(self, times: LogTimes, offset: int) -> None:
        self._times, self._offset = times, offset
        self._at_line_start = True

    def stamp(self, data: bytes) -> bytes:
        """Return the next part of the log with timestamps. It may end within a line."""
        chunks = []
        for line in _LINE_PATTERN.findall(data):
            if self._at_line_start:
                chunks.append(_format_timestamp(self._times.written_at(self._offset)))
            chunks.append(line)
            self._offset += len(line)
            self._at_line_start = line.endswith(b"\n")
        return b"".join(chunks)


def _format_timestamp(timestamp: float) -> bytes:
    """Format a time as the kubelet does, in nanoseconds. The node records milliseconds."""
    whole = datetime.fromtimestamp(timestamp, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{whole.microsecond // 1000:03d}000000Z ".encode()
