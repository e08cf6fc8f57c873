"""An installation that machines outside meet: its fixtures."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.external_machines import Machine
from fakes.external_objects import join
from fakes.installation import Installation
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

MARKS = [pytest.mark.process, pytest.mark.long]

OUTSIDE = free_port()
"""Address of the control plane for machines."""


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    return ("--machine-address", f"127.0.0.1:{OUTSIDE}")


@pytest.fixture
def authority(installation: Installation) -> Path:
    return installation.state / "pki"


@pytest.fixture
def place() -> Iterator[Path]:
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield Path(directory)


@pytest.fixture
async def cluster(client: kube.Client) -> kube.Client:
    with contextlib.suppress(kube.AlreadyExists):
        await client.create(resources.NAMESPACES, {"metadata": {"name": "edge"}})
    for node in (await client.list(resources.NODES)).items:
        await client.delete(resources.NODES, node["metadata"]["name"])
    for item in (await client.list(resources.EXTERNAL_LOAD_BALANCERS)).items:
        await client.delete(resources.EXTERNAL_LOAD_BALANCERS, item["metadata"]["name"], "edge")
    with contextlib.suppress(kube.NotFound):
        await client.delete(resources.SERVICES, "app", "edge")
    await join(client, 1)
    return client


async def logged(machine: Machine, words: str) -> None:
    """Wait until its agent has said something."""

    async def check() -> bool:
        return words in machine.log.read_text()

    await until(check)
