"""Inputs of the front end about what data planes cannot serve, one for each object concerned.

Only the statuses of objects whose findings change are computed again.
"""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.combined import REPORTED
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.incremental.query import Key

_REPORTED = frozenset(resource.kind for resource in REPORTED)


def by_object(gateway: Key, findings: Iterable[Unsupported]) -> dict[Key, tuple[Unsupported, ...]]:
    """Return the findings about a Gateway as inputs, by the object whose status reports them."""
    result: dict[Key, tuple[Unsupported, ...]] = {}
    for finding in findings:
        key = gateway_api.unsupported_key(gateway, _subject(gateway, finding))
        result[key] = (*result.get(key, ()), finding)
    return result


def _subject(gateway: Key, finding: Unsupported) -> Key:
    """Return the origin of a finding if it has a status; else the Gateway."""
    has_status = finding.origin.kind in _REPORTED
    return gateway_api.key_of(finding.origin) if has_status else gateway
