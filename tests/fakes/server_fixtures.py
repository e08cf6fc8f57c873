"""Fixture: a running API server of the embedded kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from fakes.inprocess import Server
from gatehouse.standalone.state_directory import State


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    api_server = Server(State(tmp_path / "state"))
    async with api_server.running():
        yield api_server
