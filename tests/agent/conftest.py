"""What the agent's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agent_control_plane import ControlPlane


@pytest.fixture
async def control_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    directory = tmp_path / "control-plane"
    directory.mkdir()
    plane = ControlPlane(directory)
    await plane.start()
    yield plane
    await plane.server.stop(0.1)
