"""Types and defaults of option values that several commands share."""

from __future__ import annotations

import os
from pathlib import Path

import click

PATH = click.Path(path_type=Path)


def kubeconfig_of(named: Path | None) -> Path:
    """Return the path of the kubeconfig: `named`, $KUBECONFIG or that of `gatehouse up`."""
    if named is not None:
        return named
    if os.environ.get("KUBECONFIG"):
        return Path(os.environ["KUBECONFIG"].split(os.pathsep)[0])
    from gatehouse.standalone.state_directory import State, default_directory

    return State(default_directory(os.environ)).kubeconfig


output_option = click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
"""Format of the output: text or JSON."""

kubeconfig_option = click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig. Default: $KUBECONFIG, or that of `gatehouse up`.",
)
"""Cluster to read from."""
