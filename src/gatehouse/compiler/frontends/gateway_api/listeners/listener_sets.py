"""ListenerSets: parent Gateway, permission and order of precedence."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.allowed_namespaces import admits
from gatehouse.compiler.frontends.gateway_api.classes import is_managed
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.incremental.query import Ask, Key


def parent_of(ask: Ask, key: Key) -> Key | None:
    """Return the managed Gateway that a ListenerSet names; None if it names none."""
    found = ask.read(key)
    if not isinstance(found, gateway.ListenerSet):
        return None
    parent = found.spec.parent_ref
    if (parent.group, parent.kind) != (gateway.GROUP, "Gateway"):
        return None
    target: Key = ("Gateway", parent.namespace or key[1], parent.name)
    return target if ask(is_managed, target) else None


def refusal(ask: Ask, key: Key) -> Finding | None:
    """Return why a Gateway rejects a ListenerSet; None if it accepts it."""
    target = ask(parent_of, key)
    if target is None:
        return None
    allowed = ask.read(target).spec.allowed_listeners.namespaces
    if admits(ask, allowed, key[1], target[1]):
        return None
    message = (
        f"spec.parentRef: Gateway {target[1]}/{target[2]} does not allow ListenerSets from "
        f"namespace {key[1]}; see its spec.allowedListeners"
    )
    return Finding(Reason.SET_NOT_ALLOWED, message)


def owners(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the owners of a Gateway's listeners: itself, then its ListenerSets, oldest first."""
    found = []
    for owner in ask.read(("@sets", key[1], key[2])):
        if ask(parent_of, owner) == key and ask(refusal, owner) is None:
            found.append((ask(created, owner), owner))
    return (key, *(owner for _, owner in sorted(found)))


def created(ask: Ask, key: Key) -> str:
    """Return the creation time of an object, RFC 3339."""
    return str(ask.read(key).metadata.creation_timestamp)
