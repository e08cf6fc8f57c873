"""Commands in Pods: the client, kubectl, the handlers of k8s.io/apiserver, and the fake of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes import inprocess, kube_streaming
from fakes.kubectls import Kubectl, binaries, newest
from fakes.pod_exec import ClusterWithPods
from gatehouse.apis.resources import NAMESPACES, PODS
from gatehouse.kube import client as kube
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(300)]

LINE = "0123456789abcdef"
LARGE = ("sh", "-c", f"yes {LINE} | head -n 200000")
MIXED = ("sh", "-c", "echo out; echo errors >&2; exit 3")
ABSENT = ("no-such-command",)
QUOTED = ("printf", "%s", "a b&command=c\n'")


class Cluster:
    """A server with the Pod `team/p`, and its two clients."""

    def __init__(self, client: kube.Client, kubectl: Kubectl) -> None:
        self.client = client
        self.kubectl = kubectl

    async def run(self, *command: str) -> tuple[int, str, str]:
        result = await self.client.exec_in_pod("team", "p", "c", command)
        return result.exit_code, result.stdout.decode(), result.stderr.decode()


@contextlib.asynccontextmanager
async def real(directory: Path) -> AsyncIterator[Cluster]:
    """Run the handlers of k8s.io/apiserver."""
    state = State(directory / "state")
    state.directory.mkdir()
    state.pki.ensure()
    pair = state.pki.leaf(pki.APISERVER)
    async with kube_streaming.serving(pair, directory / "streams.log") as url:
        state.write_kubeconfigs(url)
        configuration = Configuration(url, StaticToken(), ca=state.pki.ca().cert.read_bytes())
        async with kube.Client(configuration) as client:
            yield Cluster(client, Kubectl(newest(), state.kubeconfig, directory, "team"))


@contextlib.asynccontextmanager
async def fake(directory: Path) -> AsyncIterator[Cluster]:
    """Run the fake."""
    server = inprocess.Server(State(directory / "state"))
    cluster = ClusterWithPods(server)
    cluster.variables["p"] = {}
    async with server.running(), cluster.running():
        kubeconfig = cluster.kubeconfig(directory / "kubeconfig")
        async with kube.Client.from_kubeconfig(kubeconfig) as client:
            await client.create(NAMESPACES, {"metadata": {"name": "team"}})
            pod = {"metadata": {"namespace": "team", "name": "p"}}
            spec = {"containers": [{"name": "c", "image": "i"}]}
            await client.create(PODS, {**pod, "spec": spec})
            yield Cluster(client, Kubectl(newest(), kubeconfig, directory, "team"))


SERVERS = {"k8s.io/apiserver": real, "fake": fake}


@pytest.fixture(params=SERVERS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    if not binaries():
        pytest.skip("no kubectl on this machine")
    async with SERVERS[request.param](tmp_path) as result:
        yield result


async def test_output_errors_and_exit_status_arrive(cluster: Cluster) -> None:
    assert await cluster.run(*MIXED) == (3, "out\n", "errors\n")
    assert await cluster.run(*QUOTED) == (0, QUOTED[-1], "")


async def test_large_output_arrives_completely(cluster: Cluster) -> None:
    code, out, _ = await cluster.run(*LARGE)
    expected = f"{LINE}\n" * 200_000
    assert code == 0
    assert hashlib.sha256(out.encode()).digest() == hashlib.sha256(expected.encode()).digest()


async def test_absent_command_is_an_error_with_its_name(cluster: Cluster) -> None:
    with pytest.raises(kube.ApiError, match="no-such-command"):
        await cluster.run(*ABSENT)


async def test_kubectl_sees_the_same(cluster: Cluster) -> None:
    websockets = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "true"}

    async def kubectl(*command: str, ok: bool = True) -> str:
        run = cluster.kubectl if ok else cluster.kubectl.fails
        return await asyncio.to_thread(run, "exec", "p", "--", *command, **websockets)

    assert await kubectl(*QUOTED) == QUOTED[-1]
    refused = await kubectl(*MIXED, ok=False)
    assert {"out", "errors", "command terminated with exit code 3"} <= {*refused.splitlines()}
    assert "no-such-command" in await kubectl(*ABSENT, ok=False)
    assert len(await kubectl(*LARGE)) == 200_000 * (len(LINE) + 1)
