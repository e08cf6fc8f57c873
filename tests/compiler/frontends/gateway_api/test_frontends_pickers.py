"""Endpoint pickers of InferencePools: TLS, and references that lead nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.one_route import GATEWAY
from fakes.pool_world import (
    ACCEPTED,
    PICKER,
    PICKER_REFERENCE,
    POOL,
    RESOLVED,
    ROUTE,
    Object,
    World,
    pool,
    service,
)
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.status.types import PolicyStatus
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Key

TLS: Key = ("BackendTLSPolicy", "n", "t")


def tls(**more: Any) -> dict[Key, Object]:
    validation = {"hostname": "epp.example", "wellKnownCACertificates": "System", **more}
    target = {"group": "", "kind": "Service", "name": "epp"}
    return {TLS: {"spec": {"targetRefs": [target], "validation": validation}}}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ({}, ir.BackendTls("epp.n.svc", "", verified=False)),
        ({PICKER: service(appProtocol="http2")}, ir.BackendTls("epp.n.svc", "", verified=False)),
        ({PICKER: service(appProtocol="kubernetes.io/h2c")}, None),
        (tls(), ir.BackendTls("epp.example", "")),
    ],
)
def test_picker_is_asked_by_tls(objects: dict[Key, Object], expected: ir.BackendTls | None) -> None:
    assert World(objects).clusters()["Service"].tls == expected


def test_tls_policy_of_a_picker_names_the_gateway_in_its_status() -> None:
    world = World(tls())
    with world.engine.compile() as ask:
        outcome = ask(gateway_api.gateway_api_status, TLS)
    assert isinstance(outcome, PolicyStatus)
    assert [entry.ancestor for entry in outcome.ancestors] == [GATEWAY]


def test_picker_with_invalid_tls_gets_no_request() -> None:
    world = World(tls(wellKnownCACertificates="", caCertificateRefs=[]))
    assert not world.clusters()
    assert world.action() == ir.Respond(500)


@pytest.mark.parametrize(
    ("picker", "problem"),
    [
        ({"name": "no", "port": {"number": 9002}}, ": Service n/no not found"),
        ({"name": "epp", "port": {"number": 1}}, ": TCP port 1 not found in Service n/epp"),
        ({"name": "epp"}, ".port: must be set"),
        ({**PICKER_REFERENCE, "kind": "Pod"}, ": kind Pod is not supported: must be Service"),
        (
            {**PICKER_REFERENCE, "name": "elsewhere"},
            ": Service n/elsewhere: type ExternalName is not supported",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["FailClose", "FailOpen"])
def test_invalid_picker_is_named(picker: Object, problem: str, mode: str) -> None:
    outside = service(type="ExternalName", externalName="metadata.example")
    outside["spec"] |= {"type": "ExternalName", "externalName": "metadata.example"}
    world = World(
        {POOL: pool({**picker, "failureMode": mode}), ("Service", "n", "elsewhere"): outside}
    )
    message = f"spec.endpointPickerRef{problem}"
    assert world.status() == [ACCEPTED, f"ResolvedRefs False InvalidExtensionRef {message}"]
    resolved = world.status(ROUTE)[1]
    if mode == "FailOpen":
        assert world.pickers() == [None]
        assert world.clusters()["InferencePool"].picker is None
        assert resolved == RESOLVED
    else:
        assert world.action() == ir.Respond(500)
        where = "rules[0].backendRefs[0]: InferencePool n/p"
        assert resolved == f"ResolvedRefs False BackendNotFound {where}: {message}"
