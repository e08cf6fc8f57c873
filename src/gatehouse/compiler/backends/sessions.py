"""Session persistence: what no proxy supports."""

from __future__ import annotations

from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.sessions import sessions_of
from gatehouse.compiler.ir.unsupported import UNTRACKED_TIMEOUT, UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN, Origin


def unsupported_session(action: ir.Action) -> list[UnsupportedSetting]:
    """Return the settings of sessions that a proxy would have to remember: proxies do not."""
    origins = (one.origin for one in sessions_of(action) if one and one.absolute_timeout)
    return [_untracked(origin) for origin in dict.fromkeys(origins)]


def _untracked(origin: Origin) -> UnsupportedSetting:
    """Return the finding about a session of a policy, or of the route itself."""
    if origin != NO_ORIGIN:
        return UnsupportedSetting(origin.field("absoluteTimeout"), UNTRACKED_TIMEOUT)
    return UnsupportedSetting(origin, f"sessionPersistence.absoluteTimeout: {UNTRACKED_TIMEOUT}")
