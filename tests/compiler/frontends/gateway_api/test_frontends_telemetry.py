"""XTelemetryPolicies: what they set, their references, their conflicts and their conditions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.one_route import GATEWAY
from gatehouse.apis import telemetry
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions import telemetry_policies
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import ParsedPolicy
from gatehouse.compiler.frontends.gateway_api.status.types import GatewayStatus
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.tracing import SpanAttribute, TraceExport, Tracing
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Key, Snapshot

Object = dict[str, Any]
GROUP = "gateway.networking.k8s.io"
POLICY: Key = ("XTelemetryPolicy", "n", "p")
TARGET = {"group": GROUP, "kind": "Gateway", "name": GATEWAY[2]}
REFERENCE = {"name": "collector", "port": 4317}
WHOLE = Origin("XTelemetryPolicy", "n", "p")


def enabled(reference: Object = REFERENCE, **more: Any) -> Object:
    """Return ``tracing`` with a collector."""
    headers = {"headers": more.pop("headers")} if "headers" in more else {}
    return {"mode": "Enabled", "provider": {"backendRef": reference, **headers}, **more}


def policy(tracing: Object, *targets: Object, created: str = "2026-01-01T00:00:00Z") -> Object:
    spec = {"targetRefs": [*(targets or (TARGET,))], "tracing": tracing}
    return {"metadata": {"creationTimestamp": created}, "spec": spec}


def parsed(tracing: Object) -> ParsedPolicy:
    """Return the settings of a policy, or its problems."""
    raw = policy(tracing) | {"metadata": {"name": "p", "namespace": "n"}}
    view = msgspec.convert(raw, telemetry.XTelemetryPolicy)
    return telemetry_policies.telemetry_policy(view, ResourceLimits())


def fraction(numerator: int, denominator: int = 100) -> Object:
    return {"numerator": numerator, "denominator": denominator}


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


def attribute(source: str, **value: str) -> list[Object]:
    return [{"name": "a", "sourceType": source, **value}]


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


class World:
    """A Gateway with a route and a collector in a namespace, and further objects."""

    def __init__(self, objects: dict[Key, Object]) -> None:
        self.engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
        self.engine.commit({gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")})
        listener = {"name": "l", "port": 80, "protocol": "HTTP"}
        gateway = {"spec": {"gatewayClassName": "c", "listeners": [listener]}}
        self.commit(
            {
                ("GatewayClass", "", "c"): {"spec": {"controllerName": gateway_api.ENVOY}},
                GATEWAY: gateway,
                **service("n", "collector"),
                **objects,
            }
        )

    def commit(self, objects: dict[Key, Object]) -> None:
        for key, content in objects.items():
            metadata = {"name": key[2], "namespace": key[1], **content.get("metadata", {})}
            raw = {**content, "metadata": metadata}
            self.engine.commit({key: gateway_api.decode_gateway_api_object(key[0], raw)})

    def settings(self) -> DataPlaneSettings:
        with self.engine.compile() as ask:
            configuration = ask(gateway_api.compile_gateway, GATEWAY)
        assert configuration is not None
        settings: DataPlaneSettings = configuration.settings
        return settings

    @property
    def export(self) -> TraceExport | None:
        return self.settings().traces

    def status(self, key: Key = POLICY) -> list[str]:
        """Return the conditions of the policy: type, status, reason and message."""
        with self.engine.compile() as ask:
            outcome = ask(gateway_api.gateway_api_status, key)
        status = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
        return [
            " ".join(entry[name] for name in ("type", "status", "reason", "message"))
            for ancestor in (status or {}).get("ancestors", ())
            for entry in ancestor["conditions"]
        ]


def service(namespace: str, name: str, *addresses: str, **spec: Any) -> dict[Key, Object]:
    """Return a Service, with one endpoint unless there are others."""
    endpoints = [{"addresses": [address]} for address in addresses or ("10.0.0.1",)]
    return {
        ("Service", namespace, name): {"spec": {"ports": [{"name": "o", "port": 4317}], **spec}},
        ("EndpointSlice", namespace, name): {
            "metadata": {"labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": "o", "port": 14317}],
            "endpoints": endpoints if spec.get("type") != "ExternalName" else [],
        },
    }


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
ACCEPTED = "Accepted True Accepted the policy is accepted"
RESOLVED = "ResolvedRefs True ResolvedRefs all references are resolved"


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
            {"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "collector"},
            {},
            "InvalidKind spec.tracing.provider.backendRef: kind gateway.networking.x-k8s.io/XBack",
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


PARAMETERS: Key = ("GatewayParameters", "n", "class")
TRACED: dict[Key, Object] = {
    ("GatewayClass", "", "c"): {
        "spec": {
            "controllerName": gateway_api.ENVOY,
            "parametersRef": {
                "group": "gatehouse.dev",
                "kind": "GatewayParameters",
                "name": "class",
                "namespace": "n",
            },
        }
    },
    PARAMETERS: {
        "spec": {
            "telemetry": {
                "exporter": {"endpoint": "https://of-class.example:4317", "interval": "2s"},
                "serviceName": "x",
                "spanAttributes": [{"key": "a", "value": "class"}, {"key": "b", "value": "class"}],
            }
        }
    },
}


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


@pytest.mark.parametrize(
    ("created", "name", "winner"),
    [
        ("2026-01-02T00:00:00Z", "a", "p"),
        ("2025-01-01T00:00:00Z", "z", "z"),
        ("2026-01-01T00:00:00Z", "a", "a"),
        ("2026-01-01T00:00:00Z", "z", "p"),
    ],
)
def test_oldest_policy_of_a_gateway_wins_then_the_first_by_name(
    created: str, name: str, winner: str
) -> None:
    rival: Key = (POLICY[0], "n", name)
    world = World({POLICY: policy(enabled()), rival: policy({"mode": "Disabled"}, created=created)})
    loser = POLICY if winner == name else rival
    assert (world.export is None) == (winner == name)
    (accepted,) = world.status(loser)
    assert accepted.startswith(
        f"Accepted False Conflicted spec: tracing: already set for Gateway {GATEWAY[2]} by "
        f"XTelemetryPolicy n/{winner}"
    )
    assert world.status((POLICY[0], "n", winner))[0] == ACCEPTED


def test_conflict_at_one_gateway_does_not_matter_at_another() -> None:
    second = {**TARGET, "name": "second"}
    rival: Key = (POLICY[0], "n", "z")
    listener = {"name": "l", "port": 80, "protocol": "HTTP"}
    world = World(
        {
            ("Gateway", "n", "second"): {
                "spec": {"gatewayClassName": "c", "listeners": [listener]}
            },
            POLICY: policy(enabled()),
            rival: policy({"mode": "Disabled"}, TARGET, second),
        }
    )
    first, other, *_ = world.status(rival)
    assert first.startswith("Accepted False Conflicted")
    assert other == ACCEPTED


def test_invalid_policy_does_not_win() -> None:
    rival: Key = (POLICY[0], "n", "z")
    world = World({POLICY: policy(enabled(spanName="$")), rival: policy(enabled())})
    assert world.export is not None
    assert world.status(rival)[0] == ACCEPTED


@pytest.mark.parametrize(
    ("target", "condition"),
    [
        ({**TARGET, "name": "none"}, "Accepted False TargetNotFound targetRef: Gateway n/none"),
        ({**TARGET, "kind": "Other"}, "Accepted False TargetNotFound targetRef: Other n/"),
        (
            {"group": GROUP, "kind": "GatewayClass", "name": "c"},
            "Accepted False TargetNotFound targetRef: GatewayClass n/c",
        ),
    ],
)
def test_missing_target_is_named(target: Object, condition: str) -> None:
    world = World({POLICY: policy(enabled(), target)})
    (accepted,) = world.status()
    assert accepted.startswith(condition)
    assert world.export is None


def test_gateway_of_another_controller_is_left_alone() -> None:
    other = {"spec": {"controllerName": "example.com/other"}}
    world = World({POLICY: policy(enabled()), ("GatewayClass", "", "c"): other})
    assert world.status() == []


def test_gateway_names_the_policy_that_affects_it() -> None:
    world = World({POLICY: policy(enabled())})
    with world.engine.compile() as ask:
        status = ask(gateway_api.gateway_api_status, GATEWAY)
    assert isinstance(status, GatewayStatus)
    affected = [item.message for item in status.conditions if item.type.endswith("Affected")]
    assert affected == ["affected by XTelemetryPolicy p"]


def routes_tracing(world: World) -> Tracing | None:
    with world.engine.compile() as ask:
        configuration = ask(gateway_api.compile_gateway, GATEWAY)
    assert configuration is not None
    hosts = [host for listener in configuration.listeners for host in listener.virtual_hosts]
    (route,) = [route for host in hosts for route in host.routes]
    tracing: Tracing | None = route.settings.tracing
    return tracing


ROUTE: dict[Key, Object] = {
    ("HTTPRoute", "n", "r"): {
        "spec": {
            "parentRefs": [{"name": GATEWAY[2]}],
            "rules": [{"backendRefs": [{"name": "collector", "port": 4317}]}],
        }
    }
}
OWN: dict[Key, Object] = {
    ("ObservabilityPolicy", "n", "own"): {
        "spec": {
            "targetRefs": [{"group": GROUP, "kind": "HTTPRoute", "name": "r"}],
            "tracing": {"strategy": "ratio", "ratio": 7},
        }
    }
}


def test_routes_follow_the_policy_of_the_gateway_unless_they_have_their_own() -> None:
    world = World({POLICY: policy(enabled(samplingRate=fraction(3))), **ROUTE})
    tracing = routes_tracing(world)
    assert tracing is not None
    assert (tracing.percent, tracing.origin) == (3, WHOLE)
    world.commit(OWN)
    tracing = routes_tracing(world)
    assert tracing is not None
    assert (tracing.percent, tracing.origin.kind) == (7, "ObservabilityPolicy")


def test_policy_that_disables_traces_holds_for_policies_of_routes() -> None:
    world = World({**TRACED, POLICY: policy({"mode": "Disabled"}), **ROUTE, **OWN})
    assert routes_tracing(world) is None
    (accepted,) = world.status(("ObservabilityPolicy", "n", "own"))
    assert accepted.startswith("Accepted False NginxProxyConfigNotSet")
    assert accepted.endswith("see XTelemetryPolicy n/p")
