"""Durations as option values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
else:
    _FloatType = click.ParamType

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(_FloatType):
    """Duration as in Go, such as `1m30s` or `500ms`, converted to seconds.

    A number without unit is in seconds.
    """

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the duration in seconds. Raises BadParameter."""
        text = str(value)
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
            return float(text)
        if not re.fullmatch(rf"(?:{_PART.pattern})+", text):
            self.fail(f"{text!r}: must be a duration such as 3s or 500ms", param, ctx)
        return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
