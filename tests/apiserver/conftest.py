"""Fixtures: a running API server, and an administrator's client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.inprocess import Server
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    api_server = Server(State(tmp_path / "state"))
    async with api_server.running():
        yield api_server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[kube.Client]:
    async with server.client() as result:
        yield result
