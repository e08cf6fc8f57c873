"""`gatehouse node`: kubelet and load balancer of the standalone installation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from gatehouse.cli import local_options, run
from gatehouse.cli.errors import CLIError
from gatehouse.kube.config import ConfigError
from gatehouse.standalone.node import images as table
from gatehouse.standalone.node import node as local_node

PATH = click.Path(path_type=Path)


@click.command()
@click.option("--kubeconfig", type=PATH, required=True, help="Path of the kubeconfig.")
@click.option(
    "--dir", "directory", type=PATH, required=True, help="Directory of the data planes' files."
)
@click.option(
    "--address-pool",
    default="127.100.0.0/16",
    show_default=True,
    help="CIDR of the addresses of Gateways.",
)
@click.option("--nginx", default=None, help="Path of the NGINX binary; see `gatehouse up`.")
@click.option(
    "--images", type=PATH, default=None, help="Path of the YAML file that maps images to commands."
)
@click.option(
    "--pod-network",
    default="10.244.0.0/16",
    show_default=True,
    callback=local_options.pod_network,
    help="CIDR of Pods.",
)
def node(
    kubeconfig: Path,
    directory: Path,
    address_pool: str,
    nginx: str | None,
    images: Path | None,
    pod_network: str,
) -> None:
    """Run data planes as processes of this machine, as kubelet and load balancer."""
    binary = local_options.find_nginx(nginx)
    try:
        image_commands = table.load(images) if images else {}
    except table.ImagesError as error:
        raise CLIError(str(error)) from error
    options = local_node.Options(
        kubeconfig=kubeconfig,
        directory=directory,
        pool=address_pool,
        nginx=str(binary),
        images=image_commands,
        pod_network=pod_network,
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await local_node.run(options, stop, leave)

    run.run(part, expected=(ConfigError,))


COMMANDS = (node,)
