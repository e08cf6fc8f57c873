"""Label selectors and their evaluation."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.apis.meta import View


class SelectorRequirement(View, frozen=True):
    """One of a label selector's ``matchExpressions``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(View, frozen=True):
    """A label selector. All requirements must match."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[SelectorRequirement, ...] = ()


def selector_matches(selector: LabelSelector, labels: Mapping[str, str] | None) -> bool:
    """Return whether a selector matches these labels."""
    if labels is None or not selector.match_labels.items() <= labels.items():
        return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions)


def _holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    present = requirement.key in labels
    match requirement.operator:
        case "In":
            return present and labels[requirement.key] in requirement.values
        case "NotIn":
            return not present or labels[requirement.key] not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
    return False
