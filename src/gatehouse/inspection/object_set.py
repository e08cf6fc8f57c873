"""Objects that reports are made of, as an API server shows them to a user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gatehouse.apis.resources import (
    CLUSTER_TRUST_BUNDLES,
    CONFIG_MAPS,
    EXTERNAL_LOAD_BALANCERS,
    PODS,
    SECRETS,
)
from gatehouse.compiler.frontends import combined
from gatehouse.controller.class_names import CLASSES
from gatehouse.kube import client as kube
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

DATA_PLANE_SELECTOR = "app.kubernetes.io/managed-by=gatehouse"
"""Label selector of the Pods of data planes."""

CREDENTIAL_RESOURCES = (SECRETS, CONFIG_MAPS, CLUSTER_TRUST_BUNDLES)
"""Resources that only explanations need."""

REPORTED_RESOURCES = (
    *(item for item in combined.KINDS.resources if item not in CREDENTIAL_RESOURCES),
    EXTERNAL_LOAD_BALANCERS,
)
"""Resources that reports of the status need, beside Pods."""

_GATEWAY_LABEL = "gateway.networking.k8s.io/gateway-name"


class ObjectSet:
    """Objects of the kinds that a report needs, and the Pods of data planes."""

    def __init__(self, objects: list[Object], pods: list[Object], notes: tuple[str, ...]) -> None:
        self.objects, self.pods = objects, pods
        self.notes = notes
        """Notes about missing and assumed objects."""

    def of_kind(self, kind: str) -> list[Object]:
        """Return the objects of a kind."""
        return [entry for entry in self.objects if entry["kind"] == kind]


async def read_objects(client: kube.Client, resources: Iterable[Resource]) -> ObjectSet:
    """Return the objects of an API server, and the Pods of data planes. Raises ApiError."""
    notes: list[str] = []

    async def objects_of(resource: Resource) -> list[Object]:
        try:
            return (await client.list(resource)).items
        except kube.NotFound:
            # The CRD may be absent.
            return []
        except kube.Forbidden:
            notes.append(f"no permission to list {resource.plural}: they count as missing")
            return []

    lists = await asyncio.gather(*map(objects_of, resources))
    pods = (await client.list(PODS, label_selector=DATA_PLANE_SELECTOR)).items
    return ObjectSet([entry for items in lists for entry in items], pods, tuple(sorted(notes)))


def gateway_of_pod(pod: Object) -> str:
    """Return the Gateway of a data plane's Pod, as ``namespace/name``."""
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{(metadata.get('labels') or {}).get(_GATEWAY_LABEL, '')}"


def pods_of_gateway(pods: Iterable[Object], gateway: str) -> list[Object]:
    """Return the Pods of a Gateway's data plane. ``gateway``: namespace/name."""
    return [pod for pod in pods if gateway_of_pod(pod) == gateway]


def assume_missing(objects: list[Object]) -> tuple[list[Object], tuple[str, ...]]:
    """Return Namespaces and GatewayClasses that objects refer to, with notes about the classes."""
    known = {(entry["kind"], entry["metadata"]["name"]) for entry in objects}
    namespaces = {entry["metadata"].get("namespace") for entry in objects} - {None}
    result: list[Object] = [
        {
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        }
        for name in sorted(namespaces)
        if ("Namespace", name) not in known
    ]
    notes = []
    gateways = [entry for entry in objects if entry["kind"] == "Gateway"]
    classes = {str((entry.get("spec") or {}).get("gatewayClassName")) for entry in gateways}
    for name in sorted(classes):
        if ("GatewayClass", name) not in known:
            controller = CLASSES.get(name, CLASSES["gatehouse-nginx"])
            spec = {"controllerName": controller}
            result.append({"kind": "GatewayClass", "metadata": {"name": name}, "spec": spec})
            if name not in CLASSES:
                notes.append(f"GatewayClass {name} not found: assumed with {controller}")
    return result, tuple(notes)
