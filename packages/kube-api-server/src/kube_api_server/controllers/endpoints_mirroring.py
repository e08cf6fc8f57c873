"""Controller that mirrors Endpoints of Services without a selector to EndpointSlices.

It does the same as the controller of this name in kube-controller-manager:
https://kubernetes.io/docs/concepts/services-networking/service/#endpointslice-mirroring
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import msgspec

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.endpoint_slices import (
    GROUP,
    MANAGED_LABEL,
    MAX_NAME_PREFIX_CHARACTERS,
    PLURAL,
    SERVICE_LABEL,
)
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.storage.entries import StoreEvent
from kube_base.types import ip_addresses
from kube_base.types.objects import Object

_MANAGER = "endpointslicemirroring-controller.k8s.io"

_SKIP_LABEL = "endpointslice.kubernetes.io/skip-mirror"
_LEADER_LOCK = "control-plane.alpha.kubernetes.io/leader"
"""Mark of Endpoints that are a lock of the leader election of old clients."""

_PRIVATE_ANNOTATIONS = (
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
)
"""Annotations of Endpoints that mean nothing in a slice."""

MAX_ENDPOINTS_PER_SUBSET = 1000
"""Maximum number of mirrored addresses of one subset, also the maximum of a slice."""


class EndpointsMirroringController:
    """Reconciles the mirrored slices of a Service with its Endpoints."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._endpoints = context.kind("", "endpoints")
        self._services = context.kind("", "services")
        self._slices = context.kind(GROUP, PLURAL)
        self.queue = ReconcileQueue(
            "mirrored slices",
            self._work,
            lambda: [key for key, _ in context.store.list(self._endpoints.prefix)],
        )
        context.store.listen(self._endpoints.prefix, lambda event: self.queue.add(event.key))
        context.store.listen(self._services.prefix, self._service_changed)
        context.store.listen(self._slices.prefix, self._slice_changed)

    def _service_changed(self, event: StoreEvent) -> None:
        _, namespace, name = event.key.rsplit("/", 2)
        self.queue.add(self._endpoints.key(namespace, name))

    def _slice_changed(self, event: StoreEvent) -> None:
        """Queue the Endpoints of an owned slice, so that changes by others are reverted."""
        entry = event.now or event.before
        labels = entry.value["metadata"].get("labels") or {} if entry else {}
        if labels.get(MANAGED_LABEL) == _MANAGER and SERVICE_LABEL in labels:
            namespace = event.key.rsplit("/", 2)[1]
            self.queue.add(self._endpoints.key(namespace, labels[SERVICE_LABEL]))

    async def _work(self, key: str) -> None:
        _, namespace, name = key.rsplit("/", 2)
        desired = {entry["metadata"]["name"]: entry for entry in self._desired(namespace, name)}
        current = dict(self._owned(namespace, name))
        for slice_name, entry in desired.items():
            await self._put(namespace, slice_name, entry)
        # Obsolete slices go last, so that a Service is never without endpoints meanwhile.
        for slice_name in current.keys() - desired.keys():
            await self._context.delete(self._slices.key(namespace, slice_name))

    def _desired(self, namespace: str, name: str) -> list[Object]:
        """Return the slices that Endpoints should have; none if they are not mirrored."""
        endpoints = self._context.store.get(self._endpoints.key(namespace, name))
        service = self._context.store.get(self._services.key(namespace, name))
        if endpoints is None or service is None:
            return []
        if (service.value.get("spec") or {}).get("selector"):
            # Its slices are those of its Pods.
            return []
        deleted = (
            entry.value["metadata"].get("deletionTimestamp") for entry in (endpoints, service)
        )
        return [] if any(deleted) else mirrored_slices(endpoints.value)

    def _owned(self, namespace: str, name: str) -> Iterator[tuple[str, Object]]:
        for key, entry in self._context.store.list(f"{self._slices.prefix}{namespace}/"):
            labels = entry.value["metadata"].get("labels") or {}
            if labels.get(MANAGED_LABEL) == _MANAGER and labels.get(SERVICE_LABEL) == name:
                yield key.rpartition("/")[2], entry.value

    async def _put(self, namespace: str, name: str, desired: Object) -> None:
        context, metadata = self._context, desired["metadata"]
        current = context.store.latest(self._slices.key(namespace, name))
        if current is None:
            await context.create(GROUP, PLURAL, desired, _MANAGER)
            return

        def change(obj: Object) -> Object:
            obj["metadata"]["labels"] = metadata["labels"]
            obj["metadata"]["annotations"] = metadata["annotations"]
            return {**obj, "endpoints": desired["endpoints"], "ports": desired["ports"]}

        await context.verbs.change(context.call(self._slices, desired, _MANAGER), change)


def mirrored_slices(endpoints: Object) -> list[Object]:
    """Return a slice for each address family and list of ports of Endpoints."""
    metadata = endpoints["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if labels.get(_SKIP_LABEL) == "true" or _LEADER_LOCK in annotations:
        return []
    groups: dict[tuple[str, bytes], list[Object]] = {}
    for subset in endpoints.get("subsets") or ():
        ports = msgspec.json.encode([_port(port) for port in subset.get("ports") or ()])
        addresses = [
            *((address, True) for address in subset.get("addresses") or ()),
            *((address, False) for address in subset.get("notReadyAddresses") or ()),
        ]
        for address, ready in addresses[:MAX_ENDPOINTS_PER_SUBSET]:
            # An address that an earlier version stored without validation is left out.
            with contextlib.suppress(ValueError):
                family = f"IPv{ip_addresses.ip_address(address['ip']).version}"
                groups.setdefault((family, ports), []).append(_endpoint(address, ready=ready))
    return [
        _slice(metadata, family, members[:MAX_ENDPOINTS_PER_SUBSET], ports)
        for (family, ports), members in groups.items()
    ]


def _slice(metadata: Object, family: str, endpoints: list[Object], ports: bytes) -> Object:
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    # The UID keeps others from guessing the name of a slice that does not exist yet.
    parts = (metadata["uid"], family, ports.decode())
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]
    return {
        "metadata": {
            "name": f"{metadata['name'][:MAX_NAME_PREFIX_CHARACTERS].rstrip('.-')}-{digest}",
            "namespace": metadata["namespace"],
            "labels": {**labels, SERVICE_LABEL: metadata["name"], MANAGED_LABEL: _MANAGER},
            "annotations": {
                key: value for key, value in annotations.items() if key not in _PRIVATE_ANNOTATIONS
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Endpoints",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": msgspec.json.decode(ports),
    }


def _port(port: Object) -> Object:
    entry: Object = {
        "name": port.get("name", ""),
        "protocol": port.get("protocol", "TCP"),
        "port": port["port"],
    }
    return entry | ({"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {})


def _endpoint(address: Object, *, ready: bool) -> Object:
    endpoint: Object = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    fields = ("hostname", "nodeName", "targetRef")
    return endpoint | {field: address[field] for field in fields if address.get(field)}
