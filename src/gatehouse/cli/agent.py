"""`gatehouse agent`: the data plane process. Imports no module of the control plane."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from gatehouse.agent.option_help import HELP
from gatehouse.agent.options import (
    KEYS,
    AgentOptions,
    AgentOptionsError,
    ProxyMissingError,
    load_options,
)
from gatehouse.cli import logs, run
from gatehouse.cli.errors import CLIError


def option_name(key: str) -> str:
    """Return the option name of a configuration key, formed as in NGINX Agent."""
    return key.removeprefix("gatehouse.").replace(".", "-").replace("_", "-")


@click.command("agent")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=None,
    help="Path of the YAML configuration file. Options and environment override it.",
)
@click.pass_context
def agent_command(context: click.Context, /, config: Path | None, **flags: str | None) -> None:
    """Run one NGINX or Envoy: fetch its configuration, apply it safely, report the result."""
    settings = {key: value for key in KEYS if (value := flags[option_name(key).replace("-", "_")])}
    try:
        options = load_options(os.environ, file=config, flags=settings)
    except AgentOptionsError as error:
        raise CLIError(str(error)) from error
    parameters = context.find_root().params
    logs.configure(
        options.log_level or parameters["log_level"],
        options.log_format or parameters["log_format"],
        # Container logs are read from stdout. A fatal error is printed on stderr.
        sys.stdout,
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await _main_of(options.proxy)(options, await run.any_event(stop, leave))

    run.run_until_signal(part, expected=(ProxyMissingError,))


def _main_of(proxy: str) -> Callable[[AgentOptions, asyncio.Event], Coroutine[Any, Any, None]]:
    """Return the main function of the agent for `proxy`. Imports no other proxy's agent."""
    if proxy == "envoy":
        from gatehouse.agent.envoy import main as envoy

        return envoy.run_envoy_agent
    from gatehouse.agent.nginx import main as nginx

    return nginx.run_nginx_agent


for _key in KEYS:
    agent_command.params.append(
        click.Option(
            [f"--{option_name(_key)}"],
            default=None,
            help=f"{HELP[_key]} Key {_key}, variable {KEYS[_key]}.",
        )
    )

COMMANDS = (agent_command,)
