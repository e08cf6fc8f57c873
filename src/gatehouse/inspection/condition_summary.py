"""Conditions of objects that are not good, for commands that show them."""

from __future__ import annotations

import msgspec

from gatehouse.apis.condition_parts import WARNING_REASONS, condition_parts, is_good
from gatehouse.compiler.frontends.gateway_api.backend_problems import ALL_WEIGHTS_ZERO
from gatehouse.controller.overdue_statuses import NOT_SERVED_YET
from gatehouse.controller.quarantines import LEFT_OUT
from kube_base.types.objects import Object

_EXCEPTIONS = (
    "not supported:",
    "not provisioned:",
    f"{LEFT_OUT}:",
    ALL_WEIGHTS_ZERO,
    NOT_SERVED_YET,
)
"""Texts in messages of good conditions about parts that are not served."""


class BadCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of an object, or of a part of it, that is not good."""

    object: str
    """``Kind namespace/name``."""
    part: str
    """Listener or parent that the condition is about; empty for the object."""
    type: str
    status: str
    reason: str
    message: str

    @property
    def text(self) -> str:
        """The condition as one line."""
        part = f" {self.part}" if self.part else ""
        why = self.message or self.reason or "no message"
        return f"{self.object}{part}: {self.type} is {self.status}: {why}"


def object_name(item: Object) -> str:
    """Return ``Kind namespace/name``."""
    metadata = item["metadata"]
    namespace = metadata.get("namespace")
    name = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
    return f"{item['kind']} {name}"


def bad_conditions(item: Object) -> list[BadCondition]:
    """Return the conditions that are not good of an object, its listeners, parents and so on."""
    name = object_name(item)
    result = []
    for part, conditions in condition_parts(item.get("status") or {}):
        for candidate in conditions:
            status, kind = candidate.get("status", "Unknown"), candidate.get("type", "")
            reason, message = candidate.get("reason", ""), candidate.get("message", "")
            if is_good(kind, status) and not _has_exception(kind, reason, message):
                continue
            result.append(BadCondition(name, part, kind, status, reason, message))
    return result


def _has_exception(kind: str, reason: str, message: str) -> bool:
    """Return whether a good condition reports parts that are not served."""
    if reason in WARNING_REASONS:
        return True
    partly = kind == "Accepted" and reason not in ("Accepted", "")
    return partly or any(text in message for text in _EXCEPTIONS)


def condition_status(conditions: list[Object] | None, kind: str) -> tuple[str, str]:
    """Return status and message of a condition; Unknown if it is absent."""
    match = next(
        (candidate for candidate in conditions or () if candidate.get("type") == kind), None
    )
    if match is None:
        return "Unknown", "no status yet"
    return match.get("status", "Unknown"), match.get("message", "")
