"""Session persistence of the backends of a route: that of policies, and its replacement."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import msgspec

from gatehouse.compiler.ir.http import Action, Forward, Persistence, Route
from gatehouse.dataplane.origin import NO_ORIGIN

_Chosen = Callable[[Persistence | None, Persistence | None], Persistence | None]


def sessions_of(action: Action) -> tuple[Persistence | None, ...]:
    """Return the session persistence of each backend."""
    backends = action.backends if isinstance(action, Forward) else ()
    return tuple(backend.persistence for backend in backends)


def policy_sessions(route: Route) -> tuple[Persistence, ...]:
    """Return the session persistence that policies set, each once."""
    sessions = (one for one in sessions_of(route.action) if one and one.origin != NO_ORIGIN)
    return tuple(dict.fromkeys(sessions))


def without_sessions(route: Route, is_removed: Callable[[Persistence], bool]) -> Route:
    """Return a route without some of the session persistence that policies set."""
    removed = frozenset(filter(is_removed, policy_sessions(route)))
    if not removed or not isinstance(route.action, Forward):
        return route
    left = (None if one in removed else one for one in sessions_of(route.action))
    return msgspec.structs.replace(route, action=_with_sessions(route.action, left))


def mixed_sessions(old: Action, new: Action, choose: _Chosen) -> Action:
    """Return an action with the session persistence that a function chooses for each backend.

    ``old``: an action with the same backends.
    """
    if not isinstance(new, Forward):
        return new
    pairs = zip(sessions_of(old), sessions_of(new), strict=True)
    return _with_sessions(new, itertools.starmap(choose, pairs))


def _with_sessions(action: Forward, sessions: Iterable[Persistence | None]) -> Forward:
    backends = (
        msgspec.structs.replace(backend, persistence=session)
        for backend, session in zip(action.backends, sessions, strict=True)
    )
    return msgspec.structs.replace(action, backends=tuple(backends))
