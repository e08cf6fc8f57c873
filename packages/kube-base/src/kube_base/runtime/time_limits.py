"""Limits of waiting on machines that are much slower than real time, such as emulators.

A limit that is scaled says when something counts as failed that a healthy machine does much sooner.
Promises to users, options that they set, and intervals are not scaled.
"""

from __future__ import annotations

import math
import os
import sys


def parse_time_factor(text: str) -> float:
    """Return the factor that a text denotes. Raises ValueError unless it is a positive number."""
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < math.inf:
        raise ValueError(f"must be a positive number, not {text!r}")
    return factor


class _TimeFactor:
    value = 1.0


def read_time_factor(program: str, variable: str) -> None:
    """Set the factor of this process to the value of an environment variable, if it is set.

    A program calls it before it imports modules with limits, which are constants. It ends the
    process if the value is invalid, because no command exists yet that could report it.
    """
    try:
        _TimeFactor.value = parse_time_factor(os.environ.get(variable) or "1")
    except ValueError as error:
        sys.exit(f"{program}: {variable}: {error}")


def time_factor() -> float:
    """Return the factor of this process."""
    return _TimeFactor.value


def scaled(seconds: float) -> float:
    """Return a time limit in seconds, multiplied by the factor of this process."""
    return seconds * _TimeFactor.value
