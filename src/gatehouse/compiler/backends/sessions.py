"""Session persistence: what no proxy supports, and sessions of policies without which a route is
served."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError, served_without
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UNTRACKED_TIMEOUT, Unsupported, UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

SessionCheck = Callable[[ir.Forward, ir.Persistence], object]
"""Function that raises InvalidValueError if a proxy does not support the session of an action."""


def unsupported_session(action: ir.Action) -> list[UnsupportedSetting]:
    """Return the settings of sessions that a proxy would have to remember: proxies do not."""
    session = action.persistence if isinstance(action, ir.Forward) else None
    if session is None or not session.absolute_timeout:
        return []
    if session.origin == NO_ORIGIN:
        why = f"sessionPersistence.absoluteTimeout: {UNTRACKED_TIMEOUT}"
        return [UnsupportedSetting(NO_ORIGIN, why)]
    return [UnsupportedSetting(session.origin.field("absoluteTimeout"), UNTRACKED_TIMEOUT)]


def served_route(
    route: ir.Route, check: SessionCheck
) -> tuple[ir.Route, UnsupportedSetting | None]:
    """Return a route without a policy's session that the proxy does not support, and this setting.

    The author of the policy is not that of the route, which must not fail because of it.
    """
    action, session = route.action, route.policy_session
    if not isinstance(action, ir.Forward) or session is None:
        return route, None
    try:
        check(action, session)
    except InvalidValueError as error:
        return route.with_session(None), UnsupportedSetting(session.origin, str(error))
    return route, None


def served_host(
    host: ir.VirtualHost, check: SessionCheck
) -> tuple[ir.VirtualHost, tuple[Unsupported, ...]]:
    """Return a virtual host whose routes are those of :func:`served_route`."""
    for route in host.routes:
        if route.policy_session is not None:
            break
    else:
        return host, ()
    routes = [served_route(route, check) for route in host.routes]
    unsupported = tuple(
        served_without(route.origin, setting) for route, setting in routes if setting is not None
    )
    return msgspec.structs.replace(host, routes=tuple(route for route, _ in routes)), unsupported
