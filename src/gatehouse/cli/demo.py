"""`gatehouse demo`."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import click

from gatehouse.cli import demo_scenario, local_options, logs, run
from gatehouse.cli.errors import CLIError
from gatehouse.standalone.state_directory import StateError
from gatehouse.standalone.supervisor import StartError

PATH = click.Path(path_type=Path)


@click.command()
@click.option("--once", is_flag=True, help="End after the requests; status 0 if all were right.")
@click.option("--state-dir", type=PATH, default=None, help="Default: a new temporary directory.")
@click.option(
    "--address-pool",
    default="127.101.0.0/16",
    show_default=True,
    callback=local_options.address_pool,
)
@click.option("--examples", type=PATH, default=Path("examples/cafe"), show_default=True)
def demo(once: bool, state_dir: Path | None, address_pool: str, examples: Path) -> None:
    """Start Gatehouse, apply the cafe example, send real requests, show what answered."""
    # The progress and the table are what is to be seen here; trouble still shows.
    logs.configure("warning", "auto")
    if not examples.is_dir():
        raise CLIError(f"{examples} is not there; run this in the project's directory")
    directory = state_dir or Path(tempfile.mkdtemp(prefix="gatehouse-demo-"))
    result: list[bool] = []

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        ended = await run.either(stop, leave)
        result.append(await demo_scenario.run(directory, address_pool, examples, once, ended))

    try:
        run.run(part, expected=(StateError, StartError, demo_scenario.DemoError))
    finally:
        if state_dir is None:
            shutil.rmtree(directory, ignore_errors=True)
    sys.exit(0 if result == [True] else 1)


COMMANDS = (demo,)
