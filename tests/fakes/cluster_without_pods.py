"""A control plane without anything that runs Pods, and without a load balancer."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.inprocess import Server
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.controller import main as controller
from gatehouse.controller import options as controller_options
from gatehouse.kube import client as kube
from gatehouse.standalone import pki
from gatehouse.standalone.state_directory import State

SUFFIX = "gatehouse-nginx"
"""Suffix of the names of objects of an NGINX Gateway."""


class Cluster:
    """An API server and a controller; the test runs the Pods, and is the load balancer."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.port = free_port()
        self.ca = state.directory / "agents-ca.pem"
        self.ca.write_bytes(state.pki.ca().cert.read_bytes())

    @contextlib.asynccontextmanager
    async def controller(self, *, snippets: bool = False) -> AsyncIterator[None]:
        """Run the controller."""
        pair = self.state.pki.leaf(pki.CHANNEL)
        address = f"127.0.0.1:{self.port}"
        options = controller_options.ControllerOptions(
            kubeconfig=self.state.controller_kubeconfig,
            agent_bind=address,
            agent_advertise=address,
            tls_cert=pair.cert,
            tls_key=pair.key,
            ca=self.ca,
            snippets=snippets,
        )
        stop = asyncio.Event()
        task = asyncio.create_task(controller.run_controller(options, stop))
        try:
            yield
        finally:
            stop.set()
            await task

    def environment(self, directory: Path, name: str, token: str) -> dict[str, str]:
        """Return the environment of the agent of Pod ``name``."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "token").write_text(token)
        return {
            "NGINX_AGENT_COMMAND_SERVER_HOST": "127.0.0.1",
            "NGINX_AGENT_COMMAND_SERVER_PORT": str(self.port),
            "NGINX_AGENT_COMMAND_AUTH_TOKENPATH": str(directory / "token"),
            "NGINX_AGENT_COMMAND_TLS_CA": str(self.ca),
            "NGINX_AGENT_COMMAND_TLS_SERVER_NAME": controller_options.SERVER_NAME,
            "GATEHOUSE_AGENT_STATE_DIR": str(directory / "root"),
            "GATEHOUSE_AGENT_RUN_DIR": str(directory / "run"),
            "GATEHOUSE_AGENT_WORKERS": "1",
            "POD_NAME": name,
        }


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        server = Server(State(Path(directory) / "state"))
        async with server.running():
            yield Cluster(server.state)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[kube.Client]:
    async with kube.Client.from_kubeconfig(cluster.state.kubeconfig) as result:
        yield result


async def token(
    client: kube.Client, gateway: str, pod: str = "", audience: str = controller_options.SERVER_NAME
) -> str:
    """Return a token of a Gateway's ServiceAccount, bound to a Pod that is created for it."""
    account = f"{gateway}-{SUFFIX}"

    async def made() -> bool:
        with contextlib.suppress(kube.NotFound):
            return bool(await client.get(resources.SERVICE_ACCOUNTS, account, "default"))
        return False

    await until(made)
    uid = ""
    if pod:
        spec = {
            "serviceAccountName": account,
            "containers": [{"name": "nginx", "image": "gatehouse/nginx"}],
        }
        metadata = {"name": pod, "namespace": "default"}
        made_pod = await client.create(resources.PODS, {"metadata": metadata, "spec": spec})
        uid = made_pod["metadata"]["uid"]
    result, _ = await client.create_token("default", account, [audience], 3600, pod, uid)
    return result


async def give_address(client: kube.Client, gateway: str) -> None:
    """Be the load balancer, without whose address no Gateway is Programmed."""
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}}

    async def given() -> bool:
        with contextlib.suppress(kube.NotFound):
            name = f"{gateway}-{SUFFIX}"
            await client.patch(resources.SERVICES, name, status, "default", subresource="status")
            return True
        return False

    await until(given)
