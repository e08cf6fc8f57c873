"""Traces: the exporter in parameters of data planes, and ObservabilityPolicies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gatehouse.apis import data_plane_parameters as api
from gatehouse.apis import nginx_gateway
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions import trace_parameters, trace_policies
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    FieldParser,
    ParsedPolicy,
)
from gatehouse.compiler.ir.tracing import SpanAttribute, TraceExport, Tracing
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Key, Snapshot


def parsed(raw: dict[str, Any]) -> tuple[TraceExport | None, list[str]]:
    """Return the export of a spec, and its problems."""
    parse = FieldParser(ResourceLimits())
    export = trace_parameters.parse_telemetry(parse, msgspec.convert(raw, api.TelemetrySpec))
    return export, parse.problems


def policy(tracing: dict[str, Any] | None) -> ParsedPolicy:
    """Return the settings of a policy."""
    spec: dict[str, Any] = {"targetRefs": []} | ({} if tracing is None else {"tracing": tracing})
    raw = {"metadata": {"name": "p", "namespace": "n"}, "spec": spec}
    view = msgspec.convert(raw, nginx_gateway.ObservabilityPolicy)
    return trace_policies.trace_policy(view, ResourceLimits())


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("collector", ("collector", 4317)),
        ("http://collector.ns.svc:80", ("collector.ns.svc", 80)),
        ("127.0.0.1:4318", ("127.0.0.1", 4318)),
        ("https://collector.ns.svc:443", ("collector.ns.svc", 443)),
    ],
)
def test_endpoint_is_host_and_port(endpoint: str, expected: tuple[str, int]) -> None:
    export, problems = parsed({"exporter": {"endpoint": endpoint}})
    assert not problems
    assert export is not None
    assert (export.host, export.port) == expected
    assert export.tls == endpoint.startswith("https:")
    assert (export.interval, export.batch_size, export.batch_count) == (5.0, 512, 4)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "https://",
        "httpss://a",
        "a:0",
        "a:65536",
        "a b",
        "a;b",
        "a\nb",
        "-a",
        "A",
        "a/path",
        "unix:/s",
        "a:",
    ],
)
def test_invalid_endpoint_is_a_problem(endpoint: str) -> None:
    export, problems = parsed({"exporter": {"endpoint": endpoint}})
    assert export is None
    assert [problem.partition(": ")[0] for problem in problems] == [
        "spec.telemetry.exporter.endpoint"
    ]


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"exporter": {"interval": "99ms"}}, "exporter.interval"),
        ({"exporter": {"interval": "2m"}}, "exporter.interval"),
        ({"exporter": {"batchSize": 8193}}, "exporter.batchSize"),
        ({"exporter": {"batchCount": 65}}, "exporter.batchCount"),
        ({"exporter": {"batchCount": -1}}, "exporter.batchCount"),
        ({"serviceName": "a:b"}, "serviceName"),
        ({"serviceName": "a" * 128}, "serviceName"),
        ({"disabledFeatures": ["Other"]}, "disabledFeatures[0]"),
        ({"spanAttributes": [{"key": "", "value": "v"}]}, "spanAttributes[0].key"),
        ({"spanAttributes": [{"key": "k", "value": "v" * 256}]}, "spanAttributes[0].value"),
        ({"spanAttributes": [{"key": "k", "value": "a\nb"}]}, "spanAttributes[0].value"),
        ({"spanAttributes": [{"key": "gatehouse.route", "value": "v"}]}, "spanAttributes[0].key"),
        (
            {"spanAttributes": [{"key": f"k{n}", "value": "v"} for n in range(65)]},
            "spanAttributes",
        ),
    ],
)
def test_problem_names_the_field(raw: dict[str, Any], field: str) -> None:
    # With and without an endpoint, which may be that of the class.
    for exporter in ({}, {"endpoint": "a:1"}):
        whole = {**raw, "exporter": {**exporter, **raw.get("exporter", {})}}
        problems = parsed(whole)[1]
        assert [problem.partition(": ")[0] for problem in problems] == [f"spec.telemetry.{field}"]


def test_disabled_tracing_has_no_export() -> None:
    raw = {"exporter": {"endpoint": "a"}, "disabledFeatures": ["DisableTracing"]}
    assert parsed(raw) == (None, [])


def test_escapes_of_ngf_are_removed() -> None:
    raw = {"exporter": {"endpoint": "a"}, "spanAttributes": [{"key": r"\"k\"", "value": r"\\v"}]}
    export, problems = parsed(raw)
    assert not problems
    assert export is not None
    assert export.attributes == (SpanAttribute('"k"', r"\v"),)


def test_fields_of_a_gateway_override_those_of_its_class_one_by_one() -> None:
    outer = api.TelemetrySpec(
        exporter=api.TraceExporterSpec("a:1", "1s", 10, 2), service_name="outer"
    )
    inner = api.TelemetrySpec(exporter=api.TraceExporterSpec(interval="2s"), disabled_features=())
    assert trace_parameters.override_telemetry(outer, inner) == api.TelemetrySpec(
        (), api.TraceExporterSpec("a:1", "2s", 10, 2), "outer"
    )


@pytest.mark.parametrize(
    ("endpoint", "domains", "allowed"),
    [
        ("collector.n.svc", (), True),
        ("collector.n.svc.cluster.local:4317", (), True),
        ("missing.n.svc", (), False),
        ("alias.n.svc", (), False),
        ("alias.n.svc", ("*",), False),
        ("collector.other.svc", ("*",), False),
        ("collector.n.svc.evil.example", (), False),
        ("collector.n.svc.evil.example", ("*",), False),
        ("https://collector.n.svc", (), True),
        ("https://collector.other.svc", ("*",), False),
        ("collector", ("*",), False),
        ("127.0.0.1:4317", ("*",), False),
        ("169.254.169.254:80", ("*",), False),
        ("metadata.google.internal", ("*",), False),
        ("traces.example.com", (), False),
        ("traces.example.com", ("example.com",), True),
        ("traces.example.com", ("*",), True),
    ],
)
def test_exporter_of_a_gateway_is_an_own_service_or_an_allowed_name(
    endpoint: str, domains: tuple[str, ...], allowed: bool
) -> None:
    engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
    settings = gateway_api.ControllerSettings(bind="any", external_names=domains)
    services: dict[Key, dict[str, Any]] = {
        ("Service", "n", "collector"): {"ports": []},
        ("Service", "n", "alias"): {"type": "ExternalName", "externalName": "a.example"},
        ("Service", "other", "collector"): {"ports": []},
    }
    engine.commit({gateway_api.SETTINGS_KEY: settings})
    for key, spec in services.items():
        raw = {"metadata": {"name": key[2], "namespace": key[1]}, "spec": spec}
        engine.commit({key: gateway_api.decode_gateway_api_object("Service", raw)})
    telemetry = api.TelemetrySpec(exporter=api.TraceExporterSpec(endpoint), service_name="kept")
    with engine.compile() as ask:
        result, message = ask(_limited, telemetry)
    assert (result.exporter is not None) is allowed
    assert result.service_name == "kept"
    assert message.startswith("" if allowed else "spec.telemetry.exporter: ")
    assert bool(message) is not allowed


def _limited(ask: Any, spec: api.TelemetrySpec) -> tuple[api.TelemetrySpec, str]:
    return trace_parameters.limit_exporter(ask, spec, "n")


@pytest.mark.parametrize(
    ("tracing", "expected"),
    [
        ({"strategy": "ratio"}, Tracing(100)),
        ({"strategy": "ratio", "ratio": 0}, Tracing(0)),
        ({"strategy": "parent", "context": "inject"}, Tracing(0, "inject", parent_percent=100)),
        (
            {"strategy": "ratio", "spanName": r"\"a\"", "context": "propagate"},
            Tracing(100, "propagate", '"a"'),
        ),
    ],
)
def test_policy_becomes_tracing(tracing: dict[str, Any], expected: Tracing) -> None:
    result = policy(tracing)
    assert not result.problems
    origin = Origin("ObservabilityPolicy", "n", "p")
    assert result.settings.tracing == msgspec.structs.replace(expected, origin=origin)


def test_policy_without_tracing_is_accepted_and_traces_nothing() -> None:
    assert policy(None) == ParsedPolicy(trace_policies.TracePolicy())


@pytest.mark.parametrize(
    ("tracing", "field"),
    [
        ({"strategy": "always"}, "strategy"),
        ({"strategy": "parent", "ratio": 1}, "ratio"),
        ({"strategy": "ratio", "ratio": 101}, "ratio"),
        ({"strategy": "ratio", "context": "both"}, "context"),
        ({"strategy": "ratio", "spanName": "a\r\nb"}, "spanName"),
        ({"strategy": "ratio", "spanName": ""}, "spanName"),
        (
            {"strategy": "ratio", "spanAttributes": [{"key": "k", "value": ""}]},
            "spanAttributes[0].value",
        ),
    ],
)
def test_problem_of_a_policy_names_the_field(tracing: dict[str, Any], field: str) -> None:
    problems = policy(tracing).problems
    assert [problem.partition(": ")[0] for problem in problems] == [f"spec.tracing.{field}"]
