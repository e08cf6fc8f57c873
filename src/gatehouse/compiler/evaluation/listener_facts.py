"""Facts about the filters of a listener, which run before a route is chosen."""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.compiler.frontends.gateway_api.listeners.listeners import ordered_listeners
from gatehouse.compiler.frontends.gateway_api.routes.listener_checks import listener_check
from gatehouse.compiler.ir import http
from gatehouse.incremental.query import Ask, Key


def filter_notes(host: http.VirtualHost | None) -> tuple[str, ...]:
    """Return what the filter of the listener of a virtual host may change."""
    if host is None or host.external_auth is None:
        return ()
    note = "an external authorization service of the listener may reject the request"
    return (f"{note}, and choose another route by the headers that it sets",)


def filter_problems(
    ask: Ask, gateway: Key, port: int, host: http.VirtualHost | None
) -> Iterator[str]:
    """Yield why the requests to a virtual host cannot be checked."""
    for state in ask(ordered_listeners, gateway):
        hostname = host.listener if host is not None else None
        if state.has_filters and (state.spec.port, state.spec.hostname) == (port, hostname):
            for finding in ask(listener_check, gateway, state.spec.key).findings:
                yield finding.message
