"""Fixtures of fault tests: agents, and a running installation."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.agent_fixtures import control_plane, tmp_path
from fakes.installation import Installation

__all__ = ["control_plane", "tmp_path"]


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        running = Installation(Path(directory))
        running.start()
        yield running
        running.stop()
