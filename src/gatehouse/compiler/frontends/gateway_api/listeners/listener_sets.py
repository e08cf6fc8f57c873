"""ListenerSets: which of them add their listeners to a Gateway, and in which order."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.allowed_namespaces import admits
from gatehouse.compiler.frontends.gateway_api.classes import is_managed
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.incremental.query import Ask, Key


def parent_of(ask: Ask, key: Key) -> Key | None:
    """Give the Gateway of ours that a ListenerSet names; None if it names none."""
    found = ask.read(key)
    if not isinstance(found, gateway.ListenerSet):
        return None
    parent = found.spec.parent_ref
    if (parent.group, parent.kind) != (gateway.GROUP, "Gateway"):
        return None
    target: Key = ("Gateway", parent.namespace or key[1], parent.name)
    return target if ask(is_managed, target) else None


def refusal(ask: Ask, key: Key) -> Finding | None:
    """Say why a Gateway does not take a ListenerSet; None if it does."""
    target = ask(parent_of, key)
    if target is None:
        return None
    allowed = ask.read(target).spec.allowed_listeners.namespaces
    if admits(ask, allowed, key[1], target[1]):
        return None
    message = (
        f"parentRef: allowedListeners of Gateway {target[1]}/{target[2]} takes no ListenerSet of "
        f"namespace {key[1]}"
    )
    return Finding(Reason.SET_NOT_ALLOWED, message)


def owners(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Give whose listeners a Gateway has, the strongest first: its own, then the older sets'."""
    found = []
    for owner in ask.read(("@sets", key[1], key[2])):
        if ask(parent_of, owner) == key and ask(refusal, owner) is None:
            found.append((ask(created, owner), owner))
    return (key, *(owner for _, owner in sorted(found)))


def created(ask: Ask, key: Key) -> str:
    """Give the time when an object was made, RFC 3339."""
    return str(ask.read(key).metadata.creation_timestamp)
