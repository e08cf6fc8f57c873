"""Conditions in the status of any object, and which of them report a problem."""

from __future__ import annotations

from collections.abc import Iterator

from kube_base.types.objects import Object

GOOD_IF_FALSE = frozenset(
    {"Conflicted", "OverlappingTLSConfig", "PartiallyInvalid", "InsecureFrontendValidationMode"}
)
"""Condition types that report a problem by the status True."""


WARNING_REASONS = frozenset({"ExpiresSoon", "SomeExpired"})
"""Reasons of good conditions that report a partial problem, or turn bad if nothing is done."""


def is_good(kind: str, status: str) -> bool:
    """Return whether a condition reports no problem."""
    return status == ("False" if kind in GOOD_IF_FALSE else "True")


def condition_parts(status: Object) -> Iterator[tuple[str, list[Object]]]:
    """Yield the parts of a status with their conditions: the object, listeners, parents and so on.

    The name of a part is empty for the object.
    """
    yield "", status.get("conditions") or []
    for listener in status.get("listeners") or ():
        yield f"listener {listener.get('name', '')}", listener.get("conditions") or []
    for field, reference in (("parents", "parentRef"), ("ancestors", "ancestorRef")):
        for entry in status.get(field) or ():
            parent = entry.get(reference) or {}
            names = (parent.get("name"), parent.get("sectionName"))
            part = f"at {'/'.join(filter(None, names))}"
            yield part, entry.get("conditions") or []
    for entry in status.get("controllers") or ():
        yield "", entry.get("conditions") or []
