"""The documented move from Gardener, in a whole `gatehouse up`: its objects and its commands."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from cryptography import x509

from fakes.authority import Authority
from fakes.documentation import blocks
from fakes.installation import apply
from fakes.kinds import resource_of
from fakes.patience import until
from gatehouse.kube import client as kube

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not shutil.which("curl"), reason="needs curl"),
]

PAGE = "docs/tasks/migrate-from-gardener.md"
NAMESPACE = "shoot--foo--bar"


def backend(port: int) -> list[dict[str, Any]]:
    """Return the objects of a control plane that exist before the move."""
    ports = [{"name": "https", "port": 443, "protocol": "TCP"}]
    meta = {"name": "kube-apiserver", "namespace": NAMESPACE}
    labels = {"kubernetes.io/service-name": "kube-apiserver"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**meta, "labels": labels},
            "addressType": "IPv4",
            "ports": [{**ports[0], "port": port}],
            "endpoints": [{"addresses": ["127.0.0.1"]}],
        },
    ]


async def programmed(client: kube.Client, kind: str, namespace: str, name: str) -> dict[str, Any]:
    """Wait until an object is programmed. Return its status."""

    async def status() -> Any:
        current = (await client.get(resource_of(kind), name, namespace)).get("status", {})
        conditions = {
            condition["type"]: condition["status"] for condition in current.get("conditions", ())
        }
        return current if conditions.get("Programmed") == "True" else None

    result: dict[str, Any] = await until(status)
    return result


@pytest.fixture(scope="module")
def gateway_class() -> str:
    return "gatehouse-envoy"


@pytest.fixture
async def server() -> AsyncIterator[int]:
    """Run an HTTPS server in place of a kube-apiserver."""

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.34.3"})

    app = web.Application()
    app.router.add_get("/version", version)
    runner = web.AppRunner(app)
    await runner.setup()
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        context = authority.server("bar", x509.DNSName("api.bar.foo.example.com"))
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        yield runner.addresses[0][1]
        await runner.cleanup()


async def test_documented_objects_and_commands_work(client: kube.Client, server: int) -> None:
    await apply(client, backend(server))
    for block in blocks(PAGE, "yaml"):
        await apply(client, list(yaml.safe_load_all(block.text)))
    await programmed(client, "HostedAPIServer", NAMESPACE, "bar")
    status = await programmed(client, "Gateway", "edge", "apis")
    first, *commands = blocks(PAGE, "console")[0].commands
    assert first.startswith("address=$(kubectl get gateway apis -n edge ")
    assert len(commands) == 2
    address = status["addresses"][0]["value"]
    for command in commands:
        process = await asyncio.create_subprocess_shell(
            f"address={address}; {command}", stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert b"v1.34.3" in output, command
    # The tunnel does not depend on the destination that the client verifies, only on the header.
    other = commands[1].replace("shoot--foo--bar", "shoot--foo--baz")
    process = await asyncio.create_subprocess_shell(
        f"address={address}; {other}", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert (process.returncode, output) == (56, b"")
