"""Fixtures: a running API server, and an administrator's client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fakes.inprocess import Server
from fakes.server_fixtures import server
from gatehouse.kube import client as kube

__all__ = ["server"]


@pytest.fixture
async def client(server: Server) -> AsyncIterator[kube.Client]:
    async with server.client() as result:
        yield result
