"""Fixture: a running API server of the embedded kind."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.inprocess import Server
from gatehouse.standalone.state_directory import State


@pytest.fixture(scope="session")
def started_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a server that has stopped: a first start takes twice as long."""
    state = State(tmp_path_factory.mktemp("apiserver") / "state")

    async def start() -> None:
        async with Server(state).running():
            pass

    with ThreadPoolExecutor() as pool:
        pool.submit(asyncio.run, start()).result()
    return state.directory


@pytest_asyncio.fixture
async def server(tmp_path: Path, started_once: Path) -> AsyncIterator[Server]:
    shutil.copytree(started_once, tmp_path / "state")
    api_server = Server(State(tmp_path / "state"))
    async with api_server.running():
        yield api_server
