"""The command and its subcommands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import metadata

import click

import gatehouse
from gatehouse.cli import logs
from gatehouse.cli.output import show
from gatehouse.inspection.errors import InspectionError
from gatehouse.runtime.process_imports import import_at_start
from kube_base.runtime.printable import printable

MODULES: Mapping[str, str] = {
    "agent": "agent",
    "agent-config": "agent_config",
    "apiserver": "apiserver",
    "certs": "certs",
    "check": "check",
    "config": "config",
    "console": "console",
    "controller": "controller",
    "demo": "demo",
    "dns": "dns",
    "explain": "explain",
    "node": "node",
    "node-proxy": "node_proxy",
    "ratelimit": "ratelimit",
    "status": "status",
    "support": "support",
    "top": "top",
    "up": "up",
    "version": "version",
}
"""Subcommand names to the module of :mod:`gatehouse.cli` whose COMMANDS contain the command."""

_SUMMARY_CHARACTERS = 200
"""More than each first sentence has: a summary is wrapped and not cut."""


class Subcommands(click.Group):
    """Group that imports a subcommand on use, so that an agent does not load the control plane."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names of all subcommands."""
        return list(MODULES)

    def get_command(self, _context: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand `cmd_name`, or None if it does not exist."""
        if cmd_name not in MODULES:
            return None
        module = import_at_start(f"gatehouse.cli.{MODULES[cmd_name]}")
        commands: tuple[click.Command, ...] = module.COMMANDS
        return next(candidate for candidate in commands if candidate.name == cmd_name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each subcommand, also if its extra is not installed."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(context, name)) for name in MODULES])

    def _summary(self, context: click.Context, name: str) -> str:
        try:
            candidate = self.get_command(context, name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "gatehouse":
                raise
            return f"(not installed: needs the Python package {error.name!r})"
        assert candidate is not None
        return candidate.get_short_help_str(limit=_SUMMARY_CHARACTERS)


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
    type=click.Choice(logs.LOG_FORMATS),
    default="auto",
    show_default=True,
    envvar="GATEHOUSE_LOG_FORMAT",
    help="Log format. auto: text on a terminal, else json. console: alias of text.",
)
def command(log_level: str, log_format: str) -> None:
    """Control plane for every gateway in front of a Kubernetes estate."""
    logs.configure(log_level, log_format)


def main() -> None:
    """Run the command.

    An InspectionError, or a package of an extra that is not installed, is one line on stderr and
    exit status 1.
    """
    try:
        # Click returns the exit status of a command that ends by Context.exit.
        sys.exit(command(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except InspectionError as error:
        message = printable(str(error), keep="\n\t")
        show(f"gatehouse: {message}", err=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "gatehouse":
            raise
        extras = ", ".join(metadata("gatehouse").get_all("Provides-Extra") or ())
        show(
            f"gatehouse: the Python package {error.name!r} is not installed; install the extra of "
            f"this command, such as 'gatehouse[standalone]' (extras: {extras})",
            err=True,
        )
        sys.exit(1)
