"""One API server for the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.process import ApiServer

CACHE = Path(__file__).parents[2] / ".cache"
"""Cache directory of programs that are built for these tests."""


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("api") / "s")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def namespace() -> str:
    return f"t{os.urandom(4).hex()}"


@pytest.fixture(scope="session")
def cache() -> Path:
    CACHE.mkdir(exist_ok=True)
    return CACHE
