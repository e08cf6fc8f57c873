"""What was made for each Gateway, as it was last seen. Pure.

Fed by watches, so that looking after a Gateway that needs nothing asks the API server nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis.resources import GATEWAYS, Resource
from gatehouse.controller.provisioner import names
from gatehouse.kube.apply import controller_of
from gatehouse.kube.store import Changes

Object = Mapping[str, Any]

Place = tuple[str, str]
"""Kind and name of an object beside its Gateway."""


class OwnedObjects:
    """The objects by Gateway (namespace and name)."""

    def __init__(self) -> None:
        self._by_gateway: dict[tuple[str, str], dict[Place, Object]] = {}
        self._owners: dict[tuple[str, str, str], str] = {}

    def on_changes(self, resource: Resource, changes: Changes) -> None:
        """Take in changed objects of one kind."""
        for (namespace, name), change in changes.items():
            found = change.new
            place = (resource.kind, name)
            before = self._owners.pop((resource.kind, namespace, name), None)
            if before is not None:
                self._forget((namespace, before), place)
            owner = gateway_name(found) if found is not None else None
            if owner is not None and found is not None:
                self._owners[(resource.kind, namespace, name)] = owner
                self._by_gateway.setdefault((namespace, owner), {})[place] = found

    def of(self, gateway: tuple[str, str]) -> Mapping[Place, Object]:
        """Give what there is of a Gateway's."""
        return dict(self._by_gateway.get(gateway, {}))

    def _forget(self, gateway: tuple[str, str], place: Place) -> None:
        held = self._by_gateway[gateway]
        del held[place]
        if not held:
            del self._by_gateway[gateway]


def gateway_name(made: Object) -> str | None:
    """Give the name of the Gateway that an object was made for; None if for none.

    Labels and controller reference must agree: labels alone are easily copied to another object.
    """
    labels = made["metadata"].get("labels") or {}
    owner = controller_of(made)
    if owner is None or owner.get("kind") != GATEWAYS.kind:
        return None
    if str(owner.get("apiVersion", "")).partition("/")[0] != GATEWAYS.group:
        return None
    name = str(owner.get("name", ""))
    expected = {names.MANAGED_BY: names.MANAGER, names.GATEWAY_NAME: names.label_value(name)}
    return name if name and expected.items() <= labels.items() else None
