"""Services with the endpoints of backends that select Pods: XBackends and InferencePools.

These backends select Pods of their own namespace. A headless Service that the controller writes has
the EndpointSlices: the backend names no address, and no component watches the Pods of all
namespaces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gatehouse.apis import backends, inference
from gatehouse.compiler.frontends.gateway_api.routes.x_backends import problems_of_spec
from gatehouse.incremental.query import Ask, Key
from kube_base.types.objects import ObjectName


class PodSelection(msgspec.Struct, frozen=True):
    """The Service with the endpoints of a backend."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """Labels of the Pods, sorted."""
    ports: tuple[int, ...]
    """Ports of the Pods, sorted."""


def selecting_service(ask: Ask, key: Key) -> PodSelection | None:
    """Return the Service with the endpoints of a backend; None if the backend selects no Pods.

    The name is derived from the UID, so that it is not known before, and no client relies on it as
    a DNS name.
    """
    backend = ask.read(key)
    match backend:
        case backends.XBackend():
            spec = backend.spec
            if spec.type != backends.ENDPOINT_SELECTOR or any(problems_of_spec(spec)):
                return None
            labels, ports = spec.endpoint_selector.match_labels, {spec.port.number}
        case inference.InferencePool():
            labels = backend.spec.selector.match_labels
            ports = {port.number for port in backend.spec.target_ports}
        case _:
            return None
    # A Service without labels selects no Pod, and leaves its EndpointSlices to others.
    if not labels or not ports:
        return None
    digest = hashlib.sha256(backend.metadata.uid.encode()).hexdigest()[:20]
    name = f"{key[0].lower()}-{digest}"
    return PodSelection(name, tuple(sorted(labels.items())), tuple(sorted(ports)))


def missing_service(ask: Ask, key: Key) -> str:
    """Return that the Service with the endpoints of a backend is missing, as a suffix."""
    selection = ask(selecting_service, key)
    if selection is None or ask.read(("Service", key[1], selection.name)) is not None:
        return ""
    return f"; Service {key[1]}/{selection.name} for its endpoints does not exist yet"


def service_for(
    owner: Key, selection: PodSelection
) -> Mapping[ObjectName, Mapping[str, Any] | None]:
    """Return the desired Service of a backend. It has no address: only its EndpointSlices are
    used."""
    name: ObjectName = (owner[1], selection.name)
    metadata = {
        "name": selection.name,
        "namespace": owner[1],
        "labels": {"app.kubernetes.io/managed-by": "gatehouse"},
    }
    ports = [*_ports(selection.ports)]
    spec = {"clusterIP": "None", "selector": dict(selection.labels), "ports": ports}
    return {name: {"metadata": metadata, "spec": spec}}


def _ports(numbers: tuple[int, ...]) -> Iterable[Mapping[str, Any]]:
    """Yield the ports of a Service. Only one of several needs a name."""
    for number in numbers:
        name = {"name": f"port-{number}"} if len(numbers) > 1 else {}
        yield {**name, "port": number, "targetPort": number, "protocol": "TCP"}
