"""`gatehouse console`: the web console of the objects that its user may read."""

from __future__ import annotations

import asyncio
import html
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gatehouse.cli import logs, run
from gatehouse.cli.errors import CLIError
from gatehouse.cli.output import show
from gatehouse.cli.parameters import kubeconfig_of, kubeconfig_option
from gatehouse.console.object_feed import ReadScope
from gatehouse.console.server import serve_console
from gatehouse.kube import client as kube
from gatehouse.kube import config


@click.command("console")
@click.option(
    "--namespace",
    "-n",
    "namespaces",
    multiple=True,
    help="Read this namespace only. Can be repeated. Default: all that the user may read, else "
    "that of the kubeconfig.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port on 127.0.0.1. 0: any free port.",
)
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
@kubeconfig_option
def console(
    namespaces: tuple[str, ...], port: int, no_browser: bool, kubeconfig: Path | None
) -> None:
    """Show topology, routes, kube-apiservers, load balancers, problems and traffic in a browser.

    \b
    gatehouse console
    gatehouse console -n shop --no-browser

    The command serves the console on 127.0.0.1 until it ends. It reads with the kubeconfig, so that
    it shows what its user may read, and it changes nothing. The link that it prints works once.
    """
    # Informers log kinds that do not exist.
    logs.configure("warning", "auto")
    try:
        configuration = config.from_kubeconfig(kubeconfig_of(kubeconfig))
    except config.ConfigError as error:
        raise CLIError(str(error)) from error
    scope = ReadScope(namespaces, configuration.namespace)

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        ended = await run.any_event(stop, leave)
        async with (
            kube.Client(configuration) as client,
            serve_console(client, scope, port) as running,
        ):
            show(f"Console of {client.server}: {running.login_link}")
            show("The link works once. Ctrl-C ends the console.", err=True)
            sys.stdout.flush()
            with _page(running.login_link) as page:
                if sys.stdout.isatty() and not no_browser and _has_display():
                    await asyncio.to_thread(webbrowser.open, page.as_uri())
                await ended.wait()

    run.run_until_signal(part, expected=(config.ConfigError,))


def _has_display() -> bool:
    """Return whether a browser has a window of its own, and does not take over the terminal."""
    return sys.platform != "linux" or any(os.environ.get(f"{kind}DISPLAY") for kind in _DISPLAYS)


_DISPLAYS = ("", "WAYLAND_")


@contextmanager
def _page(link: str) -> Iterator[Path]:
    """Write a page that leads to the link. Other users see arguments of a process, not files."""
    with tempfile.TemporaryDirectory(prefix="gatehouse-console-") as directory:
        path = Path(directory) / "console.html"
        target = html.escape(link)
        path.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={target}">'
            f'<a href="{target}">Gatehouse console</a>'
        )
        yield path


COMMANDS = (console,)
