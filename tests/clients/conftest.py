"""One API server for the whole suite, and every kubectl that this machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.kubectls import Kubectl, binaries
from fakes.process import ApiServer


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("api") / "s")
    server.start()
    yield server
    server.stop()


BINARIES: list[str | None] = [*binaries()]


@pytest.fixture(params=BINARIES or [None], ids=lambda path: str(path).strip("/").replace("/", "-"))
def kubectl(
    request: pytest.FixtureRequest, apiserver: ApiServer, tmp_path: Path
) -> Iterator[Kubectl]:
    if request.param is None:
        pytest.skip("no kubectl on this machine")
    namespace = f"t{os.urandom(4).hex()}"
    result = Kubectl(request.param, apiserver.kubeconfig, tmp_path, namespace)
    result("create", "namespace", namespace)
    yield result
    result("delete", "namespace", namespace, "--wait=false")
