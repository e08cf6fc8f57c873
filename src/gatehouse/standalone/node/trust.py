"""Decides which workloads the node runs as data planes. No I/O.

Data planes run with the rights of the node itself. The API server lets only the controller and
cluster administrators write workloads with the label of data planes (:mod:`gatehouse.apiserver`).
The node checks in addition that a workload belongs to a Gateway that this installation serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.apis.resources import GATEWAYS
from gatehouse.controller.provisioner.owned_objects import gateway_name
from gatehouse.kube.apply import controller_of

Object = Mapping[str, Any]
Objects = Mapping[tuple[str, str], Object]


def refusal(
    workload: Object, gateways: Objects, classes: Objects, has_run: Callable[[], bool]
) -> str:
    """Return why a workload must not run as a data plane; empty if it may.

    ``has_run``: whether the node has run it before. Such a data plane stays while its GatewayClass
    is missing, as it does in a cluster.
    """
    namespace = workload["metadata"]["namespace"]
    name = gateway_name(workload)
    if name is None:
        return "metadata.ownerReferences: not controlled by a Gateway with the labels of its own"
    owner = controller_of(workload) or {}
    gateway = gateways.get((namespace, name))
    if gateway is None or gateway["metadata"].get("uid") != owner.get("uid"):
        uid = owner.get("uid")
        return f"metadata.ownerReferences: {GATEWAYS.kind} {namespace}/{name} ({uid}) not found"
    class_name = (gateway.get("spec") or {}).get("gatewayClassName", "")
    found = classes.get(("", class_name))
    if found is None:
        return "" if has_run() else f"GatewayClass {class_name} not found"
    controller = (found.get("spec") or {}).get("controllerName", "")
    if controller not in CONTROLLERS:
        return f"GatewayClass {class_name}: spec.controllerName: {controller!r} is another's"
    return ""
