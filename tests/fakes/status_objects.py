"""Objects with statuses, as controllers write them, for tests of `gatehouse status`."""

from __future__ import annotations

from typing import Any

from fakes import request_causes

Object = dict[str, Any]


def condition(kind: str, value: str = "True", reason: str = "", message: str = "") -> Object:
    return {"type": kind, "status": value, "reason": reason or kind, "message": message}


def gateway(name: str, class_name: str = "gatehouse-nginx", **status_fields: Any) -> Object:
    listener = {"name": "http", "port": 8080, "protocol": "HTTP"}
    return {
        "kind": "Gateway", "metadata": request_causes.metadata(name),
        "spec": {"gatewayClassName": class_name, "listeners": [listener]},
        "status": status_fields,
    }  # fmt: skip


def programmed(name: str) -> Object:
    conditions = [condition("Accepted"), condition("Programmed")]
    listeners = [{"name": "http", "attachedRoutes": 1, "conditions": conditions}]
    addresses = [{"value": "127.0.0.9"}]
    return gateway(name, conditions=conditions, listeners=listeners, addresses=addresses)


def route(name: str, service: str, *conditions: Object, **fields: Any) -> Object:
    result = request_causes.http_route(name, request_causes.to(service), **fields)
    parents = [{"parentRef": {"name": "web"}, "conditions": list(conditions)}]
    result["status"] = {"parents": parents if conditions else []}
    return result


GOOD = (condition("Accepted"), condition("ResolvedRefs"))
PARTLY = condition("PartiallyInvalid", message="Dropped Rule: rules[1]: no")
CLASS = {
    "kind": "GatewayClass", "metadata": {"name": "gatehouse-nginx"},
    "spec": {"controllerName": "gatehouse.dev/nginx"},
    "status": {"conditions": [condition("Accepted")]},
}  # fmt: skip
POD = {
    "metadata": request_causes.metadata("web-1"),
    "status": {
        "podIP": "127.0.0.9", "conditions": [condition("Ready", "False")],
        "containerStatuses": [{"restartCount": 4, "state": {"waiting": {"message": "exit 1"}}}],
    },
}  # fmt: skip
