"""A Gateway with one route, compiled without an API server: its configuration and status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Ask, Engine, Key, Snapshot

BACKEND = {"name": "s", "port": 80}
"""A backendRef to the Service that is there."""

GATEWAY = ("Gateway", "n", "gw")
ROUTE = {"HTTPRoute": ("HTTPRoute", "n", "r"), "GRPCRoute": ("GRPCRoute", "n", "r")}
Object = dict[str, Any]


def engine(
    kind: str,
    rules: list[Object],
    *others: tuple[Key, Object],
    port: int = 80,
    hostnames: Sequence[str] = (),
) -> Engine:
    """Return an engine with a Gateway, a Service ``s`` and the route.

    ``port``: that of the listener. ``hostnames``: those of the route.
    """
    result = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
    result.commit({gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")})
    listeners = [{"name": "l", "port": port, "protocol": "HTTP"}]
    ports = [{"name": "p", "port": 80, "protocol": "TCP"}]
    route = {"parentRefs": [{"name": "gw"}], "hostnames": [*hostnames], "rules": rules}
    objects: list[tuple[Key, Object]] = [
        (("GatewayClass", "", "c"), {"controllerName": gateway_api.NGINX}),
        (GATEWAY, {"gatewayClassName": "c", "listeners": listeners}),
        (("Service", "n", "s"), {"ports": ports}),
        (ROUTE[kind], route),
        *others,
    ]
    for key, spec in objects:
        metadata = {"name": key[2], "namespace": key[1], "creationTimestamp": "2026-01-01"}
        result.commit(
            {
                key: gateway_api.decode_gateway_api_object(
                    key[0], {"metadata": metadata, "spec": spec}
                )
            }
        )
    return result


def routes(ask: Ask) -> list[ir.Route]:
    """Return the routes of the IR."""
    gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    (listener,) = gateway.listeners
    return [route for host in listener.virtual_hosts for route in host.routes]


def conditions(ask: Ask, kind: str) -> str:
    """Return the route's conditions, a line each: ``Type=Status Reason: message``."""
    outcome = ask(gateway_api.gateway_api_status, ROUTE[kind])
    assert outcome is not None
    status = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
    assert status is not None
    return "\n".join(
        f"{condition['type']}={condition['status']} {condition['reason']}: {condition['message']}"
        for condition in status["parents"][0]["conditions"]
    )
