"""Rate limits: counts in shared memory, and the locations that keep them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, simple
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.ir import settings as ir


def zones(wanted: Iterable[ir.RateLimits]) -> list[Directive]:
    """Give the counts of all rate limits that can be written."""
    found: dict[str, Directive] = {}
    for limit in (limit for each in wanted for limit in each.limits):
        with contextlib.suppress(InvalidValueError):
            found[zone(limit)] = _counted(limit)
    return [found[name] for name in sorted(found)]


def _counted(limit: ir.RateLimit) -> Directive:
    parts = [(part.name,) if isinstance(part, ir.Attribute) else part for part in limit.key]
    where = f"zone={zone(limit)}:{limit.memory}"
    rate = f"rate={limit.rate}r/{'s' if limit.per == 'second' else 'm'}"
    return simple("limit_req_zone", quoting.template(*parts), where, rate)


def zone(limit: ir.RateLimit) -> str:
    """Name a count: NGINX refuses to go on with one whose key or size is another."""
    return f"rate_{names.digest(limit.name, repr(limit.key), str(limit.memory))}"


def limits(wanted: ir.RateLimits) -> list[Directive]:
    """Give the directives of a location that keep its limits. Raises UnwritableError."""
    if not wanted.limits:
        return []
    found = []
    for limit in wanted.limits:
        _counted(limit)
        words = [f"zone={zone(limit)}"]
        words += [f"burst={limit.burst}"] if limit.burst else []
        words += ["nodelay"] if limit.delay is None else []
        words += [f"delay={limit.delay}"] if limit.delay else []
        found.append(simple("limit_req", *words))
    if wanted.status is not None:
        found.append(simple("limit_req_status", str(wanted.status)))
    if wanted.log_level:
        found.append(simple("limit_req_log_level", wanted.log_level))
    if wanted.dry_run is not None:
        found.append(simple("limit_req_dry_run", "on" if wanted.dry_run else "off"))
    return found
