"""ReferenceGrants: permission for references across namespaces. Read only here."""

from __future__ import annotations

import msgspec

from gatehouse.apis import policies
from gatehouse.incremental.query import Ask


class Reference(msgspec.Struct, frozen=True):
    """A reference that may cross namespaces."""

    from_group: str
    from_kind: str
    from_namespace: str
    to_group: str
    to_kind: str
    to_namespace: str
    to_name: str


def permitted(ask: Ask, reference: Reference) -> bool:
    """Return whether a reference stays in its namespace or a ReferenceGrant there allows it."""
    if reference.from_namespace == reference.to_namespace:
        return True
    keys = ask.read(("@grants", reference.to_namespace))
    return any(_allows(ask.read(key), reference) for key in keys)


def _allows(grant: object, reference: Reference) -> bool:
    if not isinstance(grant, policies.ReferenceGrant):
        return False
    source = (reference.from_group, reference.from_kind, reference.from_namespace)
    return any(
        (entry.group, entry.kind, entry.namespace) == source for entry in grant.spec.from_
    ) and any(
        (entry.group, entry.kind) == (reference.to_group, reference.to_kind)
        and entry.name in ("", reference.to_name)
        for entry in grant.spec.to
    )
