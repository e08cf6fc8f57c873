"""XTelemetryPolicies: the collector that they refer to, its TLS, and other parameters of traces."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.one_route import GATEWAY
from fakes.telemetry_world import (
    ACCEPTED,
    PARAMETERS,
    POLICY,
    REFERENCE,
    RESOLVED,
    TRACED,
    WHOLE,
    Object,
    World,
    attribute,
    enabled,
    policy,
    service,
)
from gatehouse.incremental.query import Key

GRANT: dict[Key, Object] = {
    ("ReferenceGrant", "other", "g"): {
        "spec": {
            "from": [
                {
                    "group": "gateway.networking.x-k8s.io",
                    "kind": "XTelemetryPolicy",
                    "namespace": "n",
                }
            ],
            "to": [{"group": "", "kind": "Service"}],
        }
    }
}


OTHER = {"name": "collector", "namespace": "other", "port": 4317}


def test_spans_go_to_the_endpoints_of_the_service() -> None:
    world = World({POLICY: policy(enabled(serviceName="shop"))})
    export = world.export
    assert export is not None
    assert (export.addresses, export.service_name) == ((("10.0.0.1", 14317),), "shop")
    assert world.status() == [ACCEPTED, RESOLVED]
    assert WHOLE in world.settings().origins


def test_service_name_is_that_of_the_gateway_by_default() -> None:
    export = World({POLICY: policy(enabled())}).export
    assert export is not None
    assert export.service_name == f"gatehouse:{GATEWAY[1]}:{GATEWAY[2]}"


@pytest.mark.parametrize(
    ("reference", "objects", "problem"),
    [
        (OTHER, service("other", "collector"), "RefNotPermitted spec.tracing.provider.backendRef"),
        ({"name": "none", "port": 1}, {}, "BackendNotFound spec.tracing.provider.backendRef"),
        ({"name": "collector", "port": 1}, {}, "BackendNotFound spec.tracing.provider.backendRef"),
        ({"name": "collector"}, {}, "BackendNotFound spec.tracing.provider.backendRef.port"),
        (
            {"group": "example.com", "kind": "Collector", "name": "collector"},
            {},
            "InvalidKind spec.tracing.provider.backendRef: kind example.com/Collector",
        ),
        (
            REFERENCE,
            service("n", "collector", type="ExternalName", externalName="a.example"),
            "ExternalNameNotAllowed spec.tracing.provider.backendRef",
        ),
    ],
)
def test_unresolved_collector_gets_no_span_and_is_named(
    reference: Object, objects: dict[Key, Object], problem: str
) -> None:
    """Neither does the collector of the parameters: the policy names another one."""
    world = World({POLICY: policy(enabled(reference)), **TRACED, **objects})
    assert world.export is None
    accepted, resolved = world.status()
    assert accepted == ACCEPTED
    assert resolved.startswith(f"ResolvedRefs False {problem}")


def test_grant_permits_a_collector_elsewhere() -> None:
    objects = {POLICY: policy(enabled(OTHER)), **service("other", "collector", "10.0.0.2")}
    world = World(objects | GRANT)
    assert world.status() == [ACCEPTED, RESOLVED]
    export = world.export
    assert export is not None
    assert export.addresses == (("10.0.0.2", 14317),)


def test_service_without_endpoints_is_named() -> None:
    world = World({POLICY: policy(enabled())})
    world.engine.commit({("EndpointSlice", "n", "collector"): None})
    _, resolved = world.status()
    assert resolved == f"{RESOLVED}; Service n/collector has no ready endpoints"


def test_policy_replaces_collector_and_names_of_the_parameters() -> None:
    attributes = attribute("Literal", literalValue="policy")
    export = World({**TRACED, POLICY: policy(enabled(attributes=attributes))}).export
    assert export is not None
    assert (export.tls, export.interval) == (False, 2.0)
    assert export.addresses == (("10.0.0.1", 14317),)
    assert export.service_name == f"gatehouse:{GATEWAY[1]}:{GATEWAY[2]}:x"
    assert {entry.key: entry.value for entry in export.attributes} == {"a": "policy", "b": "class"}


@pytest.mark.parametrize(
    ("mode", "host"), [("ImplementationDefault", "of-class.example"), ("Disabled", "")]
)
def test_mode_decides_whether_the_parameters_count(mode: str, host: str) -> None:
    world = World({**TRACED, POLICY: policy({"mode": mode})})
    export = world.export
    assert (export.host if export is not None else "") == host
    assert world.status()[0] == ACCEPTED


def test_parameters_that_disable_traces_win() -> None:
    disabled = {"spec": {"telemetry": {"disabledFeatures": ["DisableTracing"]}}}
    world = World({**TRACED, PARAMETERS: disabled, POLICY: policy(enabled())})
    assert world.export is None
    (accepted,) = world.status()
    assert accepted.startswith("Accepted False Invalid spec.tracing.mode: telemetry.disabledFeat")


TLS_POLICY: Key = ("BackendTLSPolicy", "n", "t")


def tls(**more: Any) -> dict[Key, Object]:
    validation = {"hostname": "c.example", "wellKnownCACertificates": "System", **more}
    target = {"group": "", "kind": "Service", "name": "collector"}
    return {TLS_POLICY: {"spec": {"targetRefs": [target], "validation": validation}}}


def test_tls_of_the_service_holds_for_spans() -> None:
    world = World({POLICY: policy(enabled()), **tls()})
    export = world.export
    assert export is not None
    assert (export.host, export.tls) == ("c.example", True)
    assert export.addresses == (("10.0.0.1", 14317),)
    assert world.status(TLS_POLICY) == [ACCEPTED, RESOLVED]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"subjectAltNames": [{"type": "Hostname", "hostname": "x"}]}, "subjectAltNames are not"),
        ({"wellKnownCACertificates": "", "caCertificateRefs": []}, "is invalid"),
    ],
)
def test_unusable_tls_of_the_service_costs_the_export(more: Object, problem: str) -> None:
    world = World({POLICY: policy(enabled()), **tls(**more)})
    assert world.export is None
    _, resolved = world.status()
    assert resolved.startswith("ResolvedRefs False InvalidCACertificateRef")
    assert problem in resolved


def test_name_of_the_certificate_is_never_the_destination() -> None:
    world = World({POLICY: policy(enabled()), **tls()})
    world.engine.commit({("EndpointSlice", "n", "collector"): None})
    assert world.export is None
