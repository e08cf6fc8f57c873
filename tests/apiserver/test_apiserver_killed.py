"""A killed API server: acknowledged writes survive, and watches are resumed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.inprocess import Server
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.kube.config import from_kubeconfig
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State

WRITERS = 4
WRITES_BEFORE_KILL = (20, 30, 40, 0)
"""Acknowledged writes after which each process of the server is killed; 0: it is only read."""


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


@pytest.mark.process
async def test_every_acknowledged_write_survives_kill_9(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    server = Server(state)
    chosen = state.addresses("127.0.0.1:0", "127.0.0.1:0")
    state.write_kubeconfigs(f"https://{chosen.api}")
    pair = state.pki.leaf(pki.APISERVER)
    command = (
        *(sys.executable, "-m", "gatehouse", "apiserver", "--storage", str(state.database)),
        *(
            "--bind-address",
            chosen.api,
            "--tls-cert-file",
            str(pair.cert),
            "--tls-private-key-file",
            str(pair.key),
        ),
        *(
            "--client-ca-file",
            str(state.pki.ca().cert),
            "--service-account-signing-key-file",
            str(state.pki.token_key),
        ),
    )
    acknowledged: list[str] = []
    for start, writes in enumerate(WRITES_BEFORE_KILL):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
        try:
            async with server.client() as client:
                await _until_answered(client)
                config_maps = await client.list(resources.CONFIG_MAPS, "default")
                assert set(acknowledged) <= {item["metadata"]["name"] for item in config_maps.items}
                if writes:
                    acknowledged += await _write_until_killed(client, process, f"c-{start}", writes)
        finally:
            process.kill()
            process.wait()


async def _write_until_killed(
    client: kube.Client, process: subprocess.Popen[bytes], prefix: str, count: int
) -> list[str]:
    """Kill the server when ``count`` writes are acknowledged. Return the names of these and later
    ones.

    The other writers' writes are in flight then.
    """
    acknowledged: list[str] = []

    async def write(writer: int) -> None:
        with contextlib.suppress(kube.Unavailable):
            for number in itertools.count():
                name = f"{prefix}-{writer}-{number}"
                await client.create(resources.CONFIG_MAPS, config_map(name))
                acknowledged.append(name)
                if len(acknowledged) == count:
                    process.kill()

    async with patience.limit():
        await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
    assert len(acknowledged) >= count
    return acknowledged


async def _until_answered(client: kube.Client) -> None:
    async with patience.limit():
        while True:
            with contextlib.suppress(kube.ApiError):
                await client.list(resources.NAMESPACES)
                return
            await patience.pause()


async def test_watches_resume_after_restart(tmp_path: Path) -> None:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client:
        start = (await client.list(resources.CONFIG_MAPS)).resource_version
        await client.create(resources.CONFIG_MAPS, config_map("before"))
    async with server.running():
        configuration = from_kubeconfig(server.state.kubeconfig)
        async with kube.Client(configuration) as client:
            await client.create(resources.CONFIG_MAPS, config_map("after"))
            names = []
            watch = client.watch(resources.CONFIG_MAPS, resource_version=start)
            async with aclosing(watch) as events:
                async for event in events:
                    names.append(event.object["metadata"]["name"])
                    if len(names) == 2:
                        break
    assert names == ["before", "after"]
