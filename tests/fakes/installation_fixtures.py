"""Fixtures of tests that use one running `gatehouse up` in each module, or with other modules."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fakes.installation import BACKEND, REVISED, Installation
from fakes.kinds import known_resources, resource_of
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

NAMESPACE = "default"
"""Namespace of the objects of tests with a shared installation."""
UNCLEARED = {resources.EVENTS.kind, resources.ENDPOINT_SLICES.kind, resources.LEASES.kind}
"""Kinds of objects that controllers write, and not tests."""


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    """Options of `gatehouse up`; modules override this."""
    return ()


@pytest.fixture(scope="module")
def installation(options: tuple[str, ...]) -> Iterator[Installation]:
    with running_installation(*options) as result:
        yield result


@pytest.fixture(scope="session")
def lasting_installation() -> Iterator[Installation]:
    with running_installation() as result:
        yield result


@pytest.fixture(scope="module")
def shared_installation(
    lasting_installation: Installation, gateway_class: str
) -> Iterator[Installation]:
    """Yield an installation without options that other modules use, too.

    For modules that stop and change nothing of it, and read no totals. Their objects are deleted.
    """
    with ThreadPoolExecutor() as pool:
        before = pool.submit(asyncio.run, _objects(lasting_installation)).result()
        yield lasting_installation
        pool.submit(asyncio.run, _delete_others(lasting_installation, before)).result()


async def _objects(installation: Installation) -> set[tuple[str, str]]:
    """Return kind and name of each object of tests."""
    async with installation.client() as client:
        return await _listed(client)


async def _listed(client: kube.Client) -> set[tuple[str, str]]:
    names = set()
    for kind, resource in known_resources().items():
        if not resource.namespaced or kind in UNCLEARED:
            continue
        with contextlib.suppress(kube.NotFound):
            for item in (await client.list(resource, NAMESPACE)).items:
                if not item["metadata"].get("ownerReferences"):
                    names.add((kind, item["metadata"]["name"]))
    return names


async def _delete_others(installation: Installation, permanent: set[tuple[str, str]]) -> None:
    """Delete the other objects, and wait for the end of their data planes."""
    async with installation.client() as client:

        async def absent() -> bool:
            others = await _listed(client) - permanent
            for kind, name in others:
                with contextlib.suppress(kube.NotFound):
                    await client.delete(resource_of(kind), name, NAMESPACE)
            return not others

        async def ended() -> bool:
            return not any(installation.state.glob("node/pods/*"))

        await until(absent)
        await until(ended)


@contextlib.contextmanager
def running_installation(
    *options: str, environment: dict[str, str] | None = None
) -> Iterator[Installation]:
    """Run an installation. ``environment``: None for the tests' own."""
    # Short paths, since those of Unix sockets are limited.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        result = Installation(Path(directory), *options)
        result.environment = environment
        result.start()
        yield result
        assert result.process is not None
        if result.process.poll() is None:
            result.stop()


@pytest.fixture
async def client(installation: Installation) -> AsyncIterator[kube.Client]:
    """Return a client of a cluster administrator."""
    async with installation.client() as result:
        yield result


@pytest.fixture
async def backends() -> AsyncIterator[None]:
    async with echo.serve_echo({BACKEND: "app", REVISED: "revised"}):
        yield
