"""Configuration of logging: text, coloured on a terminal, or JSON."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from typing import Any, TextIO, cast

# structlog imports rich for tracebacks if it is installed. That costs 4 MB in every process and
# 60 ms of the 330 ms in which an agent starts. None makes the import fail.
_HIDDEN = "rich" not in sys.modules
if _HIDDEN:
    sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402

from gatehouse.runtime.printable import printable  # noqa: E402

if _HIDDEN:
    del sys.modules["rich"]

LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "text", "json", "console")
"""Log formats. ``console`` is an alias of ``text``."""


def configure(level: str, style: str, stream: TextIO | None = None) -> None:
    """Configure logging of this process.

    The ``style`` auto is text on a terminal, else JSON. ``stream`` defaults to stderr.
    """
    stream = stream or sys.stderr
    as_json = style == "json" or (style == "auto" and not stream.isatty())
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=24)
    )
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            _part,
            structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S.%f", utc=as_json),
            structlog.processors.format_exc_info,
            *(() if as_json else (_escape_controls,)),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=lambda *names: _Logger(_LossyStream(stream), *names),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=stream, force=True)


class _LossyStream(io.TextIOBase):
    """Stream that drops text that cannot be written.

    A process with its log on a full disk, or without a reader, must go on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, or drop it."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write buffered text, or drop it."""
        with contextlib.suppress(OSError):
            self._stream.flush()


class _Logger(structlog.PrintLogger):
    def __init__(self, stream: _LossyStream, name: str = "gatehouse") -> None:
        super().__init__(cast("TextIO", stream))
        self.part = name.removeprefix("gatehouse.")


def _escape_controls(
    _: Any, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape control characters of values: text on a terminal, or a forged line."""
    permitted = {"exception": "\n\t", "stack": "\n\t"}
    return {
        key: printable(value, permitted.get(key, "")) if isinstance(value, str) else value
        for key, value in event.items()
    }


def _part(logger: Any, _: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {"part": getattr(logger, "part", "gatehouse"), **event}
