"""Controller of Endpoints for Services with a selector, which older clients read.

Newer ones read EndpointSlices. Both have the same Pods.
"""

from __future__ import annotations

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.endpoint_slices import address_family, by_ports, is_selected
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.errors import StatusError
from kube_api_server.objects.pods import is_ready_pod
from kube_api_server.storage.entries import StoreEvent
from kube_base.types.objects import Object

_MANAGER = "kube-controller-manager"
MANAGED_LABEL, MANAGED_BY = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
_HEADLESS_LABEL = "service.kubernetes.io/headless"
_CAPACITY = "endpoints.kubernetes.io/over-capacity"
MAX_ADDRESSES = 1000
"""Maximum number of addresses in Endpoints. An annotation says that some are missing."""

_ENDED = ("Succeeded", "Failed")
_FORBIDDEN = 403


class EndpointsController:
    """Reconciles the Endpoints of Services with their Pods."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._services = context.kind("", "services").prefix
        self._endpoints = context.kind("", "endpoints").prefix
        store = context.store
        self.queue = ReconcileQueue("endpoints", self._work, self._initial)
        store.listen(self._services, lambda event: self.queue.add(_named(event.key)))
        store.listen(context.kind("", "pods").prefix, self._pod_changed)
        store.listen(self._endpoints, self._endpoints_changed)

    def _initial(self) -> list[str]:
        """Return the names of all Services, and of Endpoints whose Service may be gone."""
        store = self._context.store
        names = [_named(key) for key, _ in store.list(self._services)]
        return names + [
            _named(key) for key, entry in store.list(self._endpoints) if _is_managed(entry.value)
        ]

    def _pod_changed(self, event: StoreEvent) -> None:
        states = [entry.value for entry in (event.before, event.now) if entry is not None]
        prefix = f"{self._services}{event.key.split('/')[3]}/"
        for key, service in self._context.store.list(prefix):
            selector = (service.value.get("spec") or {}).get("selector")
            if selector and any(is_selected(selector, pod) for pod in states):
                self.queue.add(_named(key))

    def _endpoints_changed(self, event: StoreEvent) -> None:
        """Queue the Service, so that changes by others are reverted."""
        if any(entry and _is_managed(entry.value) for entry in (event.before, event.now)):
            self.queue.add(_named(event.key))

    async def _work(self, name: str) -> None:
        context = self._context
        entry = context.store.get(self._services + name)
        if entry is None:
            await context.delete(self._endpoints + name)
            return
        service = entry.value
        spec = service.get("spec") or {}
        if not spec.get("selector") or spec.get("type") == "ExternalName":
            return
        desired = desired_endpoints(service, self._pods(service))
        current = context.store.latest(self._endpoints + name)
        if current is None:
            await self._create(desired, service)
        elif _updated(current.value, desired) != current.value:
            call = context.call(context.kind("", "endpoints"), desired, _MANAGER)
            await context.verbs.change(call, lambda obj: _updated(obj, desired))

    def _pods(self, service: Object) -> list[Object]:
        """Return the Pods of a Service that may serve."""
        spec, namespace = service["spec"], service["metadata"]["namespace"]
        family = (spec.get("ipFamilies") or ["IPv4"])[0]
        with_unready = bool(spec.get("publishNotReadyAddresses"))
        prefix = f"{self._context.kind('', 'pods').prefix}{namespace}/"
        pods = (entry.value for _, entry in self._context.store.list(prefix))
        return [
            pod
            for pod in pods
            if is_selected(spec["selector"], pod)
            and (status := pod.get("status") or {}).get("podIP")
            and address_family(status["podIP"]) == family
            and status.get("phase") not in _ENDED
            and (with_unready or not pod["metadata"].get("deletionTimestamp"))
        ]

    async def _create(self, desired: Object, service: Object) -> None:
        """Create Endpoints, unless Service or namespace are being deleted."""
        if service["metadata"].get("deletionTimestamp"):
            return
        try:
            await self._context.create("", "endpoints", desired, _MANAGER)
        except StatusError as error:
            if error.code != _FORBIDDEN:
                raise


def _named(key: str) -> str:
    """Return namespace and name of a store key."""
    return key.split("/", 3)[3]


def _is_managed(endpoints: Object) -> bool:
    labels = endpoints["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED_LABEL) == MANAGED_BY)


def _updated(current: Object, desired: Object) -> Object:
    """Return Endpoints with the labels and subsets of others. Annotations of users stay."""
    metadata = {**current["metadata"], "labels": desired["metadata"]["labels"]}
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(_CAPACITY, None)
    annotations |= desired["metadata"].get("annotations") or {}
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    result = {**current, "metadata": metadata}
    result.pop("subsets", None)
    return result | ({"subsets": desired["subsets"]} if desired["subsets"] else {})


def desired_endpoints(service: Object, pods: list[Object]) -> Object:
    """Return the desired Endpoints of a Service."""
    metadata, spec = service["metadata"], service["spec"]
    labels = {**(metadata.get("labels") or {}), MANAGED_LABEL: MANAGED_BY}
    labels.pop(_HEADLESS_LABEL, None)
    if spec.get("clusterIP") == "None":
        labels[_HEADLESS_LABEL] = ""
    result: Object = {
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels}
    }
    if len(pods) > MAX_ADDRESSES:
        # Ready Pods are kept.
        pods = sorted(pods, key=lambda pod: not is_ready_pod(pod))[:MAX_ADDRESSES]
        result["metadata"]["annotations"] = {_CAPACITY: "truncated"}
    result["subsets"] = [_subset(service, *group) for group in by_ports(service, pods)]
    return result


def _subset(service: Object, pods: list[Object], ports: list[Object]) -> Object:
    all_ready = bool(service["spec"].get("publishNotReadyAddresses"))
    result: Object = {}
    for pod in sorted(pods, key=lambda pod: str(pod["status"]["podIP"])):
        field = "addresses" if all_ready or is_ready_pod(pod) else "notReadyAddresses"
        result.setdefault(field, []).append(_address(service, pod))
    listed = [{key: value for key, value in port.items() if value != ""} for port in ports]
    return result | ({"ports": listed} if listed else {})


def _address(service: Object, pod: Object) -> Object:
    metadata, spec = pod["metadata"], pod["spec"]
    result: Object = {"ip": pod["status"]["podIP"]}
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        result["hostname"] = spec["hostname"]
    if spec.get("nodeName"):
        result["nodeName"] = spec["nodeName"]
    reference = {"kind": "Pod", **{key: metadata[key] for key in ("name", "namespace", "uid")}}
    return {**result, "targetRef": reference}
