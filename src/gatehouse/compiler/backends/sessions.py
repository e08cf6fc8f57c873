"""Session persistence: what no proxy supports."""

from __future__ import annotations

from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

_NOT_TRACKED = UnsupportedSetting(
    NO_ORIGIN,
    "sessionPersistence.absoluteTimeout: is supported for cookies with lifetimeType Permanent only",
)


def unsupported_session(action: ir.Action) -> list[UnsupportedSetting]:
    """Return the settings of sessions that a proxy would have to remember: proxies do not."""
    session = action.persistence if isinstance(action, ir.Forward) else None
    return [_NOT_TRACKED] if session is not None and session.absolute_timeout else []
