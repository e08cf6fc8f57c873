"""Backends of a rule: endpoints that are used, and protocols that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.one_route import BACKEND, GATEWAY, conditions, engine, routes
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Engine

Object = dict[str, Any]
TERMINATES = {"ready": False, "serving": True, "terminating": True}
STOPPED = {"ready": False, "serving": False, "terminating": True}
STARTS = {"ready": False, "serving": False, "terminating": False}


def _commit_slice(compiled: Engine, name: str, family: str, *endpoints: Object) -> None:
    """Add an EndpointSlice of the Service."""
    labels = {"kubernetes.io/service-name": "s"}
    raw: Object = {
        "metadata": {"name": name, "namespace": "n", "labels": labels},
        "addressType": family,
        "ports": [{"name": "p", "port": 80, "protocol": "TCP"}],
        "endpoints": list(endpoints),
    }
    decoded = gateway_api.decode_gateway_api_object("EndpointSlice", raw)
    compiled.commit({("EndpointSlice", "n", name): decoded})


def _addresses(compiled: Engine) -> list[str]:
    """Return the endpoints that the Gateway uses."""
    with compiled.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    return [endpoint.address for cluster in gateway.clusters for endpoint in cluster.endpoints]


def _used(*states: dict[str, bool]) -> list[str]:
    """Return the endpoints that a Gateway uses, of which each has a state."""
    compiled = engine("HTTPRoute", [{"backendRefs": [BACKEND]}])
    endpoints = (
        {"addresses": [f"10.0.0.{number}"], "conditions": state}
        for number, state in enumerate(states)
    )
    _commit_slice(compiled, "s-1", "IPv4", *endpoints)
    return _addresses(compiled)


def test_terminating_endpoints_are_used_only_if_none_is_ready() -> None:
    """Consumers may use endpoints "that are both serving and terminating" if none is ready
    (EndpointConditions of discovery.k8s.io/v1, KEP-1669)."""
    assert _used(TERMINATES, STOPPED, STARTS) == ["10.0.0.0"]
    assert _used(TERMINATES, {"ready": True}) == ["10.0.0.1"]
    assert _used(STOPPED, STARTS) == []


@pytest.mark.parametrize("protocol", ["https", "kubernetes.io/wss"])
def test_tls_protocol_without_policy_is_unsupported(protocol: str) -> None:
    """A Service with an appProtocol that is not supported "MUST" get "ResolvedRefs" False with
    "UnsupportedProtocol" (RouteReasonUnsupportedProtocol, GEP-1911)."""
    ports = [{"name": "p", "port": 80, "protocol": "TCP", "appProtocol": protocol}]
    service = (("Service", "n", "tls"), {"ports": ports})
    reference = BACKEND | {"name": "tls"}
    with engine("HTTPRoute", [{"backendRefs": [reference]}], service).compile() as ask:
        text = conditions(ask, "HTTPRoute")
    expected = f"UnsupportedProtocol: rules[0].backendRefs[0]: appProtocol {protocol} needs"
    assert f"ResolvedRefs=False {expected} a BackendTLSPolicy" in text


def test_service_with_names_only_as_endpoints_is_unsupported() -> None:
    """Of addressType: "No semantics are defined for the "FQDN" type" (discovery.k8s.io/v1)."""
    compiled = engine("HTTPRoute", [{"backendRefs": [BACKEND]}])
    _commit_slice(compiled, "names", "FQDN", {"addresses": ["backend.example"]})
    with compiled.compile() as ask:
        text = conditions(ask, "HTTPRoute")
        (route,) = routes(ask)
    problem = "EndpointSlices with addressType FQDN are not supported: must be IPv4 or IPv6"
    expected = f"UnsupportedAddressType: rules[0].backendRefs[0]: Service n/s: {problem}"
    assert f"ResolvedRefs=False {expected}" in text
    assert route.action == ir.Respond(500)


def test_names_are_ignored_beside_addresses() -> None:
    """Of addressType: "kube-proxy only processes, slices of addressType "IPv4" and "IPv6""
    (discovery.k8s.io/v1)."""
    compiled = engine("HTTPRoute", [{"backendRefs": [BACKEND]}])
    _commit_slice(compiled, "names", "FQDN", {"addresses": ["backend.example"]})
    _commit_slice(compiled, "addresses", "IPv4", {"addresses": ["10.0.0.9"]})
    with compiled.compile() as ask:
        assert "ResolvedRefs=True" in conditions(ask, "HTTPRoute")
    assert _addresses(compiled) == ["10.0.0.9"]
    compiled.commit({("EndpointSlice", "n", "addresses"): None})
    with compiled.compile() as ask:
        assert "ResolvedRefs=False UnsupportedAddressType" in conditions(ask, "HTTPRoute")
