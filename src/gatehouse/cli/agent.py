"""`gatehouse agent`: the process of a data plane. Imports nothing of the control plane."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from gatehouse.agent.options import KEYS, Options, OptionsError, ProxyMissingError, load_options
from gatehouse.cli import logs, run
from gatehouse.cli.errors import CLIError


def flag(key: str) -> str:
    """Give the name of the flag for a key of the file, as the field's agent has it."""
    return key.removeprefix("gatehouse.").replace(".", "-").replace("_", "-")


@click.command("agent")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=None,
    help="YAML file; flags and environment win.",
)
@click.pass_context
def agent_command(context: click.Context, /, config: Path | None, **flags: str | None) -> None:
    """Own one NGINX or Envoy: fetch its configuration, have it applied safely, report."""
    given = {key: value for key in KEYS if (value := flags[flag(key).replace("-", "_")])}
    try:
        options = load_options(os.environ, file=config, flags=given)
    except OptionsError as error:
        raise CLIError(str(error)) from error
    parameters = context.find_root().params
    logs.configure(
        options.log_level or parameters["log_level"],
        options.log_format or parameters["log_format"],
        # Where a container's log is read from; what ends the agent is said on stderr.
        sys.stdout,
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await _life(options.proxy)(options, await run.either(stop, leave))

    run.run(part, expected=(ProxyMissingError,))


def _life(proxy: str) -> Callable[[Options, asyncio.Event], Coroutine[Any, Any, None]]:
    """Give the life of an agent of this proxy, importing no other."""
    if proxy == "envoy":
        from gatehouse.agent.envoy import main as envoy

        return envoy.run
    from gatehouse.agent.nginx import main as nginx

    return nginx.run


for _key in KEYS:
    agent_command.params.append(
        click.Option([f"--{flag(_key)}"], default=None, help=f"{_key} ({KEYS[_key]})")
    )

COMMANDS = (agent_command,)
