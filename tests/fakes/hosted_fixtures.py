"""Hosted kube-apiservers as a whole, over machines: the fixtures.

Real embedded API servers, `gatehouse up` with Envoy, `gatehouse node-proxy`, HAProxy and NGINX.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.hosted_objects import ONE, TWO, gateway, programmed, served
from fakes.hosting import POOL, Cluster, Estate, NodeProxy
from fakes.installation import apply
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
    hosting_estate = Estate()
    # This process is on the hosting machine from here on.
    with hosting_estate.hosting.entered():
        yield hosting_estate
    hosting_estate.close()


@pytest.fixture(scope="module")
def options(estate: Estate) -> tuple[str, ...]:
    """Options of `gatehouse up`, which starts on the hosting machine."""
    return ("--address-pool", POOL)


@pytest.fixture(scope="module")
def clusters(estate: Estate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    directory = tmp_path_factory.mktemp("clusters")
    hosted_clusters = [Cluster(directory, "one", *ONE), Cluster(directory, "two", *TWO)]
    with contextlib.ExitStack() as stack:
        for hosted_cluster in hosted_clusters:
            stack.callback(hosted_cluster.stop)
            hosted_cluster.start(hosted_cluster.directory / "log")
        yield hosted_clusters


@pytest.fixture
def node_proxy(estate: Estate, tmp_path: Path) -> Iterator[NodeProxy]:
    proxy = NodeProxy(estate.node, tmp_path)
    yield proxy
    proxy.stop()


@pytest.fixture
async def address(client: kube.Client, clusters: list[Cluster]) -> str:
    """The address of a Gateway before two clusters."""
    await apply(client, [gateway()])
    for cluster in clusters:
        await apply(client, served(cluster))
    return await programmed(client, "apis", *clusters)
