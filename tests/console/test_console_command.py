"""`gatehouse console`: on a running installation, with the traffic and the versions of NGINX."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from fakes.console import logged_in, read
from fakes.installation import PORT, Installation, apply, hello
from fakes.installation_fixtures import backends, client, installation, options
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["backends", "client", "installation", "options"]
pytestmark = pytest.mark.process


class _Link:
    """The link that the command printed, as `logged_in` reads it."""

    def __init__(self, link: str) -> None:
        self.login_link = link
        self.port = int(link.split(":")[2].split("/")[0])


@contextlib.asynccontextmanager
async def command(installation: Installation) -> AsyncIterator[_Link]:
    """Run the command, and end it as Ctrl-C does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gatehouse", "console"),
        *("--kubeconfig", str(installation.kubeconfig), "--no-browser"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        printed = re.search(r"http://127\.0\.0\.1:\d+/console/login\?token=\S+", line)
        assert printed, line
        yield _Link(printed[0])
    finally:
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


async def test_command_shows_versions_and_traffic(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())

    async def address() -> str:
        gateways = (await client.list(resources.GATEWAYS)).items
        entries = [(item.get("status") or {}).get("addresses") for item in gateways]
        return str(entries[0][0]["value"]) if entries and entries[0] else ""

    host = await until(address)
    async with command(installation) as console, logged_in(console) as session:

        async def served() -> Any:
            planes = await read(session, "data-planes")
            return [plane for plane in planes if plane["confirmedVersion"] and plane["ready"]]

        assert len(await until(served)) == 1
        await read(session, "traffic")

        async def counted() -> Any:
            url = f"http://{host}:{PORT}/"
            async with aiohttp.ClientSession() as clients, clients.get(url) as response:
                await response.read()
            report = await read(session, "traffic")
            assert report["problems"] == []
            return [row for row in report["rows"] if row["requestsPerSecond"]]

        rows = await until(counted)
        assert rows[0]["name"].startswith("default/")
        topology = await read(session, "topology")
        pods = [item for item in topology["objects"] if item["kind"] == "Pod"]
        gateways = [item for item in topology["objects"] if item["kind"] == "Gateway"]
        names = {f"{item['namespace']}/{item['name']}" for item in gateways}
        assert {pod["gateway"] for pod in pods} == names
