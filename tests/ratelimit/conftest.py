"""Fixtures of the rate limit service's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.ratelimit_process import RateLimitProcess, Redis


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    server = Redis(tmp_path)
    server.start()
    yield server
    server.go_on()
    server.kill()


@pytest.fixture
def counter(redis: Redis, tmp_path: Path) -> Iterator[RateLimitProcess]:
    counts = RateLimitProcess(redis.url, tmp_path / "counter.log")
    counts.start()
    yield counts
    counts.kill()
