"""Namespace filters: all namespaces, the same, or those that a label selector matches."""

from __future__ import annotations

from gatehouse.apis import core, gateway
from gatehouse.apis.selectors import selector_matches
from gatehouse.incremental.query import Ask


def admits(ask: Ask, allowed: gateway.RouteNamespaces, namespace: str, own: str) -> bool:
    """Return whether ``allowed``, set by an object of namespace ``own``, includes ``namespace``."""
    match allowed.from_:
        case "All":
            return True
        case "Same":
            return namespace == own
        case "Selector":
            selector = allowed.selector
            return selector is not None and selector_matches(selector, ask(labels_of, namespace))
    return False


def labels_of(ask: Ask, namespace: str) -> dict[str, str] | None:
    """Return the labels of a namespace; None if it does not exist."""
    resource = ask.read(("Namespace", "", namespace))
    return resource.metadata.labels if isinstance(resource, core.Namespace) else None
