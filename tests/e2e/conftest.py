"""One running `gatehouse up` per file of tests."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes import kube_estate
from fakes.installation import BACKEND, REVISED, Installation
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import echo


@pytest.fixture(scope="module")
def gateway_class() -> str:
    """The class of the Gateway; modules that try several say which, and have one each."""
    return "gatehouse-nginx"


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    """Options of `gatehouse up`; modules override this."""
    return ()


@pytest.fixture(scope="module")
def installation(gateway_class: str, options: tuple[str, ...]) -> Iterator[Installation]:
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        made = Installation(Path(directory), *options)
        made.start()
        yield made
        assert made.process is not None
        if made.process.poll() is None:
            made.stop()


@pytest.fixture
async def client(installation: Installation) -> AsyncIterator[kube.Client]:
    result = await installation.client()
    yield result
    await result.__aexit__(None, None, None)


@pytest.fixture
async def backends() -> AsyncIterator[None]:
    async with echo.serve({BACKEND: "app", REVISED: "revised"}):
        yield


@pytest.fixture(scope="module")
def clusters() -> Iterator[kube_estate.Estate]:
    with (
        tempfile.TemporaryDirectory(prefix="ghe-") as directory,
        kube_estate.running(Path(directory)) as made,
    ):
        yield made


@pytest.fixture
async def estate(
    clusters: kube_estate.Estate, installation: Installation, client: kube.Client
) -> AsyncIterator[kube_estate.Estate]:
    """Yield clusters of kube-apiservers behind a gateway."""
    try:
        await client.get(resources.GATEWAYS, "apis", "default")
    except kube.NotFound:
        for each in clusters.clusters.values():
            await asyncio.to_thread(each.prepare)
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
