"""An API server with one kind of custom resources."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from fakes.inprocess import Server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@contextlib.asynccontextmanager
async def with_kind(
    server: Server, group: str, kind: str, properties: dict[str, Any]
) -> AsyncIterator[aiohttp.ClientSession]:
    """Create the CRD of a kind outside namespaces; yield a session of the administrator."""
    plural = f"{kind.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"plural": plural, "kind": kind}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [version]}
    crd = {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}
    async with server.raw() as http:
        async with http.post(CRDS, json=crd) as response:
            assert response.status == 201, await response.text()
        yield http
