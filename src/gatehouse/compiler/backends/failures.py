"""Failures of a back end: each costs the object that it is about, never the compile pass."""

from __future__ import annotations

import structlog

log = structlog.get_logger("gatehouse.compiler")


class InvalidValueError(ValueError):
    """A value that the configuration of a proxy cannot contain.

    The message has the reason, not the value.
    """


def reason(error: Exception) -> str:
    """Return the reason why an object is not served. A defect of the back end is logged."""
    if isinstance(error, InvalidValueError):
        return str(error)
    log.error("back end failed", exc_info=error)
    return f"internal error: {type(error).__name__}: {error}"
