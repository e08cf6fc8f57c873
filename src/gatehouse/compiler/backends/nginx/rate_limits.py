"""Rate limits: counters in shared memory, and the directives of locations that apply them."""

from __future__ import annotations

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    optional_directives,
    simple_directive,
    switch,
)
from gatehouse.compiler.backends.nginx.route_context import (
    NginxRouteContext,
    RoutePiece,
    definitions,
)
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

_REJECTED = 503
"""NGINX's own status code for a request above a rate limit."""


def _zone_directive(limit: ir.RateLimit) -> Directive:
    parts = [(part.name,) if isinstance(part, ir.Attribute) else part for part in limit.key]
    where = f"zone={zone_name(limit)}:{limit.memory}"
    rate = f"rate={limit.rate}r/{'s' if limit.per == 'second' else 'm'}"
    try:
        key = quoting.quote_template(*parts, what="key")
    except InvalidValueError as error:
        raise InvalidValueError(str(error), limit.origin) from error
    return simple_directive("limit_req_zone", key, where, rate)


def zone_name(limit: ir.RateLimit) -> str:
    """Return the name of a zone. NGINX cannot reload one with another key or size."""
    return f"rate_{names.name_digest(limit.name, repr(limit.key), str(limit.memory))}"


def rate_limits_piece(_context: NginxRouteContext, route: Route) -> RoutePiece | None:
    """Return the directives of a location that apply its limits. Raises InvalidValueError."""
    rates = route.settings.rates
    if not rates.limits:
        return None
    directives = []
    for limit in rates.limits:
        words = [f"zone={zone_name(limit)}"]
        words += [f"burst={limit.burst}"] if limit.burst else []
        words += ["nodelay"] if limit.delay is None else []
        words += [f"delay={limit.delay}"] if limit.delay else []
        directives.append(simple_directive("limit_req", *words))
    directives += optional_directives({"limit_req_status": rates.status})
    directives += optional_directives({"limit_req_log_level": rates.nginx.log_level or None})
    directives += optional_directives({"limit_req_dry_run": rates.dry_run}, switch)
    zones = map(_zone_directive, rates.limits)
    return RoutePiece(limits=tuple(directives), needs=definitions(zones))


def unsupported_shared_limits(
    _context: NginxRouteContext, route: Route
) -> list[UnsupportedSetting]:
    """Return the limits of a route that NGINX does not support."""
    why = "NGINX counts requests on its own"
    return [UnsupportedSetting(limit.origin, why) for limit in route.settings.rates.shared]


def rejection_status(rates: ir.RateLimits) -> int:
    """Return the status code of a request above a limit; 0 without limits."""
    return (rates.status or _REJECTED) if rates.limits else 0
