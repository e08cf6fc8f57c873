"""Fixtures of tests that change what an API server serves: each has one, for every kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.kubectls import Kubectl, binaries
from fakes.process import ApiServer

BINARIES: list[str | None] = [*binaries()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    result = ApiServer(tmp_path / "s")
    result.start()
    yield result
    result.stop()


@pytest.fixture(params=BINARIES or [None], ids=str)
def kubectl(request: pytest.FixtureRequest, server: ApiServer, tmp_path: Path) -> Kubectl:
    if request.param is None:
        pytest.skip("no kubectl on this machine")
    return Kubectl(request.param, server.kubeconfig, tmp_path, "default")
