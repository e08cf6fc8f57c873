"""Output of commands, which escapes the control characters in texts of other users.

No other module writes to standard output or standard error. Coloured output is in
:mod:`~gatehouse.cli.terminal`, because agents do without Rich.
"""

from __future__ import annotations

import sys

import click

from kube_base.runtime.printable import printable

_CLEAR = "\x1b[H\x1b[2J"
"""Moves the cursor to the start of a terminal and clears it."""


def show(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Write a text of any number of lines to standard output, or standard error (``err``).

    Its control characters are escaped. ``nl``: end it with a line break.
    """
    click.echo(printable(text, keep="\n\t"), nl=nl, err=err)


def clear() -> None:
    """Clear the terminal, if there is one."""
    if sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
