"""An API server of the embedded kind, and a running installation with its tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.inprocess import Server
from fakes.installation import Installation
from fakes.installation_fixtures import backends, client, installation, options
from fakes.tenants import Tenant, tenant_with
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State

__all__ = ["backends", "client", "installation", "options"]


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    result = Server(State(tmp_path / "state"))
    async with result.running():
        yield result


@pytest.fixture(params=["edit", "admin"])
async def tenant(
    request: pytest.FixtureRequest, installation: Installation, client: kube.Client
) -> AsyncIterator[Tenant]:
    async with tenant_with(request.param, "default", installation, client) as result:
        yield result
