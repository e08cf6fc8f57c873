"""A Gateway with a route to an InferencePool, as the front end compiles it."""

from __future__ import annotations

from typing import Any

from fakes.one_route import GATEWAY
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Engine, Key, Snapshot

Object = dict[str, Any]
GROUP = "inference.networking.k8s.io"
POOL: Key = ("InferencePool", "n", "p")
ROUTE: Key = ("HTTPRoute", "n", "r")
PICKER: Key = ("Service", "n", "epp")
REFERENCE = {"group": GROUP, "kind": "InferencePool", "name": "p"}
PICKER_REFERENCE = {"name": "epp", "port": {"number": 9002}}

ACCEPTED = "Accepted True Accepted the InferencePool is accepted"
RESOLVED = "ResolvedRefs True ResolvedRefs all references are resolved"


def pool(picker: Object | None = PICKER_REFERENCE, *ports: int, **spec: Any) -> Object:
    reference = {"endpointPickerRef": picker} if picker is not None else {}
    numbers = [{"number": port} for port in ports or (8000,)]
    selector = {"matchLabels": {"app": "model"}}
    return {"spec": {"selector": selector, "targetPorts": numbers, **reference, **spec}}


def route(*references: Object, rule: Object | None = None, **spec: Any) -> Object:
    rules = [{"backendRefs": [*(references or (REFERENCE,))], **(rule or {})}]
    return {"spec": {"parentRefs": [{"name": "gw", "namespace": "n"}], "rules": rules, **spec}}


def service(port: int = 9002, **more: Any) -> Object:
    return {"spec": {"ports": [{"name": "grpc", "port": port, **more}]}}


def service_slice(name: str = "epp") -> Object:
    return {
        "metadata": {"labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "grpc", "port": 19002}],
        "endpoints": [{"addresses": ["10.0.0.9"]}],
    }


class World:
    """A Gateway with a route to a pool of one Pod and its picker, and further objects."""

    def __init__(
        self, objects: dict[Key, Object] | None = None, controller: str = gateway_api.ENVOY
    ) -> None:
        self.engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
        self.engine.commit({gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")})
        allowed = {"namespaces": {"from": "All"}}
        listener = {"name": "l", "port": 80, "protocol": "HTTP", "allowedRoutes": allowed}
        self.commit(
            {
                ("GatewayClass", "", "c"): {"spec": {"controllerName": controller}},
                GATEWAY: {"spec": {"gatewayClassName": "c", "listeners": [listener]}},
                ROUTE: route(),
                POOL: pool(),
                PICKER: service(),
                ("EndpointSlice", "n", "epp"): service_slice(),
                **(objects or {}),
            }
        )
        self.serve({"addresses": ["10.0.0.1"]})

    def commit(self, objects: dict[Key, Object]) -> None:
        for key, content in objects.items():
            own = {"name": key[2], "namespace": key[1], "uid": f"{key}"}
            metadata = own | content.get("metadata", {})
            raw = {**content, "metadata": metadata}
            self.engine.commit({key: gateway_api.decode_gateway_api_object(key[0], raw)})

    def service(self, key: Key = POOL) -> Object | None:
        """Return the Service that the controller writes for a pool."""
        (owned,) = gateway_api.GATEWAY_API_FRONT_END.kinds.by_name["InferencePool"].owned
        with self.engine.compile() as ask:
            desired = ask(owned.desired, key)
        if desired is None:
            return None
        (built,) = owned.build(key, desired).values()
        return dict(built) if built is not None else None

    def serve(self, *endpoints: Object, family: str = "IPv4") -> None:
        """Let the Service of the pool exist, if it is written, with an EndpointSlice of a family.

        It replaces an earlier one.
        """
        written = self.service()
        if written is None:
            return
        name = written["metadata"]["name"]
        ports = [{"name": one.get("name", ""), **one} for one in written["spec"]["ports"]]
        labels = {"kubernetes.io/service-name": name}
        self.commit(
            {
                ("Service", "n", name): {"spec": written["spec"]},
                ("EndpointSlice", "n", f"{name}-{family}"): {
                    "metadata": {"labels": labels},
                    "addressType": family,
                    "ports": ports,
                    "endpoints": [*endpoints],
                },
            }
        )

    def clusters(self) -> dict[str, ir.Cluster]:
        """Return the clusters by their origin."""
        with self.engine.compile() as ask:
            configuration = ask(gateway_api.compile_gateway, GATEWAY)
        assert configuration is not None
        return {cluster.origin.kind: cluster for cluster in configuration.clusters}

    def endpoints(self) -> list[str]:
        return [
            f"{item.address}:{item.port}" for item in self.clusters()["InferencePool"].endpoints
        ]

    def action(self) -> ir.Action:
        with self.engine.compile() as ask:
            configuration = ask(gateway_api.compile_gateway, GATEWAY)
        assert configuration is not None
        [host] = configuration.listeners[0].virtual_hosts
        action: ir.Action = host.routes[0].action
        return action

    def pickers(self) -> list[ir.EndpointPicker | None]:
        """Return the picker of each backend."""
        action = self.action()
        assert isinstance(action, ir.Forward)
        return [backend.picker for backend in action.backends]

    def status(self, key: Key = POOL) -> list[str]:
        """Return the conditions of an object: type, status, reason and message."""
        with self.engine.compile() as ask:
            outcome = ask(gateway_api.gateway_api_status, key)
        status = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
        return [
            " ".join(entry[name] for name in ("type", "status", "reason", "message"))
            for parent in (status or {}).get("parents", ())
            for entry in parent["conditions"]
        ]
