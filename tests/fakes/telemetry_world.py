"""A Gateway with an XTelemetryPolicy and a collector of spans."""

from __future__ import annotations

from typing import Any

from fakes.one_route import GATEWAY
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.tracing import TraceExport
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Key, Snapshot

Object = dict[str, Any]
GROUP = "gateway.networking.k8s.io"
POLICY: Key = ("XTelemetryPolicy", "n", "p")
TARGET = {"group": GROUP, "kind": "Gateway", "name": GATEWAY[2]}
REFERENCE = {"name": "collector", "port": 4317}
WHOLE = Origin("XTelemetryPolicy", "n", "p")
ACCEPTED = "Accepted True Accepted the policy is accepted"
RESOLVED = "ResolvedRefs True ResolvedRefs all references are resolved"
PARAMETERS: Key = ("GatewayParameters", "n", "class")
TRACED: dict[Key, Object] = {
    ("GatewayClass", "", "c"): {
        "spec": {
            "controllerName": gateway_api.ENVOY,
            "parametersRef": {
                "group": "gatehouse.dev",
                "kind": "GatewayParameters",
                "name": "class",
                "namespace": "n",
            },
        }
    },
    PARAMETERS: {
        "spec": {
            "telemetry": {
                "exporter": {"endpoint": "https://of-class.example:4317", "interval": "2s"},
                "serviceName": "x",
                "spanAttributes": [{"key": "a", "value": "class"}, {"key": "b", "value": "class"}],
            }
        }
    },
}


def enabled(reference: Object = REFERENCE, **more: Any) -> Object:
    """Return ``tracing`` with a collector."""
    headers = {"headers": more.pop("headers")} if "headers" in more else {}
    return {"mode": "Enabled", "provider": {"backendRef": reference, **headers}, **more}


def policy(tracing: Object, *targets: Object, created: str = "2026-01-01T00:00:00Z") -> Object:
    spec = {"targetRefs": [*(targets or (TARGET,))], "tracing": tracing}
    return {"metadata": {"creationTimestamp": created}, "spec": spec}


def fraction(numerator: int, denominator: int = 100) -> Object:
    return {"numerator": numerator, "denominator": denominator}


def attribute(source: str, **value: str) -> list[Object]:
    return [{"name": "a", "sourceType": source, **value}]


class World:
    """A Gateway with a route and a collector in a namespace, and further objects."""

    def __init__(self, objects: dict[Key, Object]) -> None:
        self.engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
        self.engine.commit({gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")})
        listener = {"name": "l", "port": 80, "protocol": "HTTP"}
        gateway = {"spec": {"gatewayClassName": "c", "listeners": [listener]}}
        self.commit(
            {
                ("GatewayClass", "", "c"): {"spec": {"controllerName": gateway_api.ENVOY}},
                GATEWAY: gateway,
                **service("n", "collector"),
                **objects,
            }
        )

    def commit(self, objects: dict[Key, Object]) -> None:
        for key, content in objects.items():
            metadata = {"name": key[2], "namespace": key[1], **content.get("metadata", {})}
            raw = {**content, "metadata": metadata}
            self.engine.commit({key: gateway_api.decode_gateway_api_object(key[0], raw)})

    def settings(self) -> DataPlaneSettings:
        with self.engine.compile() as ask:
            configuration = ask(gateway_api.compile_gateway, GATEWAY)
        assert configuration is not None
        settings: DataPlaneSettings = configuration.settings
        return settings

    @property
    def export(self) -> TraceExport | None:
        return self.settings().traces

    def status(self, key: Key = POLICY) -> list[str]:
        """Return the conditions of the policy: type, status, reason and message."""
        with self.engine.compile() as ask:
            outcome = ask(gateway_api.gateway_api_status, key)
        status = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
        return [
            " ".join(entry[name] for name in ("type", "status", "reason", "message"))
            for ancestor in (status or {}).get("ancestors", ())
            for entry in ancestor["conditions"]
        ]


def service(namespace: str, name: str, *addresses: str, **spec: Any) -> dict[Key, Object]:
    """Return a Service, with one endpoint unless there are others."""
    endpoints = [{"addresses": [address]} for address in addresses or ("10.0.0.1",)]
    return {
        ("Service", namespace, name): {"spec": {"ports": [{"name": "o", "port": 4317}], **spec}},
        ("EndpointSlice", namespace, name): {
            "metadata": {"labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": "o", "port": 14317}],
            "endpoints": endpoints if spec.get("type") != "ExternalName" else [],
        },
    }
