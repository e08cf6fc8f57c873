"""Record by which a front end plugs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gatehouse.compiler.frontends.contribution import Contribution
from gatehouse.compiler.frontends.kinds import Kinds
from gatehouse.compiler.ir import gateway as ir
from gatehouse.incremental.query import Ask, Key

MergeStatus = Callable[[Mapping[str, Any] | None, Any, str], dict[str, Any] | None]
"""Merges a desired status with the current one at a time (RFC 3339). Returns the whole status to
write; None if the current one is up to date."""


class FrontEnd(msgspec.Struct, frozen=True):
    """Everything that the controller needs of a front end. Each package exports one.

    The last three fields are for front ends whose objects attach to listeners, like routes.
    """

    kinds: Kinds
    """Kinds that it reads, with the status, certificates and owned objects of each."""
    merge_status: MergeStatus
    """Merges the statuses of its kinds."""
    contribution: Callable[[Ask, Key], Contribution] | None = None
    """Query: additions to the IR of a Gateway."""
    attached: Callable[[Ask, Key], Mapping[tuple[Key, str], int]] | None = None
    """Query: number of attached objects per listener of a Gateway and its ListenerSets."""
    extend: Callable[[Ask, Key, ir.GatewayConfiguration], ir.GatewayConfiguration] | None = None
    """Returns the IR of a Gateway with additions that are too many to copy in each pass."""
