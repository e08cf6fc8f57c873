"""Fixtures: a running API server, and an administrator's client for it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fakes.inprocess import Server
from gatehouse.kube import client as kube
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


@pytest.fixture
async def server(tmp_path: Path, started_once: Path) -> AsyncIterator[Server]:
    shutil.copytree(started_once, tmp_path / "state")
    api_server = Server(State(tmp_path / "state"))
    async with api_server.running():
        yield api_server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[kube.Client]:
    async with server.client() as result:
        yield result
