"""An API server of the embedded kind, and a running installation with its tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fakes.agent_attack import attacked_plane
from fakes.installation import Installation
from fakes.installation_fixtures import backends, client, installation, options
from fakes.server_fixtures import server
from fakes.tenants import Tenant, tenant_with
from gatehouse.kube import client as kube

__all__ = ["attacked_plane", "backends", "client", "installation", "options", "server"]


@pytest.fixture(params=["edit", "admin"])
async def tenant(
    request: pytest.FixtureRequest, installation: Installation, client: kube.Client
) -> AsyncIterator[Tenant]:
    async with tenant_with(request.param, "default", installation, client) as result:
        yield result
