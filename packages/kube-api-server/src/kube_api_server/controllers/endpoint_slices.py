"""Controller of EndpointSlices for Services with a selector, from their ready Pods.

https://kubernetes.io/docs/concepts/services-networking/endpoint-slices
"""

from __future__ import annotations

import hashlib

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.errors import StatusError
from kube_api_server.objects.pods import is_ready_pod
from kube_api_server.storage.entries import StoreEvent
from kube_base.types import ip_addresses
from kube_base.types.objects import Object

_MANAGER = "endpointslice-controller.k8s.io"
SERVICE_LABEL = "kubernetes.io/service-name"

MAX_NAME_PREFIX_CHARACTERS = 50
"""Maximum number of characters of a Service's name in the name of a slice."""
MANAGED_LABEL = "endpointslice.kubernetes.io/managed-by"
MAX_ENDPOINTS_PER_SLICE = 100
"""Maximum number of endpoints in one slice."""

GROUP, PLURAL = "discovery.k8s.io", "endpointslices"


class EndpointSliceController:
    """Reconciles the slices of Services with their Pods."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        services, pods = context.kind("", "services").prefix, context.kind("", "pods").prefix
        self.queue = ReconcileQueue(
            "slices", self._work, lambda: [key for key, _ in context.store.list(services)]
        )
        context.store.listen(services, lambda event: self.queue.add(event.key))
        context.store.listen(pods, self._pod_changed)
        context.store.listen(context.kind(GROUP, PLURAL).prefix, self._slice_changed)

    def _pod_changed(self, event: StoreEvent) -> None:
        namespace = event.key.split("/")[3]
        states = [entry.value for entry in (event.before, event.now) if entry is not None]
        prefix = f"{self._context.kind('', 'services').prefix}{namespace}/"
        for key, service in self._context.store.list(prefix):
            selector = (service.value.get("spec") or {}).get("selector")
            if selector and any(is_selected(selector, pod) for pod in states):
                self.queue.add(key)

    def _slice_changed(self, event: StoreEvent) -> None:
        """Queue the Service of an owned slice, so that changes by others are reverted."""
        entry = event.now or event.before
        labels = entry.value["metadata"].get("labels") or {} if entry else {}
        if labels.get(MANAGED_LABEL) == _MANAGER and SERVICE_LABEL in labels:
            namespace = event.key.split("/")[3]
            key = self._context.kind("", "services").key(namespace, labels[SERVICE_LABEL])
            if self._context.store.get(key) is not None:
                self.queue.add(key)

    async def _work(self, key: str) -> None:
        entry = self._context.store.get(key)
        if entry is None:
            return
        service = entry.value
        selector = (service.get("spec") or {}).get("selector")
        if not selector or service["spec"].get("type") == "ExternalName":
            return
        namespace = service["metadata"]["namespace"]
        prefix = f"{self._context.kind('', 'pods').prefix}{namespace}/"
        pods = [
            pod.value
            for _, pod in self._context.store.list(prefix)
            if is_selected(selector, pod.value) and (pod.value.get("status") or {}).get("podIP")
        ]
        for family in ("IPv4", "IPv6"):
            chosen = [pod for pod in pods if address_family(pod["status"]["podIP"]) == family]
            required = family in (service["spec"].get("ipFamilies") or ["IPv4"])
            for group, ports in by_ports(service, chosen) or ([([], [])] if required else []):
                await self._write(service, family, group, ports)
        await self._delete_obsolete(service, pods)

    async def _write(
        self, service: Object, family: str, pods: list[Object], ports: list[Object]
    ) -> None:
        for number in range(max(1, -(-len(pods) // MAX_ENDPOINTS_PER_SLICE))):
            part = pods[number * MAX_ENDPOINTS_PER_SLICE : (number + 1) * MAX_ENDPOINTS_PER_SLICE]
            desired = desired_slice(service, family, part, ports, number)
            await self._put(desired, create=not service["metadata"].get("deletionTimestamp"))

    async def _put(self, obj: Object, *, create: bool) -> None:
        """Write a slice; without `create` only one that exists.

        The slices of a Service that is being deleted go before it. A new one would be deleted and
        replaced endlessly.
        """
        context, metadata = self._context, obj["metadata"]
        served = context.kind(GROUP, PLURAL)
        if context.store.latest(served.key(metadata["namespace"], metadata["name"])) is None:
            if create:
                await context.create(GROUP, PLURAL, obj, _MANAGER)
            return

        def change(current: Object) -> Object:
            current["metadata"]["labels"] = metadata["labels"]
            return {**current, "endpoints": obj["endpoints"], "ports": obj["ports"]}

        await context.verbs.change(context.call(served, obj, _MANAGER), change)

    async def _delete_obsolete(self, service: Object, pods: list[Object]) -> None:
        """Delete obsolete slices."""
        context, metadata = self._context, service["metadata"]
        current_names = set()
        for family in ("IPv4", "IPv6"):
            chosen = [pod for pod in pods if address_family(pod["status"]["podIP"]) == family]
            if chosen or family in (service["spec"].get("ipFamilies") or ["IPv4"]):
                for number in range(max(1, -(-len(chosen) // MAX_ENDPOINTS_PER_SLICE))):
                    current_names.add(_name(metadata["name"], family, number))
        prefix = f"{context.kind(GROUP, PLURAL).prefix}{metadata['namespace']}/"
        for key, entry in list(context.store.list(prefix)):
            labels = entry.value["metadata"].get("labels") or {}
            managed = labels.get(MANAGED_LABEL) == _MANAGER
            of_service = labels.get(SERVICE_LABEL) == metadata["name"]
            if managed and of_service and key.rpartition("/")[2] not in current_names:
                try:
                    await context.delete(key)
                except StatusError:
                    self.queue.add(key)


def is_selected(selector: Object, pod: Object) -> bool:
    """Return whether the selector of a Service matches a Pod."""
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())


def address_family(address: str) -> str:
    """Return the family of an address: `IPv4` or `IPv6`."""
    return f"IPv{ip_addresses.ip_address(address).version}"


def _name(service: str, family: str, number: int) -> str:
    """Return the name of a slice. That of a long name has a digest, so that no two are equal."""
    if len(service) > MAX_NAME_PREFIX_CHARACTERS:
        digest = hashlib.sha256(service.encode()).hexdigest()[:8]
        service = f"{service[: MAX_NAME_PREFIX_CHARACTERS - 9]}-{digest}"
    return f"{service}{'' if family == 'IPv4' else '-v6'}-{number}"


def by_ports(service: Object, pods: list[Object]) -> list[tuple[list[Object], list[Object]]]:
    """Group Pods by the numbers of their named target ports."""
    groups: dict[str, tuple[list[Object], list[Object]]] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        ports = (_port(service_port, pod) for service_port in service["spec"].get("ports") or ())
        numbers = [port for port in ports if port is not None]
        groups.setdefault(str(numbers), ([], numbers))[0].append(pod)
    return list(groups.values())


def _port(port: Object, pod: Object) -> Object | None:
    number = port.get("targetPort", port["port"])
    if isinstance(number, str):
        number = _named_port(number, port.get("protocol", "TCP"), pod)
        if number is None:
            return None
    entry: Object = {
        "name": port.get("name", ""),
        "protocol": port.get("protocol", "TCP"),
        "port": number,
    }
    return entry | ({"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {})


def _named_port(name: str, protocol: str, pod: Object) -> int | None:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == name and port.get("protocol", "TCP") == protocol:
                return int(port["containerPort"])
    return None


def desired_slice(
    service: Object, family: str, pods: list[Object], ports: list[Object], number: int
) -> Object:
    """Return the desired slice."""
    metadata = service["metadata"]
    unready = bool(service["spec"].get("publishNotReadyAddresses"))
    labels = {
        **(metadata.get("labels") or {}),
        SERVICE_LABEL: metadata["name"],
        MANAGED_LABEL: _MANAGER,
    }
    owner = {
        "apiVersion": "v1",
        "kind": "Service",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {
            "name": _name(metadata["name"], family, number),
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [owner],
        },
        "addressType": family,
        "endpoints": [_endpoint(pod, unready=unready) for pod in pods],
        "ports": ports,
    }


def _endpoint(pod: Object, *, unready: bool) -> Object:
    status, metadata = pod.get("status") or {}, pod["metadata"]
    ready = is_ready_pod(pod)
    terminating = bool(metadata.get("deletionTimestamp"))
    endpoint: Object = {
        "addresses": [status["podIP"]],
        "conditions": {
            "ready": unready or (ready and not terminating),
            "serving": ready,
            "terminating": terminating,
        },
        "targetRef": {
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
    }
    if pod["spec"].get("nodeName"):
        endpoint["nodeName"] = pod["spec"]["nodeName"]
    return endpoint
