"""Objects of many owners, compiled as in a controller that can restart."""

from __future__ import annotations

from typing import Any

from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.frontends.hosted_apiserver import HostedStatus
from gatehouse.controller.compilation import Compilation, CompileResult
from gatehouse.incremental.query import Key

Object = dict[str, Any]

NOW = "2026-01-01T00:00:00Z"
GATEWAY: Key = ("Gateway", "ns", "gw")
EVERY = {"allowedRoutes": {"namespaces": {"from": "All"}}}
APIS = {"name": "api", "port": 6443, "protocol": "gatehouse.dev/KubeAPIServer"}
NAMES = {"name": "names", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}} | EVERY
INSIDE = {"name": "inside", "port": 8443, "protocol": "gatehouse.dev/ProxyProtocol"} | EVERY
RULE = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def day(number: int) -> str:
    return f"2025-01-{number:02}T00:00:00Z"


class Estate:
    """An API server's objects and the controller's compile passes over them."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.uids = 0
        self.restart()
        self.put(("GatewayClass", "", "c"), spec={"controllerName": gateway_api.ENVOY})
        self.gateway()

    def restart(self) -> None:
        """Start another controller. It reads what the API server has."""
        self.compilation = Compilation(gateway_api.ControllerSettings(bind="any"))
        for key, raw in self.objects.items():
            self.compilation.put(key[0], (key[1], key[2]), raw)
        for name in ("gw", "other"):
            plane = gateway_api.ProgrammedInput(programmed=True)
            self.compilation.put_input(("Programming", "ns", name), plane)

    def put(self, key: Key, **fields: Any) -> Key:
        """Create an object, or replace fields of it. Its UID and status stay."""
        before = self.objects.get(key)
        if before is None:
            self.uids += 1
            metadata = {"name": key[2], "namespace": key[1], "uid": str(self.uids)}
            before = {"metadata": {**metadata, "creationTimestamp": NOW, "generation": 1}}
        metadata = {**before["metadata"], **fields.pop("metadata", {})}
        self.objects[key] = {**before, "metadata": metadata, **fields}
        self.compilation.put(key[0], (key[1], key[2]), self.objects[key])
        return key

    def delete(self, key: Key) -> None:
        if self.objects.pop(key, None) is not None:
            self.compilation.put(key[0], (key[1], key[2]), None)

    def gateway(self, name: str = "gw", *listeners: Object) -> Key:
        chosen = list(listeners or (APIS, NAMES, INSIDE))
        return self.put(
            ("Gateway", "ns", name), spec={"gatewayClassName": "c", "listeners": chosen}
        )

    def cluster(
        self, name: str, *names: str, created: int = 1, annotations: Object | None = None
    ) -> Key:
        spec = {
            "servers": [{"endpoint": "http://10.0.0.1:8080"}],
            "dispatchPolicies": [{"rules": [RULE]}],
            "secureServing": {"serverNames": list(names)},
        }
        metadata = {"creationTimestamp": day(created), "annotations": annotations or {}}
        return self.put(("UpstreamCluster", "", name), metadata=metadata, spec=spec)

    def hosted(
        self, name: str, *hosts: str, address: str = "", created: int = 1, service: str = ""
    ) -> Key:
        spec: Object = {"parentRefs": [{"namespace": "ns", "name": "gw"}], "hosts": list(hosts)}
        spec |= {"service": {"name": service or name}, "advertiseAddress": address}
        metadata = {"creationTimestamp": day(created)}
        ports = [{"name": "https", "port": 443, "protocol": "TCP"}]
        self.put(("Service", f"of-{name}", service or name), spec={"ports": ports})
        return self.put(("HostedAPIServer", f"of-{name}", name), metadata=metadata, spec=spec)

    def run(self) -> CompileResult:
        return self.compilation.run()

    def write_statuses(self, result: CompileResult | None = None) -> None:
        """Write the statuses of a pass, and let the controller see them."""
        for key, status in (result or self.run()).statuses.items():
            raw = self.objects[key]
            merged = combined.merge_combined_status(key[0], raw.get("status"), status, NOW)
            if merged is not None:
                self.put(key, status=merged)

    def clusters(self, gateway: Key = GATEWAY) -> dict[str, str]:
        """Return the UpstreamCluster that is served under each hostname."""
        compiled = self.run().gateways[gateway].gateway
        assert compiled is not None
        served = [cluster for one in compiled.api_listeners for cluster in one.clusters]
        pairs = [(host, cluster.name) for cluster in served for host in cluster.hosts]
        assert len(pairs) == len(dict(pairs)), "a hostname is served twice"
        return dict(pairs)

    def claims(self) -> dict[str, str]:
        """Return the HostedAPIServer behind each hostname and address, by its Service."""
        result = self.run()
        compiled = result.gateways[GATEWAY].gateway
        assert compiled is not None
        owners: dict[str, str] = {}
        for key, status in result.statuses.items():
            if isinstance(status, HostedStatus):
                owners |= dict.fromkeys(status.hosts, key[2])
        services = {cluster.name: cluster.origin.name for cluster in compiled.clusters}
        for listener in compiled.proxy_protocol_listeners:
            owners |= {
                destination.address: services[destination.cluster]
                for destination in listener.destinations
            }
        return owners

    def status(self, key: Key) -> Object:
        desired = self.run().statuses.get(key)
        assert desired is not None
        return combined.merge_combined_status(key[0], None, desired, NOW) or {}

    def condition(self, key: Key, kind: str) -> tuple[str, str, str]:
        """Return status, reason and message of a condition; empty texts if it is missing."""
        for condition in self.status(key)["conditions"]:
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""
