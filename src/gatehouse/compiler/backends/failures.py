"""Failures of a back end: each costs the object that it is about, never the compile pass."""

from __future__ import annotations

import structlog

from gatehouse.compiler.ir.unsupported import Unsupported, UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN, Origin

log = structlog.get_logger("gatehouse.compiler")


class InvalidValueError(ValueError):
    """A value that the configuration of a proxy cannot contain.

    The message has the reason, not the value. ``setting``: the field of another object that has the
    value.
    """

    def __init__(self, reason: str, setting: Origin = NO_ORIGIN) -> None:
        super().__init__(reason)
        self.setting = setting


def unserved(origin: Origin, error: Exception) -> Unsupported:
    """Return the finding that an error prevents a part from being served.

    A defect of the back end is logged.
    """
    if isinstance(error, InvalidValueError):
        return Unsupported(origin, str(error), setting=error.setting)
    log.error("back end failed", exc_info=error)
    return Unsupported(origin, f"internal error: {type(error).__name__}: {error}")


def served_without(origin: Origin, setting: UnsupportedSetting) -> Unsupported:
    """Return the finding that a part is served without a setting."""
    return Unsupported(origin, setting.reason, served=True, setting=setting.setting)
