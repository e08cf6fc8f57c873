"""Values of headers that look like variables of NGINX, which Gateway API does not have.

NGINX Gateway Fabric expands such a value. Here it is sent as it is, and the route's condition says
so.
"""

from __future__ import annotations

import re

from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

_VARIABLE = re.compile(r"\$(?:[a-z][a-z0-9_]+|\{[a-z][a-z0-9_]+\})")

_NONE = ir.HeaderEdit()

SENT_LITERALLY = "is sent literally: variables are not expanded"
"""End of the reason."""


def literal_values(route: ir.Route) -> list[UnsupportedSetting]:
    """Return a finding for each header of a route whose value looks like a variable."""
    holders: list[ir.Route | ir.Backend] = [route]
    if isinstance(route.action, ir.Forward):
        holders += route.action.backends
    for holder in holders:
        if holder.request_headers != _NONE or holder.response_headers != _NONE:
            return _literal_values(holders)
    return []


def _literal_values(holders: list[ir.Route | ir.Backend]) -> list[UnsupportedSetting]:
    edits = [("request", holder.request_headers) for holder in holders]
    edits += [("response", holder.response_headers) for holder in holders]
    return [
        UnsupportedSetting(
            NO_ORIGIN, f"{direction} header {item.name}: {match.group()} {SENT_LITERALLY}"
        )
        for direction, edit in edits
        for item in (*edit.set, *edit.add)
        if (match := _VARIABLE.search(item.value))
    ]
