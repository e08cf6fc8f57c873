"""Coloured output of commands.

Values of objects are hostile: an escape sequence could hide or forge lines, and markup of Rich in a
message could do the same or raise an error. No other module uses tables and consoles of Rich.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kube_base.runtime.printable import printable

COLOURS = {"True": "green", "False": "red"}


def wide_console() -> Console:
    """Return a console that breaks no table if the output is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def show_coloured(content: ObjectTable | Text, console: Console | None = None) -> None:
    """Write a table or a coloured text to standard output."""
    (console or Console()).print(content)


def coloured(value: str, colour: str = "") -> Text:
    """Return a value in a colour. Default: that of a condition's status."""
    return Text(printable(value), style=colour or COLOURS.get(value, "yellow"))


class ObjectTable(Table):
    """Table of values of objects: their text is neither markup nor control sequence."""

    def __init__(self, title: str, *columns: str) -> None:
        """Create an empty table."""
        super().__init__(title=Text(printable(title), style="table.title"), title_justify="left")
        for column in columns:
            self.add_column(column, overflow="fold")

    def add_values(self, *values: str | Text) -> None:
        """Add a row. A string is shown as it is, a Text in its style."""
        self.add_row(
            *(value if isinstance(value, Text) else Text(printable(value)) for value in values)
        )
