"""The command and its subcommands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

import click

import gatehouse
from gatehouse.cli import logs
from gatehouse.cli.errors import CLIError

MODULES: Mapping[str, str] = {
    "agent": "agent",
    "apiserver": "apiserver",
    "certs": "certs",
    "config": "status",
    "controller": "controller",
    "counter": "counter",
    "demo": "demo",
    "dns": "dns",
    "explain": "explain",
    "node": "node",
    "node-proxy": "node_proxy",
    "status": "status",
    "up": "up",
}
"""Every subcommand, and the module of :mod:`gatehouse.cli` that has it among its COMMANDS."""


class Subcommands(click.Group):
    """Imports a subcommand when it is asked for: an agent has no use for the control plane."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Give all names."""
        return list(MODULES)

    def get_command(self, _context: click.Context, cmd_name: str) -> click.Command | None:
        """Give a subcommand; None if there is none of that name."""
        if cmd_name not in MODULES:
            return None
        module = importlib.import_module(f"gatehouse.cli.{MODULES[cmd_name]}")
        commands: tuple[click.Command, ...] = module.COMMANDS
        return next(each for each in commands if each.name == cmd_name)


@click.group(cls=Subcommands, context_settings={"help_option_names": ["-h", "--help"]})
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
    except CLIError as error:
        click.echo(f"gatehouse: {error}", err=True)
        sys.exit(1)
