"""Fixture of an API server: `pytest_plugins = ["kube_api_server.testing.pytest_plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kube_api_server.extension import NO_EXTENSION, Extension
from kube_api_server.testing.local_server import LocalApiServer


@pytest.fixture(scope="session")
def kube_apiserver_extension() -> Extension:
    """CRDs, roles and checks of the server. A `conftest.py` may define it again."""
    return NO_EXTENSION


@pytest.fixture(scope="session")
def kube_apiserver(
    tmp_path_factory: pytest.TempPathFactory, kube_apiserver_extension: Extension
) -> Iterator[LocalApiServer]:
    """An API server for all tests of the run, with its kubeconfig."""
    directory = tmp_path_factory.mktemp("kube-apiserver")
    with LocalApiServer(directory, kube_apiserver_extension) as server:
        yield server
