"""XMeshes: those that name Gatehouse get a status, which says that it serves no service mesh."""

from __future__ import annotations

from typing import Any

import pytest

from fakes import one_route
from fakes.one_route import BACKEND
from gatehouse.compiler.frontends import gateway_api
from gatehouse.incremental.query import Key

MESH: Key = ("XMesh", "", "m")
PENDING = {
    "type": "Accepted",
    "status": "Unknown",
    "reason": "Pending",
    "message": "Waiting for controller",
    "lastTransitionTime": "1970-01-01T00:00:00Z",
}
"""Condition of a new XMesh (MeshStatus.conditions)."""


def merged(controller: str, current: dict[str, Any] | None = None) -> Any:
    """Return the status to write for an XMesh; None: none."""
    rules = [{"backendRefs": [BACKEND]}]
    world = one_route.engine("HTTPRoute", rules, (MESH, {"controllerName": controller}))
    with world.compile() as ask:
        outcome = ask(gateway_api.gateway_api_status, MESH)
    if outcome is None:
        return None
    return gateway_api.GATEWAY_API_FRONT_END.merge_status(current, outcome, "T")


@pytest.mark.parametrize("controller", [gateway_api.NGINX, gateway_api.ENVOY])
def test_mesh_of_gatehouse_is_not_accepted(controller: str) -> None:
    """The condition "MUST be set by a controller when it sees a Mesh using its controller string"
    (MeshConditionAccepted)."""
    status = merged(controller, {"conditions": [PENDING]})
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Accepted", "False")
    assert condition["reason"] == "Unsupported"
    assert condition["message"] == (
        f"spec.controllerName: {controller} serves Gateways only: service meshes are not supported"
    )
    assert condition["lastTransitionTime"] == "T"
    assert status["supportedFeatures"] == []
    assert merged(controller, status) is None


def test_mesh_of_another_controller_is_left_alone() -> None:
    assert merged("example.com/mesh", {"conditions": [PENDING]}) is None
