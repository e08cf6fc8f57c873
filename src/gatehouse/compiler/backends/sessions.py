"""Session persistence: what no proxy supports."""

from __future__ import annotations

from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UNTRACKED_TIMEOUT, UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN


def unsupported_session(action: ir.Action) -> list[UnsupportedSetting]:
    """Return the settings of sessions that a proxy would have to remember: proxies do not."""
    for backend in action.backends if isinstance(action, ir.Forward) else ():
        session = backend.persistence
        if session is None or not session.absolute_timeout:
            continue
        if session.origin != NO_ORIGIN:
            field = session.origin.field("absoluteTimeout")
            return [UnsupportedSetting(field, UNTRACKED_TIMEOUT)]
        why = f"sessionPersistence.absoluteTimeout: {UNTRACKED_TIMEOUT}"
        return [UnsupportedSetting(NO_ORIGIN, why)]
    return []
