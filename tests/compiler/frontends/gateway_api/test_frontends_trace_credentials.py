"""CA certificates and client certificate of a collector, in parameters of data planes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from fakes.authority import Authority
from fakes.one_route import GATEWAY
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.incremental.query import Engine, Key, Snapshot

GROUP = "gatehouse.dev"
OWN: Key = ("GatewayParameters", "n", "own")
OF_CLASS: Key = ("GatewayParameters", "system", "class")
Object = dict[str, Any]
TLS: Object = {
    "caCertificateRefs": [{"kind": "ConfigMap", "name": "ca"}],
    "clientCertificateRef": {"kind": "Secret", "name": "client"},
}


def telemetry(endpoint: str | None, tls: Object | None = None, **more: Any) -> Object:
    """Return parameters with an exporter."""
    named = {} if endpoint is None else {"endpoint": endpoint}
    exporter = {**named, **({} if tls is None else {"tls": tls}), **more}
    return {"spec": {"telemetry": {"exporter": exporter}}}


@pytest.fixture
def credentials(tmp_path: Path) -> dict[Key, Object]:
    """A CA and a client certificate in each of three namespaces."""
    result: dict[Key, Object] = {}
    for namespace in ("n", "system", "other"):
        authority = Authority(tmp_path, f"ca-{namespace}")
        chain, key = (path.read_bytes() for path in authority.issue(f"client-{namespace}"))
        result["ConfigMap", namespace, "ca"] = {"data": {"ca.crt": authority.pem.decode()}}
        data = {"tls.crt": chain, "tls.key": key, "ca.crt": authority.pem}
        result["Secret", namespace, "client"] = {
            "type": "kubernetes.io/tls",
            "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        }
    return result


def compiled(objects: dict[Key, Object]) -> tuple[GatewayConfiguration, str]:
    """Return the configuration of a Gateway, and its condition Accepted."""
    engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
    engine.commit({gateway_api.SETTINGS_KEY: gateway_api.ControllerSettings(bind="any")})
    reference = {"group": GROUP, "kind": "GatewayParameters", "name": "own"}
    outer = {**reference, "name": "class", "namespace": "system"}
    whole: dict[Key, Object] = {
        ("GatewayClass", "", "c"): {
            "spec": {"controllerName": gateway_api.ENVOY, "parametersRef": outer}
        },
        GATEWAY: {
            "spec": {
                "gatewayClassName": "c",
                "listeners": [{"name": "l", "port": 80, "protocol": "HTTP"}],
                "infrastructure": {"parametersRef": reference},
            }
        },
        ("Service", "n", "collector"): {"spec": {"ports": []}},
        OWN: {"spec": {}},
        OF_CLASS: {"spec": {}},
        **objects,
    }
    for key, content in whole.items():
        raw = {"metadata": {"name": key[2], "namespace": key[1]}, **content}
        engine.commit({key: gateway_api.decode_gateway_api_object(key[0], raw)})
    with engine.compile() as ask:
        configuration = ask(gateway_api.compile_gateway, GATEWAY)
        outcome = ask(gateway_api.gateway_api_status, GATEWAY)
    assert configuration is not None
    assert outcome is not None
    status = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
    assert status is not None
    (accepted,) = [entry for entry in status["conditions"] if entry["type"] == "Accepted"]
    return configuration, f"{accepted['status']} {accepted['reason']}: {accepted['message']}"


def used(configuration: GatewayConfiguration) -> tuple[str, str, str]:
    """Return the host of the collector and the holders of its credentials; empty without export."""
    export = configuration.settings.traces
    if export is None:
        assert not configuration.certificates
        assert not configuration.trust_bundles
        return "", "", ""
    bundles = {bundle.name: bundle for bundle in configuration.trust_bundles}
    certificates = {entry.name: entry for entry in configuration.certificates}
    assert set(bundles) == {export.trust} - {""}
    assert set(certificates) == {export.certificate} - {""}
    trust = ", ".join(map(str, bundles[export.trust].origins)) if export.trust else ""
    client = str(certificates[export.certificate].origin) if export.certificate else ""
    return export.host, trust, client


ACCEPTED = "True Accepted: the Gateway is accepted"


@pytest.mark.parametrize(
    ("parameters", "endpoint", "namespace"),
    [(OWN, "collector.n.svc", "n"), (OF_CLASS, "collector.system.svc", "system")],
)
def test_credentials_are_those_of_the_namespace_of_the_parameters(
    credentials: dict[Key, Object], parameters: Key, endpoint: str, namespace: str
) -> None:
    objects = {**credentials, parameters: telemetry(f"https://{endpoint}", TLS)}
    configuration, accepted = compiled(objects)
    holders = f"ConfigMap {namespace}/ca", f"Secret {namespace}/client"
    assert used(configuration) == (endpoint, *holders)
    assert accepted == ACCEPTED


def test_endpoint_of_a_gateway_has_no_credentials_of_its_class(
    credentials: dict[Key, Object],
) -> None:
    objects = {
        **credentials,
        OF_CLASS: telemetry("https://collector.system.svc", TLS),
        OWN: telemetry("https://collector.n.svc"),
    }
    assert used(compiled(objects)[0]) == ("collector.n.svc", "", "")


def test_other_fields_of_a_gateway_leave_collector_and_credentials_as_they_are(
    credentials: dict[Key, Object],
) -> None:
    objects = {
        **credentials,
        OF_CLASS: telemetry("https://collector.system.svc", TLS),
        OWN: telemetry(None, interval="1s"),
    }
    configuration, accepted = compiled(objects)
    holders = "ConfigMap system/ca", "Secret system/client"
    assert used(configuration) == ("collector.system.svc", *holders)
    assert configuration.settings.traces is not None
    assert configuration.settings.traces.interval == 1.0
    assert accepted == ACCEPTED


@pytest.mark.parametrize("endpoint", [None, "collector.n.svc", "http://collector.n.svc"])
def test_credentials_without_an_endpoint_with_tls_are_invalid(
    credentials: dict[Key, Object], endpoint: str | None
) -> None:
    objects = {
        **credentials,
        OF_CLASS: telemetry("https://collector.system.svc", TLS),
        OWN: telemetry(endpoint, TLS),
    }
    configuration, accepted = compiled(objects)
    assert used(configuration)[0] == "collector.system.svc"
    assert "spec.telemetry.exporter.tls: may be set with an exporter.endpoint of https://" in (
        accepted
    )


@pytest.mark.parametrize(
    ("field", "reference", "problem"),
    [
        ("caCertificateRefs", {"kind": "ConfigMap", "name": "x"}, "ConfigMap n/x not found"),
        ("caCertificateRefs", {"kind": "Service", "name": "ca"}, "kind Service is not supported"),
        (
            "caCertificateRefs",
            {"kind": "Secret", "name": "client", "namespace": "other"},
            "Secret other/client not allowed by any ReferenceGrant",
        ),
        ("clientCertificateRef", {"kind": "Secret", "name": "x"}, "Secret n/x not found"),
        (
            "clientCertificateRef",
            {"kind": "Secret", "name": "client", "namespace": "other"},
            "Secret other/client not allowed by any ReferenceGrant",
        ),
    ],
)
def test_unusable_credentials_stop_the_export_and_are_named(
    credentials: dict[Key, Object], field: str, reference: Object, problem: str
) -> None:
    value = [reference] if field == "caCertificateRefs" else reference
    objects = {**credentials, OWN: telemetry("https://collector.n.svc", {**TLS, field: value})}
    configuration, accepted = compiled(objects)
    assert used(configuration) == ("", "", "")
    start = "False InvalidParameters: GatewayParameters n/own: spec.telemetry.exporter.tls."
    assert accepted.startswith(f"{start}{field}")
    assert problem in accepted


@pytest.mark.parametrize("group", [GROUP, "gateway.networking.k8s.io"])
def test_credentials_of_another_namespace_need_a_grant_for_the_parameters(
    credentials: dict[Key, Object], group: str
) -> None:
    elsewhere = {
        "caCertificateRefs": [{"kind": "Secret", "name": "client", "namespace": "other"}],
        "clientCertificateRef": {"kind": "Secret", "name": "client", "namespace": "other"},
    }
    grant = {
        "from": [{"group": group, "kind": "GatewayParameters", "namespace": "n"}],
        "to": [{"group": "", "kind": "Secret", "name": "client"}],
    }
    objects = {
        **credentials,
        OWN: telemetry("https://collector.n.svc", elsewhere),
        ("ReferenceGrant", "other", "g"): {"spec": grant},
    }
    configuration, _ = compiled(objects)
    holder = "Secret other/client"
    granted = ("collector.n.svc", holder, holder)
    assert used(configuration) == (granted if group == GROUP else ("", "", ""))


def test_one_usable_ca_is_enough_and_the_other_one_is_named(
    credentials: dict[Key, Object],
) -> None:
    references = [{"kind": "ConfigMap", "name": name} for name in ("ca", "missing")]
    objects = {
        **credentials,
        OWN: telemetry("https://collector.n.svc", {"caCertificateRefs": references}),
    }
    configuration, accepted = compiled(objects)
    assert used(configuration) == ("collector.n.svc", "ConfigMap n/ca", "")
    assert "tls.caCertificateRefs[1]: ConfigMap n/missing not found" in accepted


def test_disabled_traces_use_no_credentials(credentials: dict[Key, Object]) -> None:
    parameters = telemetry("https://collector.n.svc", TLS)
    parameters["spec"]["telemetry"]["disabledFeatures"] = ["DisableTracing"]
    configuration, accepted = compiled({**credentials, OWN: parameters})
    assert used(configuration) == ("", "", "")
    assert accepted == ACCEPTED
