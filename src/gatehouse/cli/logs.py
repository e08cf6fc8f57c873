"""Levels and formats of the log."""

from __future__ import annotations

import sys
from typing import TextIO

from kube_base.runtime.logs import configure_logs

LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "text", "json", "console")
"""Log formats. ``console`` is an alias of ``text``."""


def configure(level: str, style: str, stream: TextIO | None = None) -> None:
    """Configure logging of this process.

    The ``style`` auto is text on a terminal, else JSON. ``stream`` defaults to stderr.
    """
    stream = stream or sys.stderr
    as_json = style == "json" or (style == "auto" and not stream.isatty())
    configure_logs("gatehouse", level, stream, as_json=as_json)
