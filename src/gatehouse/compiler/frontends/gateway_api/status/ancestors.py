"""Entries in the statuses of objects, one for each Gateway that uses the object."""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.compiler.frontends.gateway_api.classes import class_controller
from gatehouse.compiler.frontends.gateway_api.findings import (
    ALL_RESOLVED,
    Finding,
    Reason,
    fold_findings,
)
from gatehouse.compiler.frontends.gateway_api.status.types import AncestorStatus
from gatehouse.incremental.query import Ask, Key


def ancestor_entry(
    ask: Ask, gateway: Key, accepted: str, findings: Sequence[Finding], generation: int
) -> AncestorStatus:
    """Return the entry of a Gateway. ``accepted`` is the message if no finding is about that."""
    defaults = (Finding(Reason.ACCEPTED, accepted), ALL_RESOLVED)
    conditions = fold_findings(findings, defaults, generation)
    return AncestorStatus(ask(class_controller, gateway), gateway, conditions)
