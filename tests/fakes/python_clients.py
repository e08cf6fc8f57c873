"""Kubernetes clients of other projects that close their connections, which some do not offer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import kr8s.asyncio
from kubernetes import client, config


@contextlib.contextmanager
def official_client(kubeconfig: Path) -> Iterator[client.ApiClient]:
    """Yield a client of the Kubernetes project."""
    api = config.new_client_from_config(str(kubeconfig))
    try:
        yield api
    finally:
        api.close()
        api.rest_client.pool_manager.clear()


@contextlib.asynccontextmanager
async def kr8s_client(kubeconfig: Path, **options: str) -> AsyncIterator[Any]:
    """Yield a client of kr8s, which keeps its clients for later calls."""
    api = await kr8s.asyncio.api(kubeconfig=str(kubeconfig), **options)
    try:
        yield api
    finally:
        if api._session is not None:
            await api._session.aclose()
            api._session = None
