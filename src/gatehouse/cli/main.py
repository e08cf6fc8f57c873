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
    "demo": "demo",
    "dns": "dns",
    "explain": "explain",
    "node": "node",
    "node-proxy": "node_proxy",
    "ratelimit": "ratelimit",
    "status": "status",
    "up": "up",
}
"""Subcommand names to the module of :mod:`gatehouse.cli` whose COMMANDS contain the command."""


class Subcommands(click.Group):
    """Group that imports a subcommand on use, so that an agent does not load the control plane."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names of all subcommands."""
        return list(MODULES)

    def get_command(self, _context: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand `cmd_name`, or None if it does not exist."""
        if cmd_name not in MODULES:
            return None
        module = importlib.import_module(f"gatehouse.cli.{MODULES[cmd_name]}")
        commands: tuple[click.Command, ...] = module.COMMANDS
        return next(candidate for candidate in commands if candidate.name == cmd_name)


@click.group(cls=Subcommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gatehouse.__version__, prog_name="gatehouse")
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="info",
    show_default=True,
    envvar="GATEHOUSE_LOG_LEVEL",
    help="Lowest level that is logged.",
)
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="auto",
    show_default=True,
    envvar="GATEHOUSE_LOG_FORMAT",
    help="Log format. auto: text on a terminal, else json. console: alias of text.",
)
def command(log_level: str, log_format: str) -> None:
    """Control plane for every gateway in front of a Kubernetes estate."""
    logs.configure(log_level, log_format)


def main() -> None:
    """Run the command. Prints a CLIError as one line on stderr and exits with status 1."""
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
