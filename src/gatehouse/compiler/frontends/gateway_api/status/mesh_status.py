"""Statuses of XMeshes, which no controller of Gatehouse serves."""

from __future__ import annotations

from gatehouse.apis import mesh
from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason, condition
from gatehouse.compiler.frontends.gateway_api.status.types import ClassStatus
from gatehouse.incremental.query import Ask, Key


def mesh_status(ask: Ask, key: Key) -> ClassStatus | None:
    """Return the desired status of an XMesh; None if it names the controller of another program."""
    resource = ask.read(key)
    if not isinstance(resource, mesh.XMesh) or resource.spec.controller_name not in CONTROLLERS:
        return None
    name = resource.spec.controller_name
    message = f"spec.controllerName: {name} serves Gateways only: service meshes are not supported"
    refusal = Finding(Reason.MESH_NOT_SERVED, message)
    return ClassStatus((condition(refusal, resource.metadata.generation),))
