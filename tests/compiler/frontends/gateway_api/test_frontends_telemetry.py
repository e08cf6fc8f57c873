"""XTelemetryPolicies: what their fields set, and which are invalid."""

from __future__ import annotations

import msgspec
import pytest

from fakes.telemetry_world import (
    WHOLE,
    Object,
    attribute,
    enabled,
    fraction,
    policy,
)
from gatehouse.apis import telemetry
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions import telemetry_policies
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import ParsedPolicy
from gatehouse.compiler.ir.tracing import SpanAttribute, Tracing


def parsed(tracing: Object) -> ParsedPolicy:
    """Return the settings of a policy, or its problems."""
    raw = policy(tracing) | {"metadata": {"name": "p", "namespace": "n"}}
    view = msgspec.convert(raw, telemetry.XTelemetryPolicy)
    return telemetry_policies.telemetry_policy(view, ResourceLimits())


@pytest.mark.parametrize(
    ("tracing", "percent", "of_parent"),
    [
        ({}, 100, None),
        ({"samplingRate": {"numerator": 5}}, 5, None),
        ({"samplingRate": fraction(0)}, 0, None),
        ({"samplingRate": fraction(1, 1000)}, 0.1, None),
        ({"parentBasedSampling": {}}, 100, None),
        ({"parentBasedSampling": {"mode": "Disabled"}}, 100, None),
        ({"parentBasedSampling": {"mode": "Enabled"}}, 100, 100),
        (
            {
                "samplingRate": fraction(5),
                "parentBasedSampling": {"mode": "Enabled", "samplingRate": fraction(1, 3)},
            },
            5,
            100 / 3,
        ),
    ],
)
def test_rates_are_shares_of_requests(
    tracing: Object, percent: float, of_parent: float | None
) -> None:
    result = parsed(enabled(**tracing))
    expected = Tracing(percent, "propagate", origin=WHOLE, parent_percent=of_parent)
    assert result.settings.tracing.tracing == expected


@pytest.mark.parametrize("mode", ["Disabled", "ImplementationDefault"])
def test_policy_of_another_mode_traces_nothing(mode: str) -> None:
    assert parsed({"mode": mode}).settings.tracing.tracing is None


def test_names_attributes_and_headers_are_those_of_the_policy() -> None:
    attributes = [
        *attribute("Literal", literalValue='\\" $x %REQ(X)% é'),
        {"name": "b", "sourceType": "Header", "headerName": "X-User"},
        {"name": "c", "sourceType": "Attribute", "attributeKey": "http.request.method"},
    ]
    result = parsed(
        enabled(
            serviceName="shop/1",
            spanName="a b",
            attributes=attributes,
            headers=[{"name": "Authorization", "value": "Bearer $1"}],
        )
    ).settings.tracing
    assert (result.service_name, result.tracing.span_name) == ("shop/1", "a b")
    assert result.headers == (("authorization", "Bearer $1"),)
    field = WHOLE.field("tracing.attributes")
    places = [
        msgspec.structs.replace(field, part=f"tracing.attributes[{index}].{name}")
        for index, name in enumerate(("literalValue", "headerName", "attributeKey"))
    ]
    assert result.attributes == (
        SpanAttribute("a", '\\" $x %REQ(X)% é', "literal", places[0]),
        SpanAttribute("b", "X-User", "header", places[1]),
        SpanAttribute("c", "http.request.method", "semantic", places[2]),
    )


def header(name: str = "a", value: str = "b") -> Object:
    return {"headers": [{"name": name, "value": value}]}


@pytest.mark.parametrize(
    ("tracing", "problem"),
    [
        ({"mode": "enabled"}, "spec.tracing.mode: must be one of Enabled, Disabled"),
        ({"mode": "Enabled"}, "spec.tracing.provider: must be set"),
        (enabled(samplingRate=fraction(2, 1)), "spec.tracing.samplingRate: invalid value 2/1"),
        (enabled(samplingRate=fraction(0, 0)), "spec.tracing.samplingRate: invalid value 0/0"),
        (enabled(samplingRate=fraction(-1)), "spec.tracing.samplingRate: invalid value -1/100"),
        (
            enabled(parentBasedSampling={"mode": "Enabled", "samplingRate": fraction(9, 8)}),
            "spec.tracing.parentBasedSampling.samplingRate: invalid value 9/8",
        ),
        (enabled(parentBasedSampling={"mode": "x"}), "spec.tracing.parentBasedSampling.mode"),
        (enabled(serviceName='a";'), "spec.tracing.serviceName: invalid value"),
        (enabled(serviceName="a" * 254), "spec.tracing.serviceName: invalid value"),
        (enabled(spanName="a\n"), "spec.tracing.spanName: invalid value"),
        (enabled(spanName="$a"), "spec.tracing.spanName: invalid value"),
        (enabled(spanName="a" * 257), "spec.tracing.spanName: invalid value"),
        (enabled(attributes=attribute("Literal")), "attributes[0].literalValue: must be set"),
        (
            enabled(attributes=attribute("Literal", literalValue="a\nb")),
            "attributes[0].literalValue: invalid value",
        ),
        (
            enabled(attributes=attribute("Literal", literalValue="a" * 1025)),
            "attributes[0].literalValue: invalid value",
        ),
        (
            enabled(attributes=attribute("Header", headerName="a b")),
            "attributes[0].headerName: invalid value",
        ),
        (
            enabled(attributes=attribute("Attribute", attributeKey="a%b")),
            "attributes[0].attributeKey: invalid value",
        ),
        (enabled(attributes=attribute("Other")), "attributes[0].sourceType: must be one of"),
        (
            enabled(attributes=attribute("Literal", literalValue="x") * 2),
            "attributes[1].name: 'a' is set twice",
        ),
        (
            enabled(attributes=[{"name": "a;", "sourceType": "Literal", "literalValue": "x"}]),
            "attributes[0].name: invalid value",
        ),
        (
            enabled(
                attributes=[
                    {"name": "gatehouse.route", "sourceType": "Literal", "literalValue": "x"}
                ]
            ),
            "attributes[0].name: 'gatehouse.route' is set by Gatehouse",
        ),
        (
            enabled(attributes=attribute("Literal", literalValue="x") * 65),
            "spec.tracing.attributes: must have at most 64 items",
        ),
        (enabled(**header("a$b")), "headers[0].name: 'a$b' cannot be a header of gRPC"),
        (enabled(**header("a-bin")), "headers[0].name: 'a-bin' cannot be a header of gRPC"),
        (enabled(**header("grpc-timeout")), "headers[0].name: header grpc-timeout belongs"),
        (enabled(**header("TE")), "headers[0].name: header TE belongs"),
        (enabled(**header("content-length")), "headers[0].name: header content-length belongs"),
        (enabled(**header("a", "50%")), "headers[0].value: must have printable"),
        (enabled(**header("a", '"' * 2001)), "headers[0].value: longer than 4000"),
        (enabled(**header("a", "b\n")), "headers[0].value: must have printable"),
        (enabled(headers=[*header()["headers"] * 17]), "headers: must have at most 16 items"),
        (enabled(headers=[*header()["headers"] * 2]), "headers[1].name: 'a' is set twice"),
    ],
)
def test_invalid_field_is_named(tracing: Object, problem: str) -> None:
    result = parsed(tracing)
    assert result.settings is None
    assert any(problem in message for message in result.problems), result.problems


def test_messages_do_not_have_the_value_of_a_header() -> None:
    assert "secret" not in str(parsed(enabled(**header("a", "secret\n"))).problems)
