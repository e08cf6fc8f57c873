"""Desired objects of a Gateway."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gatehouse.apis.data_plane_workload import ContainerOptions, Image
from gatehouse.controller.provisioner.manifests import (
    ProvisionerSettings,
    ProvisioningPlan,
    desired,
)
from gatehouse.controller.provisioner.pod import ProxyKind, free_health_port, image
from gatehouse.controller.provisioner.service import Ports

SETTINGS = ProvisionerSettings(
    images={"nginx": "example.com/gatehouse:1", "envoy": "example.com/gatehouse-envoy:1"},
    agent_host="127.0.0.1",
    agent_port=16444,
    server_name="control.system.svc",
    ca_bundle="PEM",
    audience="control",
)


PORTS: Ports = ((53, "UDP"), (80, "TCP"), (8443, "TCP"))
PLAN = ProvisioningPlan(PORTS)


def gateway(name: str = "cafe", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": "u1"},
        "spec": {"gatewayClassName": "gatehouse-nginx", **spec},
    }


def made(
    raw: dict[str, Any],
    ports: Ports = PORTS,
    proxy: ProxyKind = "nginx",
    settings: ProvisionerSettings = SETTINGS,
) -> dict[str, dict[str, Any]]:
    return {
        resource.kind: obj
        for resource, obj in desired(raw, settings, ProvisioningPlan(ports, proxy))
    }


def container(raw: dict[str, Any], ports: Ports = PORTS) -> dict[str, Any]:
    spec = made(raw, ports)["Deployment"]["spec"]["template"]["spec"]
    [only] = spec["containers"]
    assert isinstance(only, dict)
    return only


def test_service_account_precedes_its_users() -> None:
    kinds = [resource.kind for resource, _ in desired(gateway(), SETTINGS, PLAN)]
    assert kinds == ["ServiceAccount", "ConfigMap", "Service", "Deployment"]


def test_every_object_has_name_labels_and_owner() -> None:
    for kind, obj in made(gateway()).items():
        metadata = obj["metadata"]
        suffix = "-agent" if kind == "ConfigMap" else ""
        assert metadata["name"] == "cafe-gatehouse-nginx" + suffix
        assert metadata["namespace"] == "shop"
        assert metadata["labels"] == {
            "app.kubernetes.io/name": "cafe-gatehouse-nginx",
            "app.kubernetes.io/instance": "cafe-gatehouse-nginx",
            "app.kubernetes.io/managed-by": "gatehouse",
            "gateway.networking.k8s.io/gateway-name": "cafe",
            "gateway.networking.k8s.io/gateway-class-name": "gatehouse-nginx",
        }
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "Gateway",
                "name": "cafe",
                "uid": "u1",
                "controller": True,
            }
        ]


def test_infrastructure_metadata_applies_to_every_object_and_pod() -> None:
    objects = made(
        gateway(infrastructure={"labels": {"team": "tea"}, "annotations": {"note": "x"}})
    )
    metadata = [obj["metadata"] for obj in objects.values()]
    metadata.append(objects["Deployment"]["spec"]["template"]["metadata"])
    for entry in metadata:
        assert entry["labels"]["team"] == "tea"
        assert entry["annotations"]["note"] == "x"


def test_infrastructure_annotations_cannot_set_service_name() -> None:
    raw = gateway(infrastructure={"annotations": {"gatehouse.dev/service-name": "other"}})
    template = made(raw)["Deployment"]["spec"]["template"]
    assert "gatehouse.dev/service-name" not in template["metadata"]["annotations"]


@pytest.mark.parametrize("key", ["app.kubernetes.io/managed-by", "app.kubernetes.io/name"])
def test_infrastructure_labels_cannot_override_gatehouse_labels(key: str) -> None:
    usual = made(gateway())["Service"]["metadata"]["labels"][key]
    raw = gateway(infrastructure={"labels": {key: "mine"}})
    assert made(raw)["Service"]["metadata"]["labels"][key] == usual


def test_service_has_exactly_the_distinct_listener_ports() -> None:
    spec = made(gateway())["Service"]["spec"]
    assert spec["type"] == "LoadBalancer"
    assert spec["ports"] == [
        {"name": "port-53-udp", "port": 53, "targetPort": 53, "protocol": "UDP"},
        {"name": "port-80", "port": 80, "targetPort": 80, "protocol": "TCP"},
        {"name": "port-8443", "port": 8443, "targetPort": 8443, "protocol": "TCP"},
    ]


def test_service_and_deployment_select_the_pods_of_this_gateway_only() -> None:
    objects = made(gateway())
    template = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        objects["Service"]["spec"]["selector"],
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector == {
            "app.kubernetes.io/name": "cafe-gatehouse-nginx",
            "gateway.networking.k8s.io/gateway-name": "cafe",
        }
        assert selector.items() <= template.items()


def test_gateway_without_ports_has_no_service() -> None:
    assert "Service" not in made(gateway(), ())


def test_agent_environment_names_control_plane_and_agent_identity() -> None:
    env = {entry["name"]: entry.get("value") for entry in container(gateway())["env"]}
    assert env == {
        "POD_NAME": None,
        "POD_NAMESPACE": None,
        "POD_UID": None,
        "POD_IP": None,
        "NGINX_AGENT_COMMAND_SERVER_HOST": "127.0.0.1",
        "NGINX_AGENT_COMMAND_SERVER_PORT": "16444",
        "NGINX_AGENT_COMMAND_AUTH_TOKENPATH": "/var/run/secrets/gatehouse/token",
        "NGINX_AGENT_COMMAND_TLS_CA": "/etc/gatehouse/ca/ca.crt",
        "NGINX_AGENT_COMMAND_TLS_SERVER_NAME": "control.system.svc",
        "NGINX_AGENT_LABELS": "owner-name=shop_cafe-gatehouse-nginx,owner-type=Deployment",
        "GATEHOUSE_AGENT_GATEWAY": "cafe",
        "GATEHOUSE_AGENT_STATE_DIR": "/var/lib/gatehouse",
        "GATEHOUSE_AGENT_RUN_DIR": "/var/run/gatehouse",
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": "$(POD_IP):9113",
        "GATEHOUSE_AGENT_SHUTDOWN_DELAY_SECONDS": "3",
    }


def test_data_plane_pod_is_unprivileged() -> None:
    objects = made(gateway())
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    context = container(gateway())["securityContext"]
    assert objects["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == 101
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_agent_has_token_for_control_plane_and_ca_of_config_map() -> None:
    objects = made(gateway())
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {m["name"]: m["mountPath"] for m in container(gateway())["volumeMounts"]}
    assert volumes["token"]["projected"]["sources"] == [
        {
            "serviceAccountToken": {
                "audience": "control",
                "expirationSeconds": 3600,
                "path": "token",
            }
        }
    ]
    assert volumes["ca"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert objects["ConfigMap"]["data"] == {"ca.crt": "PEM"}
    assert volumes["run"]["emptyDir"] == {"medium": "Memory"}
    assert mounts == {
        "token": "/var/run/secrets/gatehouse",
        "ca": "/etc/gatehouse/ca",
        "data": "/var/lib/gatehouse",
        "run": "/var/run/gatehouse",
    }


def pod_with(**settings: Any) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Return the Pod for some settings, and the environment of its container."""
    changed = msgspec.structs.replace(SETTINGS, **settings)
    (pod,) = (
        obj["spec"]["template"]["spec"]
        for resource, obj in desired(gateway(), changed, PLAN)
        if resource.kind == "Deployment"
    )
    return pod, {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}


def test_time_factor_of_the_controller_applies_to_agents() -> None:
    assert pod_with(time_factor=2.5)[1]["GATEHOUSE_TIME_FACTOR"] == "2.5"
    assert "GATEHOUSE_TIME_FACTOR" not in pod_with()[1]


def test_agent_certificate_is_mounted_from_configured_secret() -> None:
    pod, env = pod_with(client_secret="agents")
    assert env["NGINX_AGENT_COMMAND_TLS_CERT"] == "/etc/gatehouse/client/tls.crt"
    assert env["NGINX_AGENT_COMMAND_TLS_KEY"] == "/etc/gatehouse/client/tls.key"
    assert {"name": "client", "secret": {"secretName": "agents"}} in pod["volumes"]


def test_scrape_annotations_are_defaults() -> None:
    def annotations(**infrastructure: Any) -> dict[str, str]:
        raw = gateway(infrastructure=infrastructure)
        allowing = msgspec.structs.replace(SETTINGS, metadata_domains=("prometheus.io",))
        metadata = made(raw, settings=allowing)["Deployment"]["spec"]["template"]["metadata"]
        return dict(metadata["annotations"])

    assert annotations()["prometheus.io/scrape"] == "true"
    assert annotations()["prometheus.io/port"] == "9113"
    refused = annotations(annotations={"prometheus.io/scrape": "false"})
    assert refused["prometheus.io/scrape"] == "false"


@pytest.mark.parametrize(("requested", "used"), [(9200, 9200), (8443, 8444), (0, 9113)])
def test_requested_port_has_metrics_and_probes_unless_a_listener_has_it(
    requested: int, used: int
) -> None:
    plan = ProvisioningPlan(PORTS, metrics_port=requested)
    objects = {resource.kind: obj for resource, obj in desired(gateway(), SETTINGS, plan)}
    template = objects["Deployment"]["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(used)
    [only] = template["spec"]["containers"]
    probes = [only[name]["httpGet"]["port"] for name in ("readinessProbe", "livenessProbe")]
    assert probes == [used, used]
    environment = {entry["name"]: entry.get("value") for entry in only["env"]}
    assert environment["GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS"] == f"$(POD_IP):{used}"


@pytest.mark.parametrize("ports", [(65535,), (65535, 1, 2)])
def test_last_port_is_followed_by_the_first(ports: tuple[int, ...]) -> None:
    assert free_health_port(65535, ports) == (1 if len(ports) == 1 else 3)


def test_health_port_avoids_listener_ports() -> None:
    only = container(gateway(), ((9113, "TCP"), (9114, "TCP")))
    env = {entry["name"]: entry.get("value") for entry in only["env"]}
    assert env["GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS"] == "$(POD_IP):9115"
    assert only["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 9115}
    assert only["livenessProbe"]["httpGet"] == {"path": "/livez", "port": 9115}


def test_pod_on_service_address_has_annotation_and_others_shutdown_delay() -> None:
    for alone in (True, False):
        settings = msgspec.structs.replace(SETTINGS, on_service_address=alone)
        objects = {r.kind: obj for r, obj in desired(gateway(), settings, PLAN)}
        template = objects["Deployment"]["spec"]["template"]
        named = template["metadata"]["annotations"].get("gatehouse.dev/service-name")
        assert named == (objects["Service"]["metadata"]["name"] if alone else None)
        env = {entry["name"] for entry in template["spec"]["containers"][0]["env"]}
        assert ("GATEHOUSE_AGENT_SHUTDOWN_DELAY_SECONDS" in env) is not alone


def test_desired_objects_are_deterministic() -> None:
    assert desired(gateway(), SETTINGS, PLAN) == desired(gateway(), SETTINGS, PLAN)


def test_gateway_address_is_requested_as_load_balancer_ip() -> None:
    addresses = [{"type": "IPAddress"}, {"type": "IPAddress", "value": "10.0.0.9"}]
    assert made(gateway(addresses=addresses))["Service"]["spec"]["loadBalancerIP"] == "10.0.0.9"
    assert "loadBalancerIP" not in made(gateway())["Service"]["spec"]


def test_envoy_data_plane_uses_envoy_image_and_agent_option() -> None:
    [one] = made(gateway(), proxy="envoy")["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert one["name"] == "envoy"
    assert one["image"] == "example.com/gatehouse-envoy:1"
    assert one["command"] == ["gatehouse", "agent", "--proxy", "envoy"]
    assert container(gateway())["command"] == ["gatehouse", "agent", "--proxy", "nginx"]


@pytest.mark.parametrize(
    ("usual", "options", "reference"),
    [
        ("r.example:5000/n:1@sha256:aa", Image(), "r.example:5000/n:1@sha256:aa"),
        # A digest is of one image, and says nothing of others.
        ("r.example:5000/n:1@sha256:aa", Image(tag="2"), "r.example:5000/n:2"),
        ("r.example:5000/n:1@sha256:aa", Image(repository="m"), "m:1"),
        ("r.example:5000/n:1", Image(tag="2@sha256:bb"), "r.example:5000/n:2@sha256:bb"),
        ("r.example:5000/n@sha256:aa", Image(repository="m/n"), "m/n@sha256:aa"),
    ],
)
def test_image_can_be_pinned_by_digest(usual: str, options: Image, reference: str) -> None:
    assert image(usual, ContainerOptions(image=options)) == reference
