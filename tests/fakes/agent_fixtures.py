"""Fixtures of agent tests, for import by a ``conftest``."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes.agent_control_plane import ControlPlane
from fakes.envoy_running import EnvoyControlPlane


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: pytest's own can be too long for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield Path(directory)


@pytest.fixture
async def control_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    directory = tmp_path / "control-plane"
    directory.mkdir()
    plane = ControlPlane(directory)
    await plane.start()
    yield plane
    await plane.server.stop(0.1)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[EnvoyControlPlane]:
    directory = tmp_path / "control-plane"
    directory.mkdir()
    plane_started = EnvoyControlPlane(directory)
    await plane_started.start()
    yield plane_started
    await plane_started.server.stop(0.1)
