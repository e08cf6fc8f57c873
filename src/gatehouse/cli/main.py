"""The command and its subcommands."""

from __future__ import annotations

import sys

import click

import gatehouse
from gatehouse.cli import apiserver, certs, inspect, logs, parts, up
from gatehouse.cli.errors import Trouble


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gatehouse.__version__, prog_name="gatehouse")
@click.option(
    "--log-level", type=click.Choice(logs.LEVELS), default="info", envvar="GATEHOUSE_LOG_LEVEL"
)
@click.option(
    "--log-format", type=click.Choice(logs.FORMATS), default="auto", envvar="GATEHOUSE_LOG_FORMAT"
)
def command(log_level: str, log_format: str) -> None:
    """One control plane for every gateway in front of a Kubernetes estate."""
    logs.configure(log_level, log_format)


for subcommand in (
    *up.COMMANDS,
    *apiserver.COMMANDS,
    *parts.COMMANDS,
    *certs.COMMANDS,
    *inspect.COMMANDS,
):
    command.add_command(subcommand)


def main() -> None:
    """Run the command; trouble is one line on stderr and status 1."""
    try:
        command(standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except Trouble as error:
        click.echo(f"gatehouse: {error}", err=True)
        sys.exit(1)
