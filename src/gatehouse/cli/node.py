"""`gatehouse node`: data planes and addresses of the standalone installation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from gatehouse.cli import local_options, run
from gatehouse.cli.parameters import PATH
from gatehouse.kube.config import ConfigError
from gatehouse.standalone.node import data_plane_users as users
from gatehouse.standalone.node import node as local_node


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
@local_options.data_plane_users_option
def node(
    kubeconfig: Path,
    directory: Path,
    address_pool: str,
    nginx: str | None,
    data_plane_users: str,
) -> None:
    """Run data planes as processes of this machine, and give Services addresses."""
    binary = local_options.find_nginx(nginx)
    options = local_node.NodeOptions(
        kubeconfig=kubeconfig,
        directory=directory,
        pool=address_pool,
        nginx=str(binary),
        users=users.effective_range(data_plane_users),
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await local_node.run_node(options, stop, leave)

    run.run_until_signal(part, expected=(ConfigError,))


COMMANDS = (node,)
