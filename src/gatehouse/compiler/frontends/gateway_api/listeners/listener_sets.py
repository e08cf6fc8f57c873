"""ListenerSets: parent Gateway, permission and order of precedence."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.allowed_namespaces import admits
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.incremental.query import Ask, Key


def parent_of(ask: Ask, key: Key) -> Key | None:
    """Return the managed Gateway that a ListenerSet names; None if it names none."""
    listener_set = ask.read(key)
    if not isinstance(listener_set, gateway.ListenerSet):
        return None
    parent = listener_set.spec.parent_ref
    if (parent.group, parent.kind) != (gateway.GATEWAY_API_GROUP, "Gateway"):
        return None
    target: Key = ("Gateway", parent.namespace or key[1], parent.name)
    return target if ask(is_managed_gateway, target) else None


def listener_set_refusal(ask: Ask, key: Key) -> Finding | None:
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


def listener_owners(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the owners of a Gateway's listeners: itself, then its ListenerSets, oldest first."""
    result = []
    for owner in ask.read(("@sets", key[1], key[2])):
        if ask(parent_of, owner) == key and ask(listener_set_refusal, owner) is None:
            result.append((ask(created, owner), owner))
    return (key, *(owner for _, owner in sorted(result)))


def created(ask: Ask, key: Key) -> str:
    """Return the creation time of an object, RFC 3339."""
    return str(ask.read(key).metadata.creation_timestamp)
