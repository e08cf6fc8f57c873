"""Decides which workloads the node runs as data planes, and what they mount. No I/O.

Data planes may run with the rights of the node itself. The API server lets only the controller and
cluster administrators write workloads, ConfigMaps and Secrets with the label of data planes
(:mod:`kube_api_server`). The node checks in addition that a workload belongs to a Gateway that
this installation serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.apis.resources import GATEWAYS
from gatehouse.controller.provisioner import names
from gatehouse.controller.provisioner.owned_objects import gateway_name
from gatehouse.kube.apply import controller_reference
from kube_base.types.objects import ReadOnlyObject

_Objects = Mapping[tuple[str, str], ReadOnlyObject]


def workload_refusal(
    workload: ReadOnlyObject, gateways: _Objects, classes: _Objects, has_run: Callable[[], bool]
) -> str:
    """Return why a workload must not run as a data plane; empty if it may.

    ``has_run``: whether the node has run it before. Such a data plane stays while its GatewayClass
    is missing, as it does in a cluster.
    """
    namespace = workload["metadata"]["namespace"]
    name = gateway_name(workload)
    if name is None:
        return "metadata.ownerReferences: not controlled by a Gateway with the labels of its own"
    owner = controller_reference(workload) or {}
    gateway = gateways.get((namespace, name))
    if gateway is None or gateway["metadata"].get("uid") != owner.get("uid"):
        uid = owner.get("uid")
        return f"metadata.ownerReferences: {GATEWAYS.kind} {namespace}/{name} ({uid}) not found"
    class_name = (gateway.get("spec") or {}).get("gatewayClassName", "")
    gateway_class = classes.get(("", class_name))
    if gateway_class is None:
        return "" if has_run() else f"GatewayClass {class_name} not found"
    controller = (gateway_class.get("spec") or {}).get("controllerName", "")
    if controller not in CONTROLLERS:
        return f"GatewayClass {class_name}: spec.controllerName: {controller!r} is another's"
    return ""


def may_mount(pod: ReadOnlyObject, source: ReadOnlyObject) -> bool:
    """Return whether a Pod may mount a ConfigMap or Secret. Pods of no data plane may.

    An object with a name of the controller's own must be the controller's: after a deletion, a user
    may have created another one. The GatewayClass decides which other objects are mounted.
    """
    if names.GATEWAY_NAME not in (pod["metadata"].get("labels") or {}):
        return True
    workload = (controller_reference(pod) or {}).get("name", "")
    if not source["metadata"]["name"].startswith(f"{workload}-"):
        return True
    owner = gateway_name(source)
    labels = pod["metadata"].get("labels") or {}
    return owner is not None and labels.get(names.GATEWAY_NAME) == names.label_value(owner)
