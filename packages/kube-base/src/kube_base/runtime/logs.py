"""Logging of a process: text, coloured on a terminal, or JSON.

Tracebacks have no values of variables, which may be those of Secrets.
"""

from __future__ import annotations

import contextlib
import functools
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

from kube_base.runtime.printable import printable  # noqa: E402

if _HIDDEN:
    del sys.modules["rich"]


def configure_logs(program: str, level: str, stream: TextIO, *, as_json: bool) -> None:
    """Configure logging of this process. `program` is the part of loggers without a name."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=24)
    )
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            functools.partial(_part, program),
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
    def __init__(self, stream: _LossyStream, name: str = "") -> None:
        super().__init__(cast("TextIO", stream))
        self.part = name


def _escape_controls(
    _: Any, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape control characters of values: text on a terminal, or a forged line."""
    permitted = {"exception": "\n\t", "stack": "\n\t"}
    return {
        key: printable(value, permitted.get(key, "")) if isinstance(value, str) else value
        for key, value in event.items()
    }


def _part(
    program: str, logger: Any, _: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    part = getattr(logger, "part", "").removeprefix(f"{program}.")
    return {"part": part or program, **event}
