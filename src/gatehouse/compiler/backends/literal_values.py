"""Changes of headers that have another effect than their author may expect.

NGINX Gateway Fabric expands values that look like variables of NGINX, which Gateway API does not
have. Here such a value is sent as it is. A proxy may send a response header again that a route
removes. The route's condition reports both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

_VARIABLE = re.compile(r"\$(?:[a-z][a-z0-9_]+|\{[a-z][a-z0-9_]+\})")

_NONE = ir.HeaderEdit()

SENT_LITERALLY = "is sent literally: variables are not expanded"
"""End of the reason."""


def literal_values(route: ir.Route, always_sent: str = "") -> list[UnsupportedSetting]:
    """Return a finding for each header of a route whose value looks like a variable.

    `always_sent` is a response header in lower case that the proxy adds if a route removes it.
    """
    holders: list[ir.Route | ir.Backend] = [route]
    if isinstance(route.action, ir.Forward):
        holders += route.action.backends
    for holder in holders:
        if holder.request_headers != _NONE or holder.response_headers != _NONE:
            return [*_literal_values(holders), *_sent_again(holders, always_sent)]
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


def _sent_again(
    holders: list[ir.Route | ir.Backend], always_sent: str
) -> Iterator[UnsupportedSetting]:
    for holder in holders:
        for name in holder.response_headers.remove:
            if name.lower() == always_sent:
                reason = f"response header {name}: a response without it gets that of the proxy"
                yield UnsupportedSetting(NO_ORIGIN, reason)
