"""Loopback addresses of a test's own."""

from __future__ import annotations

import random

_RANDOM = random.SystemRandom()
"""Tests may seed the module's generator, which would then return one address in all processes."""


def loopback_network(first: int = 20, last: int = 250) -> str:
    """Return the first three numbers of a random loopback address, the second in a range."""
    return f"127.{_RANDOM.randint(first, last)}.{_RANDOM.randint(0, 255)}"
