"""Which namespaces are meant: all, the same, or those that a selector chooses."""

from __future__ import annotations

from gatehouse.apis import core, gateway
from gatehouse.query import Ask


def admits(ask: Ask, wanted: gateway.RouteNamespaces, namespace: str, own: str) -> bool:
    """Whether ``wanted``, said by an object of namespace ``own``, includes ``namespace``."""
    match wanted.from_:
        case "All":
            return True
        case "Same":
            return namespace == own
        case "Selector":
            selector = wanted.selector
            return selector is not None and selects(selector, ask(labels_of, namespace))
    return False


def labels_of(ask: Ask, namespace: str) -> dict[str, str] | None:
    """Give the labels of a namespace; None if it does not exist."""
    found = ask.read(("Namespace", "", namespace))
    return found.metadata.labels if isinstance(found, core.Namespace) else None


def selects(selector: gateway.LabelSelector, labels: dict[str, str] | None) -> bool:
    """Whether a selector chooses something with these labels."""
    if labels is None or not selector.match_labels.items() <= labels.items():
        return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions)


def _holds(requirement: gateway.SelectorRequirement, labels: dict[str, str]) -> bool:
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
