"""Listener protocols: valid values, and the controllers that support them."""

from __future__ import annotations

from typing import Any

import pytest

from gatehouse.compiler.frontends import gateway_api
from gatehouse.incremental.query import Engine, Key, Snapshot

KUBE = "gatehouse.dev/KubeAPIServer"
GATEWAY: Key = ("Gateway", "ns", "gw")
CREATED = "2026-01-01T00:00:00Z"


def status(controller: str, *listeners: dict[str, Any]) -> dict[str, Any]:
    """Return the desired status of a Gateway with these listeners."""
    engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
    meta = {"name": "gw", "namespace": "ns", "creationTimestamp": CREATED}
    raw = {"metadata": meta, "spec": {"gatewayClassName": "c", "listeners": list(listeners)}}
    owner = {"metadata": {"name": "c"}, "spec": {"controllerName": controller}}
    engine.commit(
        {
            ("GatewayClass", "", "c"): gateway_api.decode_gateway_api_object("GatewayClass", owner),
            GATEWAY: gateway_api.decode_gateway_api_object("Gateway", raw),
        }
    )
    with engine.compile() as ask:
        desired = ask(gateway_api.gateway_api_status, GATEWAY)
    assert desired is not None
    return gateway_api.GATEWAY_API_FRONT_END.merge_status(None, desired, CREATED) or {}


def said(listener: dict[str, Any], kind: str) -> tuple[str, str, str]:
    entry = next(condition for condition in listener["conditions"] if condition["type"] == kind)
    return entry["status"], entry["reason"], entry["message"]


def listener(name: str = "api", port: int = 6443, **more: Any) -> dict[str, Any]:
    return {"name": name, "port": port, "protocol": KUBE, **more}


def test_envoy_serves_kube_apiservers_without_listener_certificate() -> None:
    (entry,) = status(gateway_api.ENVOY, listener())["listeners"]
    assert said(entry, "Accepted")[:2] == ("True", "Accepted")
    assert said(entry, "ResolvedRefs")[:2] == ("True", "ResolvedRefs")
    assert entry["supportedKinds"] == [{"group": "proxy.kubegateway.io", "kind": "UpstreamCluster"}]


def test_kube_apiserver_protocol_is_unsupported_on_nginx() -> None:
    (entry,) = status(gateway_api.NGINX, listener())["listeners"]
    message = f"listener api: protocol {KUBE} is not supported by gatehouse.dev/nginx, "
    assert said(entry, "Accepted") == (
        "False",
        "UnsupportedProtocol",
        message + "only by gatehouse.dev/envoy",
    )


def test_missing_certificate_is_reported_but_listener_is_accepted() -> None:
    tls = {"certificateRefs": [{"name": "gone"}]}
    (entry,) = status(gateway_api.ENVOY, listener(tls=tls))["listeners"]
    assert said(entry, "Accepted")[0] == "True"
    assert said(entry, "ResolvedRefs")[:2] == ("False", "InvalidCertificateRef")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tls": {"mode": "Passthrough"}}, "tls.mode: Passthrough is not supported"),
        ({"hostname": "a.example"}, "hostname: must be empty"),
    ],
)
def test_inapplicable_value_is_rejected(more: dict[str, Any], words: str) -> None:
    (entry,) = status(gateway_api.ENVOY, listener(**more))["listeners"]
    accepted = said(entry, "Accepted")
    assert accepted[:2] == ("False", "UnsupportedValue")
    assert words in accepted[2]


def test_port_is_not_shared_with_another_protocol() -> None:
    other = {"name": "web", "port": 6443, "protocol": "HTTP"}
    for entry in status(gateway_api.ENVOY, listener(), other)["listeners"]:
        assert said(entry, "Conflicted")[:2] == ("True", "ProtocolConflict")


def test_unsupported_route_kinds_are_reported() -> None:
    allowed = {"kinds": [{"kind": "HTTPRoute"}]}
    (entry,) = status(gateway_api.ENVOY, listener(allowedRoutes=allowed))["listeners"]
    assert entry["supportedKinds"] == []
    assert said(entry, "ResolvedRefs")[:2] == ("False", "InvalidRouteKinds")
