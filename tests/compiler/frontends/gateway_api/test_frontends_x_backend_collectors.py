"""XBackends as collectors of XTelemetryPolicies (GEP-4768, GEP-4894)."""

from __future__ import annotations

import pytest

from fakes.one_route import GATEWAY
from fakes.x_backend_world import (
    ACCEPTED,
    HOST,
    REFERENCE,
    RESOLVED,
    ROUTE,
    SELECTOR,
    SERVER_ONLY,
    Object,
    XBackendWorld,
)
from gatehouse.compiler.ir.tracing import TraceExport

POLICY = ("XTelemetryPolicy", "n", "p")
TARGET = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": GATEWAY[2]}


def exporting(spec: Object = SELECTOR, reference: Object = REFERENCE) -> XBackendWorld:
    """Return a Gateway without routes that sends spans to an XBackend."""
    world = XBackendWorld(spec)
    world.remove(ROUTE)
    tracing = {"mode": "Enabled", "provider": {"backendRef": reference}}
    world.put(POLICY, {"targetRefs": [TARGET], "tracing": tracing})
    return world


def export(world: XBackendWorld) -> TraceExport | None:
    return world.compiled.settings.traces


def test_spans_go_to_the_ready_pods_although_no_route_uses_the_backend() -> None:
    world = exporting()
    assert export(world) is None
    assert any("XBackend n/b has no ready endpoints" in one for one in world.status(POLICY))
    world.serve("10.0.0.1", "10.0.0.2")
    own = export(world)
    assert own is not None
    assert own.addresses == (("10.0.0.1", 8080), ("10.0.0.2", 8080))
    assert own.tls is False
    assert RESOLVED in world.status(POLICY)
    assert world.status() == [ACCEPTED, RESOLVED]


def test_tls_of_the_backend_verifies_the_collector() -> None:
    world = exporting(SELECTOR | {"tls": SERVER_ONLY})
    world.serve("10.0.0.1")
    own = export(world)
    assert own is not None
    assert (own.tls, own.host, own.addresses) == (True, "a.example", (("10.0.0.1", 8080),))


def test_host_outside_the_cluster_is_resolved_by_the_proxy() -> None:
    own = export(exporting(HOST))
    assert own is not None
    assert (own.host, own.port, own.addresses) == ("api.example.net", 443, ())


CLIENT = {"mode": "ClientAndServer", "clientCertificateRef": {"name": "c"},
          "validation": SERVER_ONLY["validation"]}  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "reference", "problem"),
    [
        (SELECTOR, REFERENCE | {"name": "none"}, "BackendNotFound"),
        (SELECTOR, REFERENCE | {"port": 8080}, "BackendNotFound"),
        (SELECTOR, REFERENCE | {"namespace": "other"}, "RefNotPermitted"),
        (SELECTOR | {"protocol": "TCP"}, REFERENCE, "UnsupportedProtocol"),
        (SELECTOR | {"tls": CLIENT}, REFERENCE, "UnsupportedValue"),
        (HOST | {"externalHostname": {"hostname": "a.b"}}, REFERENCE, "ExternalNameNotAllowed"),
    ],
)
def test_collector_that_cannot_be_used_is_named(
    spec: Object, reference: Object, problem: str
) -> None:
    world = exporting(spec, reference)
    assert export(world) is None
    resolved = [one for one in world.status(POLICY) if one.startswith("ResolvedRefs")]
    (only,) = resolved
    assert only.startswith(f"ResolvedRefs False {problem} spec.tracing.provider.backendRef")


def test_service_of_the_name_is_another_collector() -> None:
    world = exporting(reference={"name": "b", "port": 80})
    assert world.status() == []
    assert world.service() is None
