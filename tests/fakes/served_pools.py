"""InferencePools of an installation: their objects, model servers and requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from fakes.installation import HOST_NET, PORT, apply
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

POOLS = resources.INFERENCE_POOLS
PICKER_HOST = f"{HOST_NET}.246"
MODEL_PORT = 9300
PODS = {"a": f"{HOST_NET}.240", "b": f"{HOST_NET}.241", "c": f"{HOST_NET}.242"}
OTHER = f"{HOST_NET}.243"
"""Address of a Pod that belongs to no pool."""


def endpoint(pod: str) -> str:
    return f"{PODS[pod]}:{MODEL_PORT}"


@pytest.fixture
async def models() -> AsyncIterator[None]:
    servers = {(host, MODEL_PORT): name for name, host in PODS.items()}
    async with echo.serve_echo({**servers, (OTHER, MODEL_PORT): "other"}):
        yield


def pod(name: str, host: str, app: str, *, ready: bool = True) -> dict[str, Any]:
    return {
        **resources.PODS.type_meta,
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"containers": [{"name": "model", "image": "model"}]},
        "status": {
            "podIP": host,
            "podIPs": [{"ip": host}],
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


async def run_pod(client: kube.Client, *arguments: Any, **more: Any) -> None:
    manifest = pod(*arguments, **more)
    name = manifest["metadata"]["name"]
    await apply(client, [manifest])
    await client.patch(
        resources.PODS, name, {"status": manifest["status"]}, "default", subresource="status"
    )


def pool(name: str, app: str, picker: dict[str, Any] | None) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"app": app}},
        "targetPorts": [{"number": MODEL_PORT}],
    }
    if picker is not None:
        spec["endpointPickerRef"] = {"port": {"number": 9002}, **picker}
    return {
        **POOLS.type_meta,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def picker_service(name: str, port: int, **more: str) -> list[dict[str, Any]]:
    labels = {"kubernetes.io/service-name": name}
    return [
        {
            **resources.SERVICES.type_meta,
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"ports": [{"name": "grpc", "port": 9002, "targetPort": port, **more}]},
        },
        {
            **resources.ENDPOINT_SLICES.type_meta,
            "metadata": {"name": f"{name}-1", "namespace": "default", "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "grpc", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [PICKER_HOST]}],
        },
    ]


def route(name: str, path: str, *pools: tuple[str, int], **rule: Any) -> dict[str, Any]:
    backends = [
        {"group": POOLS.group, "kind": POOLS.kind, "name": name, "weight": weight}
        for name, weight in pools
    ]
    return {
        **resources.HTTP_ROUTES.type_meta,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parentRefs": [{"name": "web"}],
            "rules": [{"matches": [{"path": {"value": path}}], "backendRefs": backends, **rule}],
        },
    }


async def services(client: kube.Client) -> list[dict[str, Any]]:
    """Return the Services that the controller wrote for pools."""
    listed = (await client.list(resources.SERVICES, "default")).items
    return [
        dict(item)
        for item in listed
        for owner in item["metadata"].get("ownerReferences") or ()
        if owner["kind"] == POOLS.kind
    ]


async def ask(
    where: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"{}"
) -> tuple[int, str]:
    """Return the status of a POST request, and the model server that answered."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{where}:{PORT}{path}", data=body, headers=headers) as response,
    ):
        await response.read()
        return response.status, response.headers.get("X-Backend", "")


async def answers(
    where: str, path: str, expected: tuple[int, str], headers: dict[str, str] | None = None
) -> None:
    """Wait for an answer."""
    got: Any = None

    async def is_so() -> bool:
        nonlocal got
        got = await ask(where, path, headers)
        return bool(got == expected)

    await until(is_so, lambda: f"{path}: {got}, expected {expected}")
