"""Parameters of Gateways, and the Pods that the controller writes for them.

Who: the author of a Gateway and its parameters in one namespace, without a right to write Pods; and
an operator whose parameters of a GatewayClass ask for more than intended. Through what:
GatewayParameters, NginxProxy, and labels and annotations of `spec.infrastructure`. What must hold:
only listed fields apply, within ceilings; no instruction reaches another component of the cluster;
and the final Pod meets the Pod Security level of the installation, or is not written.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from fakes.admission import admitted_objects
from gatehouse.apis.data_plane_parameters import DnsResolverSpec, ParametersSpec
from gatehouse.apis.resource_limits import ResourceLimits, parse_limits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions import overrides
from gatehouse.compiler.frontends.gateway_api.status.types import GatewayStatus
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.provisioner.manifests import ProvisionerSettings, desired
from gatehouse.controller.provisioner.pod_security import ForbiddenPodError, Level, violations

OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {{name: ns}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: c}}
spec:
  controllerName: gatehouse.dev/{proxy}
  parametersRef: {{group: gatehouse.dev, kind: GatewayParameters, name: operator, namespace: ns}}
---
apiVersion: gatehouse.dev/v1alpha1
kind: GatewayParameters
metadata: {{name: operator}}
spec: {outer}
---
apiVersion: gatehouse.dev/v1alpha1
kind: GatewayParameters
metadata: {{name: own}}
spec: {inner}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: gw, uid: u1}}
spec:
  gatewayClassName: c
  infrastructure: {infrastructure}
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
"""
REFERENCE = {
    "parametersRef": {"group": "gatehouse.dev", "kind": "GatewayParameters", "name": "own"}
}


class Provisioned:
    """Objects and condition Accepted of a Gateway."""

    def __init__(
        self,
        inner: Mapping[str, Any] | None = None,
        outer: Mapping[str, Any] | None = None,
        *,
        infrastructure: Mapping[str, Any] | None = None,
        proxy: str = "nginx",
        level: Level = "restricted",
        domains: tuple[str, ...] = (),
        limits: str = "",
    ) -> None:
        text = OBJECTS.format(
            inner=json.dumps(inner or {}),
            outer=json.dumps(outer or {}),
            infrastructure=json.dumps({**REFERENCE, **(infrastructure or {})}),
            proxy=proxy,
        )
        compilation = Compilation(
            gateway_api.ControllerSettings(
                bind="any", limits=parse_limits(limits), metadata_domains=domains
            )
        )
        raw_gateway: dict[str, Any] = {}
        for kind, raw in admitted_objects(text):
            metadata = raw["metadata"]
            compilation.put(kind, (metadata.get("namespace", ""), metadata["name"]), raw)
            raw_gateway = raw if kind == "Gateway" else raw_gateway
        result = compilation.run()
        key = ("Gateway", "ns", "gw")
        status = result.statuses[key]
        assert isinstance(status, GatewayStatus)
        [self.accepted] = [
            condition for condition in status.conditions if condition.type == "Accepted"
        ]
        self.plan = result.plans[key]
        settings = ProvisionerSettings(
            images={"nginx": "n", "envoy": "e"},
            agent_host="host",
            agent_port=1,
            server_name="name",
            ca_bundle="ca",
            audience="audience",
            pod_security=level,
            metadata_domains=domains,
        )
        self._inputs = (raw_gateway, settings, self.plan)

    def build(self) -> dict[str, dict[str, Any]]:
        """Return the objects by kind. Raises ForbiddenPodError."""
        return {resource.kind: obj for resource, obj in desired(*self._inputs)}

    @property
    def template(self) -> dict[str, Any]:
        objects = self.build()
        workload = objects.get("Deployment") or objects["DaemonSet"]
        template: dict[str, Any] = workload["spec"]["template"]
        return template


CONTAINER = {
    "name": "a",
    "image": "i",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
GOOD = {"metadata": {}, "spec": {"containers": [CONTAINER]}}

_CONTEXT = "spec.containers[0].securityContext"
_LOCAL = {"type": "Localhost", "localhostProfile": "p"}

FORBIDDEN_IN_BASELINE = [
    ("spec.hostNetwork", True),
    ("spec.hostPID", True),
    ("spec.hostIPC", True),
    ("spec.volumes[0].hostPath", {"path": "/"}),
    ("spec.containers[0].ports[0].hostPort", 80),
    ("spec.containers[0].livenessProbe.httpGet.host", "10.0.0.1"),
    ("spec.containers[0].readinessProbe.tcpSocket.host", "10.0.0.1"),
    ("spec.containers[0].startupProbe.httpGet.host", "10.0.0.1"),
    ("spec.containers[0].lifecycle.preStop.httpGet.host", "10.0.0.1"),
    (f"{_CONTEXT}.privileged", True),
    (f"{_CONTEXT}.procMount", "Unmasked"),
    (f"{_CONTEXT}.capabilities.add", ["SYS_ADMIN"]),
    (f"{_CONTEXT}.capabilities.add", ["NET_RAW"]),
    (f"{_CONTEXT}.seccompProfile.type", "Unconfined"),
    (f"{_CONTEXT}.appArmorProfile.type", "Unconfined"),
    (f"{_CONTEXT}.seLinuxOptions.type", "spc_t"),
    (f"{_CONTEXT}.seLinuxOptions.user", "root"),
    (f"{_CONTEXT}.seLinuxOptions.role", "sysadm_r"),
    (f"{_CONTEXT}.windowsOptions.hostProcess", True),
    ("spec.securityContext.windowsOptions.hostProcess", True),
    ("spec.securityContext.seccompProfile.type", "Unconfined"),
    ("spec.securityContext.appArmorProfile.type", "Unconfined"),
    ("spec.securityContext.seLinuxOptions.type", "unconfined_t"),
    ("spec.securityContext.sysctls[0].name", "kernel.msgmax"),
    ("spec.initContainers[0].securityContext.privileged", True),
    ("metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]", "unconfined"),
]
FORBIDDEN_IN_RESTRICTED = [
    ("spec.volumes[0].nfs", {"server": "s", "path": "/"}),
    ("spec.volumes[0].iscsi", {}),
    ("spec.volumes[0].gitRepo", {}),
    (f"{_CONTEXT}.allowPrivilegeEscalation", True),
    (f"{_CONTEXT}.allowPrivilegeEscalation", None),
    (f"{_CONTEXT}.runAsNonRoot", False),
    (f"{_CONTEXT}.runAsNonRoot", None),
    (f"{_CONTEXT}.runAsUser", 0),
    ("spec.securityContext.runAsUser", 0),
    (f"{_CONTEXT}.seccompProfile", None),
    (f"{_CONTEXT}.capabilities.drop", ["NET_RAW"]),
    (f"{_CONTEXT}.capabilities.drop", None),
    (f"{_CONTEXT}.capabilities.add", ["CHOWN"]),
    ("spec.initContainers[0].securityContext.allowPrivilegeEscalation", None),
]
ALLOWED_IN_RESTRICTED = [
    *((f"spec.volumes[0].{kind}", {}) for kind in ("configMap", "csi", "downwardAPI", "emptyDir")),
    *((f"spec.volumes[0].{kind}", {}) for kind in ("ephemeral", "persistentVolumeClaim")),
    *((f"spec.volumes[0].{kind}", {}) for kind in ("projected", "secret")),
    ("spec.securityContext.sysctls[0].name", "net.ipv4.ip_unprivileged_port_start"),
    (f"{_CONTEXT}.capabilities.add", ["NET_BIND_SERVICE"]),
    (f"{_CONTEXT}.seccompProfile", _LOCAL),
    (f"{_CONTEXT}.appArmorProfile", _LOCAL),
    (f"{_CONTEXT}.seLinuxOptions.type", "container_t"),
    (f"{_CONTEXT}.seLinuxOptions.level", "s0:c1,c2"),
    (f"{_CONTEXT}.runAsUser", 1),
    (f"{_CONTEXT}.procMount", "Default"),
    (f"{_CONTEXT}.privileged", False),
    ("spec.hostNetwork", False),
    ("spec.containers[0].ports[0].hostPort", 0),
    ("metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]", "localhost/p"),
    ("spec.securityContext.runAsNonRoot", True),
]


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the good Pod template with a field set, or removed for None."""
    result: dict[str, Any] = copy.deepcopy(GOOD)
    at: Any = result
    head, bracket, key = path.partition("annotations[")
    words = [*head.removesuffix(".").split("."), *(["annotations", key[:-1]] if bracket else ())]
    for word in words[:-1]:
        name, is_list, _ = word.partition("[")
        new: Any = [{**copy.deepcopy(CONTAINER)}] if name == "initContainers" else [{}]
        at = at.setdefault(name, new)[0] if is_list else at.setdefault(name, {})
    if value is None:
        at.pop(words[-1], None)
    else:
        at[words[-1]] = value
    return result


def paths(template: Mapping[str, Any], level: Level) -> list[str]:
    return [path for path, _ in violations(template, level)]


@pytest.mark.parametrize(("path", "value"), FORBIDDEN_IN_BASELINE)
def test_field_that_baseline_forbids_is_a_violation_of_both_levels(path: str, value: Any) -> None:
    template = changed(path, value)
    assert path in paths(template, "baseline")
    assert path in paths(template, "restricted")
    assert violations(template, "privileged") == []


@pytest.mark.parametrize(("path", "value"), FORBIDDEN_IN_RESTRICTED)
def test_field_that_only_restricted_forbids_violates_restricted(path: str, value: Any) -> None:
    template = changed(path, value)
    assert any(violation.startswith(path) for violation in paths(template, "restricted"))
    assert violations(template, "baseline") == []


@pytest.mark.parametrize(("path", "value"), ALLOWED_IN_RESTRICTED)
def test_field_that_restricted_allows_is_no_violation(path: str, value: Any) -> None:
    assert violations(changed(path, value), "restricted") == []


def test_container_inherits_the_security_context_of_its_pod() -> None:
    template: dict[str, Any] = copy.deepcopy(GOOD)
    context = template["spec"]["containers"][0]["securityContext"]
    outer = {name: context.pop(name) for name in ("runAsNonRoot", "seccompProfile")}
    assert len(violations(template, "restricted")) == 2
    template["spec"]["securityContext"] = outer
    assert violations(template, "restricted") == []


@pytest.mark.parametrize("proxy", ["nginx", "envoy"])
@pytest.mark.parametrize("kind", ["deployment", "daemonSet"])
def test_data_plane_without_parameters_meets_restricted(proxy: str, kind: str) -> None:
    provisioned = Provisioned(outer={"kubernetes": {kind: {}}}, proxy=proxy)
    assert violations(provisioned.template, "restricted") == []


def patch(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"patches": [{"value": {"spec": {"template": {"spec": spec}}}}]}


UNSAFE = [
    (patch({"hostNetwork": True}), "spec.template.spec.hostNetwork"),
    (
        patch({"containers": [{"name": "nginx", "securityContext": {"privileged": True}}]}),
        "spec.template.spec.containers[0].securityContext.privileged",
    ),
    (
        patch({"containers": [{"name": "more", "image": "i"}]}),
        "securityContext.allowPrivilegeEscalation",
    ),
    (
        {"pod": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}},
        "spec.template.spec.volumes[4].hostPath",
    ),
    (
        {"container": {"hostPorts": [{"port": 80, "containerPort": 80}]}},
        "spec.template.spec.containers[0].ports[0].hostPort",
    ),
    (patch({"securityContext": None}), ""),
]


@pytest.mark.parametrize("kind", ["deployment", "daemonSet"])
@pytest.mark.parametrize(("section", "field"), UNSAFE)
def test_class_parameters_beyond_the_level_of_the_installation_are_not_written(
    section: Mapping[str, Any], field: str, kind: str
) -> None:
    outer = {"kubernetes": {kind: section}}
    if field:
        with pytest.raises(ForbiddenPodError) as error:
            Provisioned(outer=outer).build()
        message = str(error.value)
        assert message.startswith(f"{kind[0].upper()}{kind[1:]} ns/gw-c: spec.template.")
        assert field in message
        assert "by Pod Security level restricted (--data-plane-pod-security)" in message
    assert Provisioned(outer=outer, level="privileged").build()


def test_every_field_of_the_parameters_is_listed() -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(ParametersSpec)}
    assert fields == {*overrides.ALLOWED_SETTINGS, overrides.NAME_SERVERS}


@pytest.mark.parametrize("field", [f.name for f in msgspec.structs.fields(ParametersSpec)])
def test_field_of_the_parameters_is_refused_unless_listed(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    struct_field = next(f for f in msgspec.structs.fields(ParametersSpec) if f.name == field)
    listed = set(overrides.ALLOWED_SETTINGS) - {struct_field.encode_name}
    monkeypatch.setattr(overrides, "ALLOWED_SETTINGS", listed)
    parameters_spec = msgspec.structs.replace(ParametersSpec(), **{field: {"service": {}}})
    limited = overrides.limit(parameters_spec, {}, ResourceLimits())
    assert limited.refused == (f"spec.{struct_field.encode_name}",)
    assert getattr(limited.spec, field) == struct_field.default


@pytest.mark.parametrize("any_name", [False, True])
def test_gateway_chooses_name_servers_only_if_every_name_is_allowed(any_name: bool) -> None:
    parameters_spec = ParametersSpec(dns_resolver=DnsResolverSpec())
    limited = overrides.limit(parameters_spec, {}, ResourceLimits(), name_servers=any_name)
    assert limited.refused == (() if any_name else ("spec.dnsResolver",))
    assert (limited.spec.dns_resolver is not None) is any_name


EXCESS = [
    ({"deployment": {"replicas": 33}}, "deployment.replicas: 33", "32 (replicas"),
    (
        {"deployment": {"autoscaling": {"enable": True, "maxReplicas": 33}}},
        *("deployment.autoscaling.maxReplicas: 33", "32 (replicas"),
    ),
    (
        {"deployment": {"container": {"resources": {"requests": {"cpu": "17"}}}}},
        *("deployment.container.resources.requests.cpu: 17", "16 cores (cpu"),
    ),
    (
        {"daemonSet": {"container": {"resources": {"limits": {"memory": "17Gi"}}}}},
        *("daemonSet.container.resources.limits.memory: 17Gi", "17179869184 bytes (memory"),
    ),
    (
        {"deployment": {"pod": {"terminationGracePeriodSeconds": 3601}}},
        *("deployment.pod.terminationGracePeriodSeconds: 3601", "3600 seconds (gracePeriod"),
    ),
]


@pytest.mark.parametrize(("kubernetes", "value", "limit"), EXCESS)
def test_value_above_a_ceiling_is_ignored_and_named(
    kubernetes: Mapping[str, Any], value: str, limit: str
) -> None:
    accepted = Provisioned({"kubernetes": kubernetes}).accepted
    assert (accepted.status, accepted.reason) == ("False", "InvalidParameters")
    prefix = "spec.infrastructure.parametersRef: GatewayParameters ns/own: spec.kubernetes."
    assert accepted.message.startswith(f"{prefix}{value} is more than the limit of {limit}")
    assert "default of --resource-limits)" in accepted.message


def test_ceiling_keeps_the_value_of_the_class() -> None:
    outer = {"kubernetes": {"deployment": {"replicas": 40}}}
    provisioned = Provisioned({"kubernetes": {"deployment": {"replicas": 41}}}, outer)
    assert provisioned.plan.workload.deployment.replicas == 40


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "hugepages-2Mi", "example.com/device"])
def test_devices_and_huge_pages_are_refused(resource: str) -> None:
    kubernetes = {"deployment": {"container": {"resources": {"limits": {resource: "1"}}}}}
    provisioned = Provisioned({"kubernetes": kubernetes})
    assert f"resources.limits.{resource}: may be set only by" in provisioned.accepted.message
    assert resource not in json.dumps(provisioned.template)


def test_gateway_cannot_claim_addresses_by_parameters() -> None:
    service = {
        "loadBalancerIP": "10.0.0.1",
        "patches": [{"value": {"spec": {"externalIPs": ["10.0.0.1"]}}}],
    }
    provisioned = Provisioned({"kubernetes": {"service": service}})
    assert "10.0.0.1" not in json.dumps(provisioned.build())
    for field in ("loadBalancerIP", "patches"):
        assert f"spec.kubernetes.service.{field}" in provisioned.accepted.message


INSTRUCTIONS = [
    "service.beta.kubernetes.io/aws-load-balancer-eip-allocations",
    "metallb.io/loadBalancerIPs",
    "external-dns.alpha.kubernetes.io/hostname",
    "sidecar.istio.io/inject",
    "container.apparmor.security.beta.kubernetes.io/nginx",
    "gatehouse.dev/service-name",
]


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("key", INSTRUCTIONS)
def test_instruction_to_a_component_is_not_set(key: str, field: str) -> None:
    provisioned = Provisioned(infrastructure={field: {key: "x", "team": "a"}})
    for kind, obj in provisioned.build().items():
        assert obj["metadata"][field]["team"] == "a", kind
        assert key not in obj["metadata"][field], kind
    assert key not in provisioned.template["metadata"][field]
    accepted = provisioned.accepted
    assert (accepted.status, accepted.reason) == ("False", "InvalidParameters")
    assert accepted.message == (
        f"spec.infrastructure.{field}[{key}]: not set: --allow-gateway-metadata-domain does not "
        "allow the domain of the key"
    )


@pytest.mark.parametrize("domain", ["io", "metallb.io", "*"])
def test_operator_allows_a_domain_with_its_subdomains(domain: str) -> None:
    key = "metallb.io/loadBalancerIPs"
    provisioned = Provisioned(infrastructure={"annotations": {key: "x"}}, domains=(domain,))
    assert provisioned.accepted.status == "True"
    assert provisioned.build()["Service"]["metadata"]["annotations"] == {key: "x"}


def test_annotations_of_gatehouse_are_never_allowed() -> None:
    annotations = {"gatehouse.dev/service-name": "x", "a.gatehouse.dev/b": "x"}
    domains = ("*", "gatehouse.dev", "dev")
    provisioned = Provisioned(infrastructure={"annotations": annotations}, domains=domains)
    assert provisioned.accepted.status == "False"
    assert "x" not in provisioned.template["metadata"]["annotations"].values()
