"""Ports of Services that no EndpointSlice has, from the objects. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gatehouse.apis import core
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.gateway_api.backend_problems import backend_name, port_cause
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from kube_base.types.objects import Object

_SERVICE_LABEL = "kubernetes.io/service-name"


class ServicePorts:
    """EndpointSlices by Service."""

    def __init__(self, slices: Iterable[Object]) -> None:
        self._slices: dict[tuple[str, str], list[Object]] = defaultdict(list)
        for item in slices:
            service = (item["metadata"].get("labels") or {}).get(_SERVICE_LABEL, "")
            self._slices[item["metadata"].get("namespace", ""), service].append(item)

    def problem(self, service: Object, numbers: Iterable[int], transport: str) -> str:
        """Return the message about the first port of a Service that no EndpointSlice has.

        ``numbers``: the ports that a route names. Empty if EndpointSlices have all of them, or no
        endpoints.
        """
        namespace, name = service["metadata"].get("namespace", ""), service["metadata"]["name"]
        if service["spec"].get("type") == "ExternalName":
            return ""
        decoded = (
            combined.decode_object("EndpointSlice", item)
            for item in self._slices.get((namespace, name), ())
        )
        slices = [entry for entry in decoded if isinstance(entry, core.EndpointSlice)]
        for port in service["spec"].get("ports") or ():
            if port["port"] in numbers and port.get("protocol", "TCP") == transport:
                cause = port_cause(slices, port.get("name", ""), transport)
                if cause:
                    is_udp = transport == "UDP"
                    key = ClusterKey(namespace, name, port["port"], "udp" if is_udp else "tcp")
                    return f"{backend_name(key)}: {cause}"
        return ""
