"""Existing objects of each Gateway, as last seen. No I/O.

Informers feed it, so that reconciling an unchanged Gateway needs no requests.
"""

from __future__ import annotations

from collections.abc import Mapping

from gatehouse.apis.resources import GATEWAYS
from gatehouse.controller.provisioner import names
from gatehouse.kube.apply import controller_reference
from gatehouse.kube.store import Changes
from kube_base.types.objects import ReadOnlyObject
from kube_base.types.resource import Resource

ObjectKey = tuple[str, str]
"""Kind and name of an object in the namespace of its Gateway."""


class OwnedObjects:
    """Owned objects by Gateway (namespace and name)."""

    def __init__(self) -> None:
        self._by_gateway: dict[tuple[str, str], dict[ObjectKey, ReadOnlyObject]] = {}
        self._owners: dict[tuple[str, str, str], str] = {}

    def on_changes(self, resource: Resource, changes: Changes) -> None:
        """Store changed objects of one kind."""
        for (namespace, name), change in changes.items():
            current = change.new
            key = (resource.kind, name)
            previous_owner = self._owners.pop((resource.kind, namespace, name), None)
            if previous_owner is not None:
                self._forget((namespace, previous_owner), key)
            owner = gateway_name(current) if current is not None else None
            if owner is not None and current is not None:
                self._owners[(resource.kind, namespace, name)] = owner
                self._by_gateway.setdefault((namespace, owner), {})[key] = current

    def of(self, gateway: tuple[str, str]) -> Mapping[ObjectKey, ReadOnlyObject]:
        """Return the objects of a Gateway."""
        return dict(self._by_gateway.get(gateway, {}))

    def _forget(self, gateway: tuple[str, str], key: ObjectKey) -> None:
        objects = self._by_gateway[gateway]
        del objects[key]
        if not objects:
            del self._by_gateway[gateway]


def gateway_name(obj: ReadOnlyObject) -> str | None:
    """Return the name of the Gateway that owns an object; None if none does.

    Labels and controller reference must agree: labels alone are easily copied to another object.
    """
    labels = obj["metadata"].get("labels") or {}
    owner = controller_reference(obj)
    if owner is None or owner.get("kind") != GATEWAYS.kind:
        return None
    if str(owner.get("apiVersion", "")).partition("/")[0] != GATEWAYS.group:
        return None
    name = str(owner.get("name", ""))
    expected = {
        names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
        names.GATEWAY_NAME: names.label_value(name),
    }
    return name if name and expected.items() <= labels.items() else None
