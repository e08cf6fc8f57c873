"""Filters of listeners (Gateway API 1.7): what is served, and conditions of what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.compiled_objects import engine_with, merged_statuses
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.translate import compile_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration

KEY = ("Gateway", "ns", "gw")
HTTP = {"name": "http", "port": 80, "protocol": "HTTP"}
AUTH = {
    "protocol": "HTTP",
    "backendRef": {"name": "auth", "port": 80},
    "http": {"allowedResponseHeaders": ["X-User"]},
}
SERVICE = {
    "metadata": {"name": "auth", "namespace": "ns"},
    "spec": {"ports": [{"name": "p", "port": 80}]},
}
ROUTE = {
    "metadata": {"name": "r", "namespace": "ns"},
    "spec": {"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [SERVICE["metadata"]]}]},
}
BOTH = pytest.mark.parametrize("controller", ["nginx", "envoy"])


def filtered(*filters: dict[str, Any]) -> dict[str, Any]:
    """Return a listener."""
    return {"name": "checked", "port": 81, "protocol": "HTTP", "filters": {"requests": [*filters]}}


def external(**fields: Any) -> dict[str, Any]:
    """Return a filter."""
    return {"type": "ExternalAuth", "externalAuth": AUTH | fields}


def compiled(
    controller: str, *listeners: dict[str, Any]
) -> tuple[GatewayConfiguration | None, dict[str, dict[str, str]]]:
    """Return the configuration of a Gateway, and the conditions of the listener ``checked``.

    Each condition is its status with reason, and its message.
    """
    class_ = {"metadata": {"name": "c"}, "spec": {"controllerName": f"gatehouse.dev/{controller}"}}
    gateway = {
        "metadata": {"name": KEY[2], "namespace": KEY[1]},
        "spec": {"gatewayClassName": "c", "listeners": [*listeners]},
    }
    objects: list[tuple[str, dict[str, Any]]] = [
        ("GatewayClass", class_), ("Gateway", gateway), ("Service", SERVICE), ("HTTPRoute", ROUTE),
    ]  # fmt: skip
    engine = engine_with(objects, gateway_api.ControllerSettings(bind="any"))
    with engine.compile() as ask:
        status = msgspec.json.decode(dict(merged_statuses(ask))[KEY])
        (own,) = (one for one in status["listeners"] if one["name"] == "checked")
        conditions = {
            one["type"]: {f"{one['status']} {one['reason']}": one["message"]}
            for one in own["conditions"]
        }
        return compile_gateway(ask, KEY), conditions


@BOTH
def test_listener_has_the_check_and_its_cluster(controller: str) -> None:
    configuration, conditions = compiled(controller, HTTP, filtered(external()))
    assert configuration is not None
    plain, checked = configuration.listeners
    assert [host.external_auth for host in plain.virtual_hosts] == [None]
    (host,) = checked.virtual_hosts
    assert host.external_auth is not None
    assert host.external_auth.response_headers == ("X-User",)
    assert host.external_auth.cluster in {cluster.name for cluster in configuration.clusters}
    assert [*conditions["Accepted"]] == ["True Accepted"]
    assert [*conditions["ResolvedRefs"]] == ["True ResolvedRefs"]


@BOTH
@pytest.mark.parametrize(
    ("filters", "reason", "message"),
    [
        (
            [{"type": "ExtensionRef", "extensionRef": {"group": "g", "kind": "K", "name": "n"}}],
            "UnsupportedValue",
            "filters.requests[0]: ExtensionRef is not supported",
        ),
        (
            [external(), external()],
            "UnsupportedValue",
            "filters.requests[1]: more than one filter is not supported",
        ),
        (
            [external(http={"allowedResponseHeaders": ["Host"]})],
            "InvalidListenerFilter",
            "allowedResponseHeaders[0]: header Host must not be copied to the backend",
        ),
        (
            [external(http={"path": "/../a", "allowedResponseHeaders": ["X-User"]})],
            "InvalidListenerFilter",
            "filters.requests[0].externalAuth.http.path: '/../a' must not contain",
        ),
    ],
)
def test_listener_with_such_filters_is_not_accepted(
    controller: str, filters: list[dict[str, Any]], reason: str, message: str
) -> None:
    """ "If a filter is unsupported by the implementation, the listener MUST be rejected via status
    (Accepted=False, Reason=UnsupportedValue) rather than the filter silently omitted" (GEP-5224).
    """
    configuration, conditions = compiled(controller, HTTP, filtered(*filters))
    assert configuration is not None
    assert [listener.port for listener in configuration.listeners] == [80]
    assert [*conditions["Accepted"]] == [f"False {reason}"]
    (text,) = conditions["Accepted"].values()
    assert f"listener checked: {message}" in text or message in text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"protocol": "GRPC"}, "protocol: GRPC is not supported by NGINX"),
        ({"forwardBody": {"maxSize": 1}}, "forwardBody: not supported by NGINX"),
        ({"http": {}}, "http.allowedResponseHeaders: must not be empty"),
    ],
)
def test_only_envoy_accepts_filters_that_nginx_does_not_support(
    fields: dict[str, Any], message: str
) -> None:
    _, conditions = compiled("nginx", HTTP, filtered(external(**fields)))
    assert [*conditions["Accepted"]] == ["False UnsupportedValue"]
    assert message in "".join(conditions["Accepted"].values())
    configuration, conditions = compiled("envoy", HTTP, filtered(external(**fields)))
    assert [*conditions["Accepted"]] == ["True Accepted"]
    assert configuration is not None
    assert len(configuration.listeners) == 2


@BOTH
@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ({"name": "none", "port": 80}, "InvalidListenerFilterRef"),
        ({"name": "auth", "port": 81}, "InvalidListenerFilterRef"),
        ({"name": "auth", "port": 80, "kind": "Pod"}, "InvalidListenerFilterRef"),
        ({"name": "auth", "port": 80, "namespace": "other"}, "RefNotPermitted"),
    ],
)
def test_requests_get_500_if_the_server_cannot_be_asked(
    controller: str, reference: dict[str, Any], reason: str
) -> None:
    """ "A listener whose filters.requests contains an ExternalAuth.backendRef that does not exist
    MUST have ResolvedRefs=False, Reason=InvalidListenerFilterRef, and the message MUST identify
    which filter's reference failed to resolve." (GEP-5224)"""
    configuration, conditions = compiled(controller, filtered(external(backendRef=reference)))
    assert [*conditions["ResolvedRefs"]] == [f"False {reason}"]
    assert "filters.requests[0]" in "".join(conditions["ResolvedRefs"].values())
    assert configuration is not None
    (listener,) = configuration.listeners
    ((route,),) = (host.routes for host in listener.virtual_hosts)
    assert route.action == ir.Respond(500)
