"""The process: watches Deployments, Pods, Services and their endpoints, and runs the Pods."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fakes import patience
from fakes.workloads import images
from fakes.workloads.api_access import serve_api
from fakes.workloads.deployments import Deployments
from fakes.workloads.pod_networks import PodNetworks
from fakes.workloads.service_proxy import ServiceProxy
from fakes.workloads.user_pods import UserPods
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from kube_base.types.resource import Resource

NODE = "workloads"
KINDS = (resources.DEPLOYMENTS, resources.PODS, resources.SERVICES, resources.ENDPOINT_SLICES)


async def run(options: argparse.Namespace, stop: asyncio.Event) -> None:
    """Run Pods until ``stop``, which terminates them all."""
    networks = PodNetworks(options.pod_network)
    proxy = ServiceProxy(networks)
    async with kube.Client.from_kubeconfig(options.kubeconfig) as client:
        table = images.load(options.images)
        pods = UserPods(client, NODE, options.dir, table, networks)
        deployments = Deployments(client, NODE, table)

        def changed(_: Resource, __: Mapping[Any, Any]) -> None:
            pods.wake()
            deployments.wake()
            proxy.wake()

        informers = {kind.kind: Informer(client, kind, on_changes=changed) for kind in KINDS}
        tasks = [asyncio.create_task(informer.run()) for informer in informers.values()]
        for started in informers.values():
            await started.synced.wait()
        await networks.open()
        if options.pod_kubeconfig is not None:
            await serve_api(options.kubeconfig, networks.gateway, options.pod_kubeconfig)
        stores = {kind: informer.objects for kind, informer in informers.items()}
        tasks += [
            asyncio.create_task(pods.run(stores["Pod"])),
            asyncio.create_task(deployments.run(stores["Deployment"])),
            asyncio.create_task(proxy.run(stores["Service"], stores["EndpointSlice"])),
        ]
        stopped: asyncio.Task[Any] = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await proxy.close()
        await pods.end()
        for task in done - {stopped}:
            # An error ends the process.
            task.result()


async def _main(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    while not options.kubeconfig.exists() and not stop.is_set():
        # Written by an installation that is still starting.
        await patience.pause()
    if not stop.is_set():
        await run(options, stop)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--kubeconfig", "--dir", "--images"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--pod-network", required=True)
    parser.add_argument("--pod-kubeconfig", type=Path, default=None)
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
