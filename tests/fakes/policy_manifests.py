"""Manifests of a Gateway with a route, and of policies about them."""

from __future__ import annotations

import json
from typing import Any

Object = dict[str, Any]
GROUP = "gateway.networking.k8s.io"
ROUTE = {"group": GROUP, "kind": "HTTPRoute", "name": "r"}
GATEWAY = {"group": GROUP, "kind": "Gateway", "name": "gw"}
BACKENDS = [{"name": "s", "port": 80}]


def manifest(group: str, kind: str, name: str, created: int = 0, **fields: Any) -> str:
    namespace, _, own = name.rpartition("/")
    metadata = {
        "name": own,
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
        **({"namespace": namespace} if namespace else {}),
    }
    return json.dumps({"apiVersion": group, "kind": kind, "metadata": metadata, **fields})


def gateway_with_route(rule: Object, kind: str = "HTTPRoute") -> tuple[str, ...]:
    """Return a Gateway of the namespace `gh`, and a route and a Service of the namespace `n`."""
    everyone = {"namespaces": {"from": "All"}}
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": everyone}
    gateway = {"gatewayClassName": "c", "listeners": [listener]}
    gateway_class = {"controllerName": "gatehouse.dev/nginx"}
    route = {"parentRefs": [{"name": "gw", "namespace": "gh"}], "rules": [rule]}
    return (
        manifest(f"{GROUP}/v1", "GatewayClass", "c", spec=gateway_class),
        manifest(f"{GROUP}/v1", "Gateway", "gh/gw", spec=gateway),
        manifest(f"{GROUP}/v1", kind, "n/r", spec=route),
        manifest("v1", "Service", "n/s", spec={"ports": [{"name": "p", "port": 80}]}),
    )
