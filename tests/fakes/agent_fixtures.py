"""Fixtures of agent tests, for import by a ``conftest``."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes.agent_control_plane import ControlPlane
from fakes.envoy_agent import envoys
from fakes.envoy_running import EnvoyControlPlane


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: pytest's own can be too long for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield Path(directory)


@pytest.fixture
async def control_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(tmp_path / "control-plane") as plane:
        yield plane


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[EnvoyControlPlane]:
    async with EnvoyControlPlane(tmp_path / "control-plane") as plane_started:
        yield plane_started


@pytest.fixture
def no_envoy_is_left(tmp_path: Path) -> Iterator[None]:
    """Kill the Envoys that a test has left."""
    yield
    for pid in envoys(tmp_path):
        os.kill(pid, signal.SIGKILL)
