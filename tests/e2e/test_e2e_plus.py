"""Objects to traffic by way of what passes for NGINX Plus: endpoints by its API, no reload."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from fakes.installation import REVISED, Installation, address, apply, condition, get, hello
from fakes.nginx_plus import Fault
from fakes.nginx_plus_agent import FakeProgram
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = pytest.mark.process

SLICE = {"endpoints": [{"addresses": [REVISED[0]]}]}


@pytest.fixture(scope="module")
def plus() -> Iterator[FakeProgram]:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield FakeProgram(Path(directory))


@pytest.fixture(scope="module")
def options(plus: FakeProgram) -> tuple[str, ...]:
    return ("--nginx", str(plus.program))


def generation(installation: Installation) -> str:
    """Return the name of the served configuration revision; each reload creates another one."""
    (current,) = installation.state.glob("node/pods/*/volumes/*/current")
    return current.readlink().name


async def test_endpoint_change_is_served_without_reload(
    installation: Installation, plus: FakeProgram, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)

    async def answers(name: str) -> bool:
        return await get(where) == (200, name)

    await until(lambda: answers("app"))
    assert plus.calls() == []
    before = generation(installation)
    await client.patch(resources.ENDPOINT_SLICES, "app-1", SLICE, "default")
    await until(lambda: answers("revised"))

    async def changed() -> bool:
        return [call.method for call in plus.calls()] == ["POST", "DELETE"]

    await until(changed)
    assert generation(installation) == before

    # What NGINX Plus had is what it begins with.
    dead = installation.nginx()
    os.kill(dead, signal.SIGKILL)

    async def again() -> bool:
        with contextlib.suppress(OSError, ValueError, aiohttp.ClientError):
            return installation.nginx() != dead and await answers("revised")
        return False

    await until(again)

    # A failing API is reported, and causes neither a reload nor an end of retries.
    plus.fail(Fault("POST", status=500, text="no memory", times=-1))
    back = {"endpoints": [{"addresses": [hello()[2]["endpoints"][0]["addresses"][0]]}]}
    before = generation(installation)
    await client.patch(resources.ENDPOINT_SLICES, "app-1", back, "default")

    async def refused() -> str:
        result = await condition(client, "Gateway", "web", "Programmed")
        return result["message"] if result and result["status"] == "False" else ""

    assert "500 InternalError: no memory" in await until(refused)
    assert await answers("revised")
    plus.fail()
    await until(lambda: answers("app"))
    assert generation(installation) == before
