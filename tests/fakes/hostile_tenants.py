"""Tenants with one kind of hostile object each."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fakes.hostile_kinds import KINDS
from fakes.hostile_objects import is_admitted
from fakes.short_objects import Object, completed, services


class Tenant(msgspec.Struct, frozen=True):
    """The objects of one kind, in a namespace."""

    kind: str
    namespace: str
    objects: tuple[Object, ...]


def tenant_of(kind: str, namespace: str, objects: list[Object]) -> Tenant | None:
    """Return a tenant with these objects and the Services that their routes use.

    Return None if the API server does not admit one of them.
    """
    # Without common parts, which the admission of one object would complete in others.
    copies = msgspec.json.decode(msgspec.json.encode(objects))
    own = [completed(raw, namespace) for raw in copies]
    present = {(raw["kind"], raw["metadata"]["name"]) for raw in own}
    own += [
        raw for raw in services(namespace) if (raw["kind"], raw["metadata"]["name"]) not in present
    ]
    return Tenant(kind, namespace, tuple(own)) if all(map(is_admitted, own)) else None


def tenants() -> Iterator[Tenant]:
    """Yield the admitted objects of all kinds."""
    for number, (name, objects) in enumerate(KINDS.items()):
        tenant = tenant_of(name, f"k{number}", objects)
        assert tenant is not None, name
        yield tenant
