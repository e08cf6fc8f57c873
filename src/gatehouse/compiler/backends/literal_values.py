"""Values of headers that look like variables of NGINX, which Gateway API does not have.

NGINX Gateway Fabric expands such a value. Here it is sent as it is, and the route's condition says
so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

_VARIABLE = re.compile(r"\$(?:[a-z][a-z0-9_]+|\{[a-z][a-z0-9_]+\})")

SENT_LITERALLY = "is sent literally: variables are not expanded"
"""End of the reason."""


def literal_values(route: ir.Route) -> Iterator[UnsupportedSetting]:
    """Yield a finding for each header of a route whose value looks like a variable."""
    yield from _of_edit("request", route.request_headers)
    yield from _of_edit("response", route.response_headers)
    if isinstance(route.action, ir.Forward):
        for backend in route.action.backends:
            yield from _of_edit("request", backend.request_headers)
            yield from _of_edit("response", backend.response_headers)


def _of_edit(direction: str, edit: ir.HeaderEdit) -> Iterator[UnsupportedSetting]:
    for item in (*edit.set, *edit.add):
        match = _VARIABLE.search(item.value)
        if match is not None:
            reason = f"{direction} header {item.name}: {match.group()} {SENT_LITERALLY}"
            yield UnsupportedSetting(NO_ORIGIN, reason)
