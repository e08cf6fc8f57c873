"""When which part of a Pod's log was written, as the node notes it beside the log."""

from __future__ import annotations

import bisect
import re
import time
from datetime import UTC, datetime
from pathlib import Path

INDEX = "log.index"
"""Lines of a time (seconds since 1970) and the log's length then, of which each is longer."""

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class LogTimes:
    """The times of one log; what is noted later is read when it is asked for."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._index = log.with_name(INDEX)
        self._read = 0
        self._moments: list[float] = []
        self._lengths: list[int] = []

    def line_at(self, moment: float) -> int:
        """Give where the first line begins that was not whole at a time."""
        self._follow()
        count = bisect.bisect_right(self._moments, moment)
        return self._line_start(self._lengths[count - 1]) if count else 0

    def written(self, place: int) -> float:
        """Give when the byte at ``place`` was written; now, if the node has not noted it yet."""
        if not self._lengths or place >= self._lengths[-1]:
            self._follow()
        count = bisect.bisect_right(self._lengths, place)
        return self._moments[count] if count < len(self._moments) else time.time()

    def _follow(self) -> None:
        try:
            with self._index.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        # The last line may be half written.
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            moment, _, length = line.partition(b" ")
            try:
                entry = float(moment), int(length)
            except ValueError:
                continue
            self._moments.append(entry[0])
            self._lengths.append(entry[1])

    def _line_start(self, place: int) -> int:
        """Give where the line begins that ``place`` is in; a line may be written in pieces."""
        with self._log.open("rb") as file:
            begin = max(0, place - 64 * 1024)
            file.seek(begin)
            found = file.read(place - begin).rfind(b"\n")
        return begin + found + 1


class TimestampWriter:
    """Puts its time in front of each line of a log that is read from ``place`` on."""

    def __init__(self, times: LogTimes, place: int) -> None:
        self._times, self._place = times, place
        self._begins = True

    def stamp(self, data: bytes) -> bytes:
        """Give the next part of the log, stamped; it may end within a line."""
        found = []
        for line in _LINE.findall(data):
            if self._begins:
                found.append(_written(self._times.written(self._place)))
            found.append(line)
            self._place += len(line)
            self._begins = line.endswith(b"\n")
        return b"".join(found)


def _written(moment: float) -> bytes:
    """Write a time as a kubelet does, in nanoseconds, of which the node knows a thousandth."""
    whole = datetime.fromtimestamp(moment, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{whole.microsecond // 1000:03d}000000Z ".encode()
