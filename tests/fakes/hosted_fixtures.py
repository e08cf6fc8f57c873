"""Hosted kube-apiservers as a whole, over machines: the fixtures.

Real embedded API servers, `gatehouse up` with Envoy, `gatehouse node-proxy`, HAProxy and NGINX.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.hosted_objects import ONE, TWO, gateway, programmed, served
from fakes.hosting import POOL, Cluster, Estate, NodeProxy
from fakes.installation import Installation, apply
from fakes.machines import CUT, POSSIBLE
from gatehouse.kube import client as kube

MARKS = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not POSSIBLE, reason=CUT),
    pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl"),
]

PROXIES = [
    "nginx",
    pytest.param(
        "haproxy", marks=pytest.mark.skipif(not shutil.which("haproxy"), reason="no haproxy")
    ),
]


@pytest.fixture(scope="module")
def estate() -> Iterator[Estate]:
    made = Estate()
    # This process is on the hosting machine from here on.
    with made.hosting.entered():
        yield made
    made.close()


@pytest.fixture(scope="module")
def installation(estate: Estate) -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        made = Installation(Path(directory), "--address-pool", POOL)
        made.start()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def clusters(estate: Estate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    directory = tmp_path_factory.mktemp("clusters")
    made = [Cluster(directory, "one", *ONE), Cluster(directory, "two", *TWO)]
    for each in made:
        each.start(each.directory / "log")
    yield made
    for each in made:
        each.stop()


@pytest.fixture
def node_proxy(estate: Estate, tmp_path: Path) -> Iterator[NodeProxy]:
    proxy = NodeProxy(estate.node, tmp_path)
    yield proxy
    proxy.stop()


@pytest.fixture
async def address(client: kube.Client, clusters: list[Cluster]) -> str:
    """The address of a Gateway before two clusters."""
    await apply(client, [gateway()])
    for each in clusters:
        await apply(client, served(each))
    return await programmed(client, "apis", *clusters)
