"""Order of the parts of a search for the cause of a rejection. No I/O.

Routes are before other objects, and what changed first is before what changed later. So a policy is
the cause and not its new route, and of two objects that fail together the one that changed last.

A new controller has not seen the changes (:mod:`gatehouse.controller.history_order`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.held_back import changed_parts, is_route
from gatehouse.controller.published_versions import Version

Parts = tuple[Suspect, ...]


def parts_in_order(
    changes: ChangeLog, good: ir.GatewayConfiguration, new: ir.GatewayConfiguration, then: int
) -> Parts:
    """Return the parts because of which ``new`` differs from ``good``, in their order.

    ``then``: number of changes before ``good``.
    """
    parts = changed_parts(good, new, partial(changes.changed_since, then=then))
    return tuple(sorted(parts, key=partial(_place, changes)))


def parts_after(
    changes: ChangeLog, good: Version, new: ir.GatewayConfiguration, parts: Iterable[Suspect]
) -> Parts:
    """Return the parts of ``new`` that changed since ``good`` and are after some parts, in their
    order."""
    last = max(_place(changes, part) for part in parts)
    changed = parts_in_order(changes, good.gateway, new, good.changes)
    return tuple(part for part in changed if _place(changes, part) > last)


def _place(changes: ChangeLog, part: Suspect) -> tuple[bool, int]:
    return not is_route(part), changes.last(gateway_api.key_of(part.origin))
