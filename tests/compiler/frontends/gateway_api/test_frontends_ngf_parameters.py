"""NginxProxies of NGINX Gateway Fabric: what is served of them, and what the Gateway reports."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.one_route import BACKEND, GATEWAY, conditions, engine
from gatehouse.apis.data_plane_parameters import ParametersSpec
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api import external_name_rules
from gatehouse.compiler.frontends.gateway_api.extensions.metrics_parameters import metrics_port
from gatehouse.compiler.ir.access_log import AccessLog, NginxLogFormat
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.incremental.query import Engine, Key, Snapshot

PARAMETERS: Key = ("NginxProxy", "n", "p")
UNSERVED: dict[str, dict[str, Any]] = {
    "metrics.disable": {"metrics": {"disable": True}},
    "metrics.port": {"metrics": {"port": 80}},
    "waf": {"waf": {"enable": True}},
    "nginxPlus": {"nginxPlus": {"allowedAddresses": []}},
    **{
        f"kubernetes.{kind}.{path}": {"kubernetes": {kind: value}}
        for kind in ("deployment", "daemonSet")
        for path, value in {
            "wafContainers": {"wafContainers": {}},
            "container.debug": {"container": {"debug": True}},
            "container.readinessProbe.port": {"container": {"readinessProbe": {"port": 8081}}},
            "container.readinessProbe.path": {"container": {"readinessProbe": {"path": "/ok"}}},
            "container.readinessProbe.expose": {"container": {"readinessProbe": {"expose": True}}},
        }.items()
    },
}


def compiled(
    spec: dict[str, Any], *, class_name: str = "nginx", of_class: bool = False
) -> tuple[DataPlaneSettings, str]:
    """Return the settings of a Gateway with parameters, and its condition Accepted."""
    engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
    engine.commit({gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")})
    reference = {"group": "gateway.nginx.org", "kind": "NginxProxy", "name": "p"}
    of_gateway = {} if of_class else {"infrastructure": {"parametersRef": reference}}
    class_reference = {"parametersRef": {**reference, "namespace": "n"}} if of_class else {}
    listeners = [{"name": "l", "port": 80, "protocol": "HTTP"}]
    specs: dict[Key, dict[str, Any]] = {
        ("GatewayClass", "", class_name): {
            "controllerName": gateway_api.NGINX, **class_reference
        },
        GATEWAY: {"gatewayClassName": class_name, "listeners": listeners, **of_gateway},
        PARAMETERS: spec,
    }  # fmt: skip
    for key, object_spec in specs.items():
        raw = {"metadata": {"name": key[2], "namespace": key[1]}, "spec": object_spec}
        engine.commit({key: gateway_api.decode_gateway_api_object(key[0], raw)})
    with engine.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
        outcome = ask(gateway_api.gateway_api_status, GATEWAY)
    assert gateway is not None
    assert outcome is not None
    status = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
    assert status is not None
    (accepted,) = [entry for entry in status["conditions"] if entry["type"] == "Accepted"]
    return gateway.settings, f"{accepted['status']} {accepted['reason']}: {accepted['message']}"


@pytest.mark.parametrize("of_class", [False, True], ids=["gateway", "class"])
@pytest.mark.parametrize("field", sorted(UNSERVED))
def test_unserved_field_is_named_and_the_others_are_served(field: str, of_class: bool) -> None:
    settings, accepted = compiled({**UNSERVED[field], "disableHTTP2": True}, of_class=of_class)
    assert not settings.http2
    start = f"True Accepted: the Gateway is accepted; not supported: NginxProxy n/p: spec.{field}: "
    assert accepted.startswith(start)
    assert len(accepted) > len(start)


@pytest.mark.parametrize(
    "spec",
    [
        {"logging": {"agentLevel": "fatal"}},
        {"logging": {"accessLog": {"disable": True}}},
        {"waf": {"enable": False}},
        {"metrics": {"port": 9200, "disable": False}},
    ],
)
def test_parameters_without_unsupported_fields_report_nothing(spec: dict[str, Any]) -> None:
    assert compiled(spec)[1] == "True Accepted: the Gateway is accepted"


@pytest.mark.parametrize("port", [0, 65536, -1, True, "9113", [], {}])
def test_invalid_port_of_metrics_is_named(port: object) -> None:
    message = "NginxProxy n/p: spec.metrics.port: must be a number from 1 to 65535"
    assert compiled({"metrics": {"port": port}})[1].endswith(message)
    assert metrics_port(ParametersSpec(metrics={"port": port})) == 0


@pytest.mark.parametrize(
    ("access_log", "enabled"), [({"disable": True}, False), ({"disable": False}, True), ({}, True)]
)
def test_access_log_can_be_disabled(access_log: dict[str, Any], enabled: bool) -> None:
    expected = AccessLog() if enabled else None
    assert compiled({"logging": {"accessLog": access_log}})[0].access_log == expected
    assert compiled({})[0].access_log


@pytest.mark.parametrize(
    ("access_log", "expected"),
    [
        ({"format": "$uri", "escape": "json"}, AccessLog(nginx=NginxLogFormat("$uri", "json"))),
        ({"format": "text"}, AccessLog(style="text")),
        ({"format": "json"}, AccessLog()),
        ({"statusClasses": ["5xx", "4xx", "5xx"]}, AccessLog((4, 5))),
        ({"samplePercent": 10}, AccessLog(percent=10)),
    ],
)
def test_settings_of_the_access_log_are_served(
    access_log: dict[str, Any], expected: AccessLog
) -> None:
    settings, accepted = compiled({"logging": {"accessLog": access_log}})
    assert settings.access_log == expected
    assert accepted == "True Accepted: the Gateway is accepted"


@pytest.mark.parametrize(
    "access_log",
    [
        {"format": 1},
        {"escape": "x"},
        {"escape": ["x"]},
        {"statusClasses": "5xx"},
        {"statusClasses": ["6xx"]},
        {"statusClasses": [{}]},
        {"samplePercent": 0},
        {"samplePercent": "1"},
    ],
)
def test_invalid_setting_of_the_access_log_is_an_invalid_parameter(
    access_log: dict[str, Any],
) -> None:
    settings, accepted = compiled({"logging": {"accessLog": access_log}})
    assert settings.access_log == AccessLog()
    assert accepted.partition(":")[0].endswith(" InvalidParameters")
    assert f"spec.logging.accessLog.{next(iter(access_log))}: must be" in accepted


def test_error_level_is_served() -> None:
    settings, accepted = compiled({"logging": {"errorLevel": "crit"}})
    assert (settings.nginx.error_level, accepted) == (
        "crit",
        "True Accepted: the Gateway is accepted",
    )


def test_unknown_error_level_is_an_invalid_parameter() -> None:
    settings, accepted = compiled({"logging": {"errorLevel": "x; y"}})
    assert settings.nginx.error_level == ""
    assert accepted.partition(":")[0].endswith(" InvalidParameters")
    assert "NginxProxy n/p: spec.logging.errorLevel: 'x; y' is not supported" in accepted


@pytest.mark.parametrize("class_name", ["nginx", "any-other"])
def test_class_of_any_name_is_served(class_name: str) -> None:
    settings, accepted = compiled({"disableHTTP2": True}, class_name=class_name)
    assert (settings.http2, accepted) == (False, "True Accepted: the Gateway is accepted")


@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
def test_external_name_that_is_not_allowed_is_reported_on_the_route(kind: str) -> None:
    ports = [{"name": "p", "port": 80, "protocol": "TCP"}]
    spec = {"type": "ExternalName", "externalName": "other.example", "ports": ports}
    with engine(kind, [{"backendRefs": [BACKEND]}], (("Service", "n", "s"), spec)).compile() as ask:
        text = conditions(ask, kind)
    assert "ResolvedRefs=False ExternalNameNotAllowed: " in text
    assert "Service n/s: spec.externalName: 'other.example': --allow-external-name does not" in text


NOT_A_NAME, AN_ADDRESS = "must be a DNS name", "must be a DNS name, not an IP address"
SPECIAL = "must not be a name of the host, of the cluster or of the cloud"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("api.example.net", ""),
        ("a-b.xn--bcher-kva.example", ""),
        ("svc.example.net", ""),
        ("", NOT_A_NAME),
        ("a..example", NOT_A_NAME),
        ("a.example; resolver", NOT_A_NAME),
        ("a.example$host", NOT_A_NAME),
        ("*.example", NOT_A_NAME),
        ("::1", NOT_A_NAME),
        (f"{'a' * 64}.example", NOT_A_NAME),
        (f"{'a.' * 124}example", NOT_A_NAME),
        ("127.0.0.1", AN_ADDRESS),
        ("127.1", AN_ADDRESS),
        ("0x7f.0.0.0x1", AN_ADDRESS),
        ("2130706433", AN_ADDRESS),
        ("localhost", SPECIAL),
        ("a.localhost", SPECIAL),
        ("kubernetes", SPECIAL),
        ("kubernetes.default.svc", SPECIAL),
        ("kubernetes.default.svc.cluster.local", SPECIAL),
        ("db.other.svc.example.net", SPECIAL),
        ("10-0-0-1.other.pod.example.net", SPECIAL),
        ("metadata.google.internal", SPECIAL),
        ("1.0.0.127.in-addr.arpa", SPECIAL),
    ],
)
def test_name_of_host_cluster_and_cloud_is_refused_even_if_all_are_allowed(
    name: str, problem: str
) -> None:
    assert external_name_rules.name_problem(name, ["*"]) == problem


@pytest.mark.parametrize(
    ("domains", "allowed"),
    [
        ((), False),
        (("example.net",), True),
        ((".Example.NET.",), True),
        (("api.example.net",), True),
        (("ple.net",), False),
        (("example.org", "net"), True),
    ],
)
def test_name_is_allowed_by_its_domain(domains: tuple[str, ...], allowed: bool) -> None:
    assert (external_name_rules.name_problem("api.example.net", domains) == "") is allowed


@pytest.mark.parametrize(("number", "expected"), [(2048, "2048"), (1, "1024"), (65535, "65535")])
def test_worker_connections_are_configured_with_a_minimum(number: int, expected: str) -> None:
    settings, accepted = compiled({"workerConnections": number})
    assert accepted == "True Accepted: the Gateway is accepted"
    gateway = GatewayConfiguration("n/gw", settings=settings)
    files = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3")).generate(gateway)
    content = files.file_set.files["gatehouse/events.conf"].content.decode()
    assert content == f"worker_connections {expected};\n"


def test_worker_connections_beyond_ports_of_an_address_are_invalid() -> None:
    assert (
        "spec.workerConnections: must be from 1 to 65535"
        in compiled({"workerConnections": 65536})[1]
    )


@pytest.mark.parametrize("controller", [gateway_api.NGINX, gateway_api.ENVOY])
@pytest.mark.parametrize("group", ["", "core"])
def test_core_is_the_group_of_services_in_target_references(group: str, controller: str) -> None:
    target = {"group": group, "kind": "Service", "name": "s"}
    spec = {"targetRefs": [target], "keepAlive": {"connections": 7}}
    policy: Key = ("UpstreamSettingsPolicy", "n", "p")
    of_controller = {"controllerName": controller}
    others = ((policy, spec), (("GatewayClass", "", "c"), of_controller))
    with engine("HTTPRoute", [{"backendRefs": [BACKEND]}], *others).compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
        outcome = ask(gateway_api.gateway_api_status, policy)
    assert gateway is not None
    (cluster,) = gateway.clusters
    assert cluster.settings.connections == 7
    assert "targetRef" not in str(outcome)


@pytest.mark.parametrize("controller", [gateway_api.NGINX, gateway_api.ENVOY])
def test_name_servers_of_an_nginx_proxy_resolve_external_names(controller: str) -> None:
    addresses = [{"type": "IPAddress", "value": "192.0.2.53"}]
    reference = {"group": "gateway.nginx.org", "kind": "NginxProxy", "name": "p", "namespace": "n"}
    ports = [{"name": "p", "port": 80}]
    external = {"type": "ExternalName", "externalName": "api.example.net", "ports": ports}
    compiler = engine(
        "HTTPRoute",
        [{"backendRefs": [BACKEND]}],
        (PARAMETERS, {"dnsResolver": {"addresses": addresses, "timeout": "2s"}}),
        (("GatewayClass", "", "c"), {"controllerName": controller, "parametersRef": reference}),
        (("Service", "n", "s"), external),
    )
    settings = gateway_api.ControllerSettings(bind="any", external_names=("example.net",))
    compiler.commit({gateway_api.SETTINGS_KEY: settings})
    with compiler.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    (cluster,) = gateway.clusters
    assert cluster.endpoints[0].address == "api.example.net"
    assert cluster.resolution is not None
    assert (cluster.resolution.addresses, cluster.resolution.timeout) == (("192.0.2.53",), 2.0)
