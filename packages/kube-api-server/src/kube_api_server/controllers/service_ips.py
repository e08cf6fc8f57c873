"""Allocation of cluster IPs and node ports when a Service is written."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Container, Iterator

from kube_api_server.causes import invalid_cause
from kube_api_server.controllers import service_families
from kube_api_server.errors import Cause, invalid_error
from kube_api_server.objects.admission import Admission
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.storage.entries import StoreEvent
from kube_api_server.storage.store import ObjectStore
from kube_base.types import ip_addresses
from kube_base.types.objects import Object

_PREFIX = "/core/services/"
NODE_PORTS = range(30000, 32768)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ServiceIPAllocator:
    """Allocated addresses and ports by Service, so that a Service keeps its own."""

    def __init__(self, store: ObjectStore, admission: Admission, network: _Network) -> None:
        self._network = network
        self._family = f"IPv{network.version}"
        self._addresses: dict[str, str] = {}
        self._ports: dict[int, str] = {}
        store.listen(_PREFIX, self._changed)
        for key, entry in store.list(_PREFIX):
            self._changed(StoreEvent(entry.revision, key, None, entry))
        admission.mutating.setdefault("services", []).append(self._allocate)

    def _changed(self, event: StoreEvent) -> None:
        if event.before is not None:
            for address in _addresses(event.before.value):
                self._addresses.pop(address, None)
            for port in _node_ports(event.before.value):
                self._ports.pop(port, None)
        if event.now is not None:
            for address in _addresses(event.now.value):
                self._addresses[address] = event.key
            for port in _node_ports(event.now.value):
                self._ports[port] = event.key

    def _allocate(self, call: WriteRequest, obj: Object, old: Object | None) -> None:
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return
        obj.setdefault("status", {}).setdefault("loadBalancer", {})
        key = call.served.key(call.namespace, obj["metadata"].get("name", ""))
        kind = spec.get("type")
        before = (old or {}).get("spec") or {}
        if kind == "ExternalName":
            for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                spec.pop(field, None)
            return
        if not spec.get("clusterIP"):
            previous = before.get("clusterIP") if before.get("type") != "ExternalName" else None
            spec["clusterIP"] = previous or self._free(key)
        elif spec["clusterIP"] != "None" and spec["clusterIP"] != before.get("clusterIP"):
            self._check(obj, key, spec["clusterIP"])
        spec["clusterIPs"] = [spec["clusterIP"], *(spec.get("clusterIPs") or [])[1:]]
        service_families.complete_families(spec, before, self._family)
        causes = list(service_families.foreign_families(spec, self._family))
        if causes:
            raise invalid_error("Service", "", obj["metadata"].get("name", ""), causes)
        self._allocate_ports(
            spec, before, key, with_node_ports=kind in ("NodePort", "LoadBalancer")
        )

    def _free_node_ports(self, allocated: Container[int], key: str) -> Iterator[int]:
        """Yield in a random order what no other Service has. Nothing is shuffled before use."""
        for number in random.sample(NODE_PORTS, len(NODE_PORTS)):
            if number not in allocated and self._ports.get(number, key) == key:
                yield number

    def _allocate_ports(
        self, spec: Object, before: Object, key: str, *, with_node_ports: bool
    ) -> None:
        previous = {
            (port.get("name"), port.get("port")): port.get("nodePort")
            for port in before.get("ports") or ()
        }
        allocated: set[int] = set()
        free = self._free_node_ports(allocated, key)
        for port in spec.get("ports") or ():
            if not isinstance(port, dict):
                continue
            if not with_node_ports:
                port.pop("nodePort", None)
            elif not port.get("nodePort"):
                port["nodePort"] = previous.get((port.get("name"), port.get("port"))) or next(
                    free, None
                )
                if port["nodePort"] is None:
                    cause = Cause("InternalError", "no node port left", "spec.ports")
                    raise invalid_error("Service", "", key.rpartition("/")[2], [cause])
            if port.get("nodePort"):
                allocated.add(port["nodePort"])

    def _free(self, key: str) -> str:
        size = min(self._network.num_addresses - 2, 1 << 20)
        for _ in range(1000):
            address = str(self._network[random.randint(1, size)])  # noqa: S311 - no secret
            if address not in self._addresses:
                return address
        for number in range(1, size + 1):
            address = str(self._network[number])
            if address not in self._addresses:
                return address
        cause = Cause("InternalError", f"no address left in {self._network}", "spec.clusterIP")
        raise invalid_error("Service", "", key.rpartition("/")[2], [cause])

    def _check(self, obj: Object, key: str, address: str) -> None:
        try:
            inside = ip_addresses.ip_address(address) in self._network
        except ValueError:
            return
        why = ""
        if not inside:
            why = (
                f"failed to allocate IP {address}: the provided IP ({address}) is not in the valid "
                f"range. The range of valid IPs is {self._network}"
            )
        elif self._addresses.get(address, key) != key:
            why = f"failed to allocate IP {address}: provided IP is already allocated"
        if why:
            cause = invalid_cause("spec.clusterIPs", [address], why)
            raise invalid_error("Service", "", obj["metadata"].get("name", ""), [cause])


def _addresses(service: Object) -> list[str]:
    cluster_ips = (service.get("spec") or {}).get("clusterIPs") or ()
    return [address for address in cluster_ips if address != "None"]


def _node_ports(service: Object) -> list[int]:
    ports = (service.get("spec") or {}).get("ports") or ()
    return [port["nodePort"] for port in ports if port.get("nodePort")]
