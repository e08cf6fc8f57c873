"""Parsers of option values, as callbacks of click."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def parse_with(read: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that parses an option's value and reports ValueError as a usage error."""

    def callback(_: click.Context, __: click.Parameter, value: Any) -> Any:
        try:
            return read(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback
