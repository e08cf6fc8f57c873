"""`gatehouse demo`: the cafe example on a fresh installation."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import click

from gatehouse.cli import demo_scenario, local_options, logs, run
from gatehouse.cli.errors import CLIError
from gatehouse.cli.parameters import PATH
from gatehouse.standalone.state_directory import StateError
from gatehouse.standalone.supervisor import StartError


@click.command()
@click.option(
    "--once",
    is_flag=True,
    help="Exit after the requests, with status 0 if all were answered as expected.",
)
@click.option(
    "--state-dir", type=PATH, default=None, help="State directory. Default: a temporary one."
)
@click.option(
    "--address-pool",
    default="127.101.0.0/16",
    show_default=True,
    callback=local_options.address_pool,
    help="CIDR of the addresses of Gateways.",
)
@click.option(
    "--examples",
    type=PATH,
    default=Path("examples/cafe"),
    show_default=True,
    help="Directory of the manifests.",
)
def demo(once: bool, state_dir: Path | None, address_pool: str, examples: Path) -> None:
    """Start Gatehouse, apply the cafe example, send real requests and show the responses."""
    # Only warnings, so that the log does not hide the progress bar and the table.
    logs.configure("warning", "auto")
    if not examples.is_dir():
        raise CLIError(f"{examples} not found; run this command in the project directory")
    directory = state_dir or Path(tempfile.mkdtemp(prefix="gatehouse-demo-"))
    result: list[bool] = []

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        ended = await run.any_event(stop, leave)
        result.append(
            await demo_scenario.run_scenario(directory, address_pool, examples, once, ended)
        )

    try:
        run.run_until_signal(part, expected=(StateError, StartError, demo_scenario.DemoError))
    finally:
        if state_dir is None:
            shutil.rmtree(directory, ignore_errors=True)
    sys.exit(0 if result == [True] else 1)


COMMANDS = (demo,)
