"""Fixtures of the reviewer's tests."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes.reviewer_process import ReviewerProcess, Upstream, running
from gatehouse.sidecars.reviewer import config


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: pytest's own can be too long for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        (Path(directory) / "gatehouse").mkdir()
        (Path(directory) / config.REVIEWER_FILE).write_bytes(config.CONTENT)
        yield Path(directory)


@pytest.fixture
async def upstream(tmp_path: Path) -> AsyncIterator[Upstream]:
    """A cluster that only says what a test has it say."""
    server = Upstream(tmp_path / config.UPSTREAM, None)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def reviewer(tmp_path: Path) -> AsyncIterator[ReviewerProcess]:
    async with running(tmp_path) as result:
        await result.serving()
        yield result
