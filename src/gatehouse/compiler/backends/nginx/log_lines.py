"""Lines of access logs: fields as JSON or as text."""

from __future__ import annotations

from collections.abc import Mapping

from gatehouse.compiler.ir.access_log import NUMBER_FIELDS, Style


def line(fields: Mapping[str, str], style: Style) -> list[str]:
    """Return an entry, in pieces that NGINX joins. Values are texts with NGINX variables.

    Both styles need ``escape=json``: it escapes quotes and line feeds in all values.
    """
    if style == "text":
        pairs = (f"{name}={_value(name, value)}" for name, value in fields.items())
        return [f"'{' ' if index else ''}{pair}'" for index, pair in enumerate(pairs)]
    pairs = (f'"{name}":{_value(name, value)}' for name, value in fields.items())
    return [f"'{',' if index else '{'}{pair}'" for index, pair in enumerate(pairs)] + ["'}'"]


def _value(name: str, value: str) -> str:
    return value if name in NUMBER_FIELDS else f'"{value}"'


def missing_number(style: Style) -> str:
    """Return the token for a number that does not exist."""
    return "null" if style == "json" else '""'
