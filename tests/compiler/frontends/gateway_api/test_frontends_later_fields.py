"""Fields of Gateway API 1.7 that Gatehouse does not serve are reported, and never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.compiled_objects import engine_with, merged_statuses
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.translate import compile_gateway

KEY = ("Gateway", "ns", "gw")
HTTP = {"name": "http", "port": 80, "protocol": "HTTP"}


def compiled(controller: str, spec: dict[str, Any]) -> tuple[tuple[int, ...], str]:
    """Return the ports that a Gateway serves, and its status."""
    class_ = {"metadata": {"name": "c"}, "spec": {"controllerName": f"gatehouse.dev/{controller}"}}
    gateway = {
        "metadata": {"name": KEY[2], "namespace": KEY[1]},
        "spec": {"gatewayClassName": "c", **spec},
    }
    settings = gateway_api.ControllerSettings(bind="any")
    engine = engine_with([("GatewayClass", class_), ("Gateway", gateway)], settings)
    with engine.compile() as ask:
        result = compile_gateway(ask, KEY)
        ports = () if result is None else tuple(listener.port for listener in result.listeners)
        return ports, dict(merged_statuses(ask))[KEY].decode()


@pytest.mark.parametrize("controller", ["nginx", "envoy"])
def test_listener_with_filters_is_not_served(controller: str) -> None:
    """ "If a filter is unsupported by the implementation, the listener MUST be rejected via status
    (Accepted=False, Reason=UnsupportedValue) rather than the filter silently omitted" (GEP-5224).
    """
    filtered = {
        "name": "checked",
        "port": 81,
        "protocol": "HTTP",
        "filters": {"requests": [{"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP"}}]},
    }
    ports, status = compiled(controller, {"listeners": [HTTP, filtered]})
    assert ports == (80,)
    assert "listener checked: filters.requests[0]: ExternalAuth is not supported" in status
    assert '"reason":"UnsupportedValue"' in status
    unfiltered = filtered | {"filters": {"requests": []}}
    ports, status = compiled(controller, {"listeners": [HTTP, unfiltered]})
    assert ports == (80, 81)
    assert "UnsupportedValue" not in status
