"""Limits of waiting on machines that are much slower than real time, such as emulators.

A limit that is scaled says when something counts as failed that a healthy machine does much sooner.
Promises to users, options that they set, and intervals are not scaled.
"""

from __future__ import annotations

import math
import os
import sys

TIME_FACTOR_VARIABLE = "GATEHOUSE_TIME_FACTOR"
"""Environment variable with the factor, for tests and for emulators. Default: 1."""


def parse_time_factor(text: str) -> float:
    """Return the factor that a text denotes. Raises ValueError unless it is a positive number."""
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < math.inf:
        raise ValueError(f"must be a positive number, not {text!r}")
    return factor


try:
    TIME_FACTOR = parse_time_factor(os.environ.get(TIME_FACTOR_VARIABLE) or "1")
except ValueError as error:
    # Constants of modules depend on it, so that no command exists yet that could report it.
    sys.exit(f"gatehouse: {TIME_FACTOR_VARIABLE}: {error}")


def scaled(seconds: float) -> float:
    """Return a time limit in seconds, multiplied by the factor of this process."""
    return seconds * TIME_FACTOR
