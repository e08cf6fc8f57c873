"""One running `gatehouse up` per file of tests."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes import kube_estate
from fakes.installation import Installation
from fakes.installation_fixtures import (
    backends,
    client,
    installation,
    lasting_installation,
    shared_installation,
)
from fakes.policy_traffic import http
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = [
    "backends",
    "client",
    "http",
    "installation",
    "lasting_installation",
    "shared_installation",
]


@pytest.fixture(scope="module")
def gateway_class() -> str:
    """The class of the Gateway; modules that try several say which, and have one each."""
    return "gatehouse-nginx"


@pytest.fixture(scope="module")
def options(gateway_class: str) -> tuple[str, ...]:
    """Options of `gatehouse up`, of which each class has one; modules override this."""
    return ()


@pytest.fixture(scope="module")
def clusters() -> Iterator[kube_estate.Estate]:
    with (
        tempfile.TemporaryDirectory(prefix="ghe-") as directory,
        kube_estate.running(Path(directory)) as started,
    ):
        yield started


@pytest.fixture
async def estate(
    clusters: kube_estate.Estate, installation: Installation, client: kube.Client
) -> AsyncIterator[kube_estate.Estate]:
    """Yield clusters of kube-apiservers behind a gateway."""
    try:
        await client.get(resources.GATEWAYS, "apis", "default")
    except kube.NotFound:
        for cluster in clusters.clusters.values():
            await asyncio.to_thread(cluster.prepare)
        await kube_estate.put_in_front(clusters, installation, client)
    gateway = await client.get(resources.GATEWAYS, "apis", "default")
    clusters.address = gateway["status"]["addresses"][0]["value"]
    async with kube_estate.http_proxy_to(clusters.address) as clusters.proxy:
        yield clusters


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show what the installation said when one of its tests fails."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    result = getattr(item, "funcargs", {}).get("installation")
    if report.failed and isinstance(result, Installation):
        for path in sorted(result.state.rglob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-40:]
            report.sections.append((str(path.relative_to(result.state)), "\n".join(lines)))
