"""How logs look: coloured lines on a terminal, JSON where asked for."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "console", "json")


def configure(level: str, style: str) -> None:
    """Set up logging of this process; ``style`` auto: console on a terminal, else JSON."""
    as_json = style == "json" or (style == "auto" and not sys.stderr.isatty())
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=24)
    )
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            _part,
            structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S.%f", utc=as_json),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=_factory,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


class _Logger(structlog.PrintLogger):
    def __init__(self, part: str) -> None:
        super().__init__(sys.stderr)
        self.part = part


def _factory(*arguments: Any) -> _Logger:
    return _Logger(str(arguments[0]).removeprefix("gatehouse.") if arguments else "gatehouse")


def _part(logger: Any, _: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {"part": getattr(logger, "part", "gatehouse"), **event}
