"""Fixtures of tests that use one running `gatehouse up` in each module."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes.installation import BACKEND, REVISED, Installation
from gatehouse.kube import client as kube
from gatehouse.standalone import echo


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    """Options of `gatehouse up`; modules override this."""
    return ()


@pytest.fixture(scope="module")
def installation(options: tuple[str, ...]) -> Iterator[Installation]:
    with running_installation(*options) as result:
        yield result


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
