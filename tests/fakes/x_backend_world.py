"""A Gateway with a route to an XBackend, compiled without an API server."""

from __future__ import annotations

from typing import Any

from fakes.one_route import GATEWAY
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.front_end import GATEWAY_API_FRONT_END
from gatehouse.compiler.frontends.gateway_api.status.types import PolicyStatus, RouteStatus
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.incremental.query import Engine, Key, Snapshot

Object = dict[str, Any]
GROUP = "gateway.networking.x-k8s.io"
BACKEND: Key = ("XBackend", "n", "b")
ROUTE: Key = ("HTTPRoute", "n", "r")
PARENTS = {"parentRefs": [{"name": GATEWAY[2]}]}
"""The parents of a route."""
REFERENCE = {"group": GROUP, "kind": "XBackend", "name": "b"}
SELECTOR = {
    "type": "EndpointSelector",
    "endpointSelector": {"matchLabels": {"app": "shop"}},
    "port": {"number": 8080},
}
HOST = {
    "type": "ExternalHostname",
    "externalHostname": {"hostname": "api.example.net"},
    "port": {"number": 443},
}
SYSTEM = {"hostname": "a.example", "wellKnownCACertificates": "System"}
SERVER_ONLY = {"mode": "ServerOnly", "validation": SYSTEM}

ACCEPTED = "Accepted True Accepted the backend is accepted"
RESOLVED = "ResolvedRefs True ResolvedRefs all references are resolved"
LISTENERS = [
    {"name": "http", "port": 80, "protocol": "HTTP"},
    {"name": "tcp", "port": 90, "protocol": "TCP"},
    {"name": "udp", "port": 91, "protocol": "UDP"},
]
NAME_SERVERS = {"dnsResolver": {"addresses": [{"type": "IPAddress", "value": "192.0.2.53"}]}}
CLASS = {
    "controllerName": gateway_api.ENVOY,
    "parametersRef": {
        "group": "gateway.nginx.org",
        "kind": "NginxProxy",
        "name": "names",
        "namespace": "n",
    },
}


def route_to(*references: Object) -> Object:
    return {**PARENTS, "rules": [{"backendRefs": [*(references or (REFERENCE,))]}]}


class XBackendWorld:
    """A Gateway of a class with name servers, an XBackend ``b``, and a route to it."""

    def __init__(self, spec: Object = SELECTOR, **more: Object) -> None:
        allowed = gateway_api.ControllerSettings(bind="any", external_names=("example.net",))
        self.engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
        self.engine.commit({gateway_api.SETTINGS_KEY: allowed})
        self.put(("GatewayClass", "", "c"), CLASS)
        self.put(("NginxProxy", "n", "names"), NAME_SERVERS)
        self.put(GATEWAY, {"gatewayClassName": "c", "listeners": LISTENERS})
        self.put(BACKEND, spec)
        self.put(ROUTE, route_to())
        for kind, own in more.items():
            self.put((kind, "n", "r"), own)

    def put(self, key: Key, spec: Object, **fields: Any) -> None:
        """Store an object. ``fields`` are beside ``spec``."""
        own = {"name": key[2], "namespace": key[1], "uid": f"{key}", "generation": 3}
        raw = {"metadata": own | fields.pop("metadata", {}), "spec": spec, **fields}
        self.engine.commit({key: gateway_api.decode_gateway_api_object(key[0], raw)})

    def remove(self, key: Key) -> None:
        self.engine.commit({key: None})

    def service(self, key: Key = BACKEND) -> Object | None:
        """Return the Service that the controller writes for an XBackend."""
        (owned,) = GATEWAY_API_FRONT_END.kinds.by_name["XBackend"].owned
        with self.engine.compile() as ask:
            desired = ask(owned.desired, key)
        if desired is None:
            return None
        (built,) = owned.build(key, desired).values()
        return dict(built) if built is not None else None

    def serve(self, *addresses: str, ready: bool = True) -> None:
        """Let the Service and its EndpointSlice exist."""
        written = self.service()
        assert written is not None
        name = written["metadata"]["name"]
        self.put(("Service", "n", name), written["spec"])
        endpoints = [{"addresses": [one], "conditions": {"ready": ready}} for one in addresses]
        labels = {"kubernetes.io/service-name": name}
        ports = [{"name": "", "port": 8080, "protocol": "TCP"}]
        fields: Object = {"addressType": "IPv4", "ports": ports, "endpoints": endpoints}
        self.put(("EndpointSlice", "n", name), {}, metadata={"labels": labels}, **fields)

    @property
    def compiled(self) -> GatewayConfiguration:
        with self.engine.compile() as ask:
            result = ask(gateway_api.compile_gateway, GATEWAY)
        assert result is not None
        return result

    @property
    def clusters(self) -> list[ir.Cluster]:
        return [*self.compiled.clusters]

    def cluster(self) -> ir.Cluster:
        (result,) = self.clusters
        return result

    def actions(self) -> list[ir.Action]:
        hosts = [host for port in self.compiled.listeners for host in port.virtual_hosts]
        return [entry.action for host in hosts for entry in host.routes]

    def status(self, key: Key = BACKEND) -> list[str]:
        """Return the conditions of an object, of all parents or ancestors."""
        with self.engine.compile() as ask:
            status = ask(gateway_api.gateway_api_status, key)
        entries: Any = ()
        if isinstance(status, PolicyStatus):
            entries = status.ancestors
        elif isinstance(status, RouteStatus):
            entries = status.parents
        return [
            f"{one.type} {one.status} {one.reason} {one.message}"
            for entry in entries
            for one in entry.conditions
        ]

    def resolved(self, key: Key = ROUTE) -> str:
        """Return the condition ResolvedRefs of a route."""
        (result,) = [one for one in self.status(key) if one.startswith("ResolvedRefs")]
        return result
