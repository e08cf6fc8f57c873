"""Parser of GEP-2257 durations: ``1h30m``, ``500ms``; at most four parts. No I/O."""

from __future__ import annotations

import re

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_WHOLE = re.compile(r"([0-9]{1,5}(h|m|s|ms)){1,4}")
_PART = re.compile(r"([0-9]+)(ms|h|m|s)")


def parse_duration(text: str) -> float | None:
    """Return a duration in seconds; None if ``text`` is invalid."""
    if not _WHOLE.fullmatch(text):
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
