"""Fields of ``spec.kubernetes`` that the parameters of a Gateway can set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import pytest

from fakes.admission import admitted_objects
from gatehouse.apis.data_plane_parameters import ParametersSpec
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions import overrides
from gatehouse.compiler.frontends.gateway_api.status.types import GatewayStatus
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.provisioner.manifests import ProvisioningPlan
from gatehouse.incremental.query import Key

SAMPLES = {
    "replicas": 2,
    "minReplicas": 2,
    "maxReplicas": 3,
    "terminationGracePeriodSeconds": 5,
    "seconds": 1,
    "type": "ClusterIP",
}
"""Values of fields with ceilings or allowed values."""

GATEWAY: Key = ("Gateway", "ns", "gw")

REFUSED = [
    "daemonSet.container.hostPorts",
    "daemonSet.container.image.repository",
    "daemonSet.container.image.tag",
    "daemonSet.container.volumeMounts",
    "daemonSet.patches",
    "daemonSet.pod.volumes",
    "deployment.container.hostPorts",
    "deployment.container.image.repository",
    "deployment.container.image.tag",
    "deployment.container.volumeMounts",
    "deployment.patches",
    "deployment.pod.volumes",
    "networkPolicy.egressTo",
    "networkPolicy.patches",
    "service.loadBalancerIP",
    "service.nodePorts",
    "service.patches",
]
"""CRD fields that are refused."""

OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {{name: ns}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: c}}
spec:
  controllerName: gatehouse.dev/envoy
  parametersRef: {{group: gatehouse.dev, kind: GatewayParameters, name: operator, namespace: ns}}
---
apiVersion: gatehouse.dev/v1alpha1
kind: GatewayParameters
metadata: {{name: operator}}
spec: {{kubernetes: {outer}}}
---
apiVersion: gatehouse.dev/v1alpha1
kind: GatewayParameters
metadata: {{name: own}}
spec: {{kubernetes: {inner}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: gw}}
spec:
  gatewayClassName: c
  infrastructure: {{parametersRef: {{group: gatehouse.dev, kind: GatewayParameters, name: own}}}}
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
"""


def compiled(
    inner: Mapping[str, Any], outer: Mapping[str, Any] | None = None, *, allowed: bool = False
) -> tuple[ProvisioningPlan, dict[str, Any]]:
    """Return the plan of the Gateway and its condition Accepted."""
    compilation = Compilation(
        gateway_api.ControllerSettings(bind="any", workload_overrides=allowed)
    )
    text = OBJECTS.format(inner=json.dumps(inner), outer=json.dumps(outer or {}))
    for kind, raw in admitted_objects(text):
        metadata = raw["metadata"]
        compilation.put(kind, (metadata.get("namespace", ""), metadata["name"]), raw)
    result = compilation.run()
    status = result.statuses[GATEWAY]
    assert isinstance(status, GatewayStatus)
    [accepted] = [condition for condition in status.conditions if condition.type == "Accepted"]
    summary = {"status": accepted.status, "reason": accepted.reason, "message": accepted.message}
    return result.plans[GATEWAY], summary


PATCHES = [{"type": "Merge", "value": {"spec": {"minReadySeconds": 7}}}]


def test_patches_of_a_gateway_are_rejected_and_other_fields_apply() -> None:
    plan, accepted = compiled({"deployment": {"replicas": 4, "patches": PATCHES}})
    assert plan.workload.deployment.replicas == 4
    assert plan.workload.deployment.patches == ()
    assert accepted["status"] == "False"
    assert accepted["reason"] == "InvalidParameters"
    assert accepted["message"] == (
        "spec.infrastructure.parametersRef: GatewayParameters ns/own: "
        "spec.kubernetes.deployment.patches: may be set only by the parameters of the "
        "GatewayClass; all other fields apply"
    )


def test_allowed_fields_leave_the_gateway_accepted() -> None:
    plan, accepted = compiled({"deployment": {"replicas": 4}})
    assert plan.workload.deployment.replicas == 4
    assert accepted["status"] == "True"


def test_flag_permits_all_fields() -> None:
    plan, accepted = compiled({"deployment": {"patches": PATCHES}}, allowed=True)
    [patch] = plan.workload.deployment.patches
    assert patch.value == PATCHES[0]["value"]
    assert accepted["status"] == "True"


def test_class_keeps_its_patches_and_images() -> None:
    outer = {"deployment": {"patches": PATCHES, "container": {"image": {"tag": "good"}}}}
    inner = {"deployment": {"patches": [], "container": {"image": {"tag": "bad"}}}}
    plan, accepted = compiled(inner, outer)
    assert len(plan.workload.deployment.patches) == 1
    assert plan.workload.deployment.container.image.tag == "good"
    assert "spec.kubernetes.deployment.container.image.tag" in accepted["message"]
    assert compiled({}, outer)[1]["status"] == "True"


@pytest.mark.parametrize(
    ("kind", "other"), [("deployment", "daemonSet"), ("daemonSet", "deployment")]
)
def test_gateway_cannot_replace_the_kind_of_workload_of_its_class(kind: str, other: str) -> None:
    outer = {kind: {"patches": PATCHES}}
    plan, accepted = compiled({other: {}}, outer)
    assert (plan.workload.daemon_set is None) is (kind == "deployment")
    workload = plan.workload.daemon_set or plan.workload.deployment
    assert len(workload.patches) == 1
    assert f"spec.kubernetes.{other}: may be set only by" in accepted["message"]


def test_gateway_selects_workload_kind_when_its_class_does_not() -> None:
    plan, accepted = compiled({"daemonSet": {}})
    assert plan.workload.daemon_set is not None
    assert accepted["status"] == "True"


def limited(fields: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the allowed part of ``spec.kubernetes`` and the paths of refused fields."""
    result = overrides.limit(ParametersSpec(kubernetes=fields), {}, ResourceLimits())
    return result.spec.kubernetes, result.refused


def leaves(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return the paths of the fields of a schema. A list counts as one field."""
    if not schema.get("properties"):
        yield path
    for name, child in (schema.get("properties") or {}).items():
        yield from leaves(child, (*path, name))


@pytest.mark.parametrize(
    "definition", ["nginxproxies.gateway.nginx.org", "gatewayparameters.gatehouse.dev"]
)
def test_every_crd_field_is_allowed_or_rejected(definition: str) -> None:
    file = resources.files("gatehouse.apiserver_extension") / "bundled" / f"{definition}.json"
    version = json.loads(file.read_text(encoding="utf-8"))["spec"]["versions"][-1]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    refused = []
    for path in leaves(spec["kubernetes"]):
        sample: Any = SAMPLES.get(path[-1], True)
        for name in reversed(path):
            sample = {name: sample}
        permitted, messages = limited(sample)
        if messages:
            assert messages == (f"spec.kubernetes.{'.'.join(path)}",)
            refused.append(".".join(path))
        else:
            assert permitted == sample
    assert sorted(refused) == sorted(REFUSED)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"networkPolicy": {"enable": False}}, "networkPolicy.enable"),
        ({"unknown": {}}, "unknown"),
        (
            {"deployment": {"container": {"lifecycle": {"postStart": {"exec": {}}}}}},
            "deployment.container.lifecycle.postStart",
        ),
        (
            {"deployment": {"container": {"lifecycle": {"preStop": {"httpGet": {"port": 1}}}}}},
            "deployment.container.lifecycle.preStop.httpGet",
        ),
        (
            {"daemonSet": {"container": {"resources": {"claims": []}}}},
            "daemonSet.container.resources.claims",
        ),
        (
            {
                "deployment": {
                    "pod": {
                        "affinity": {
                            "podAntiAffinity": {
                                "preferredDuringSchedulingIgnoredDuringExecution": [
                                    {"weight": 1, "podAffinityTerm": {"namespaces": ["other"]}}
                                ]
                            }
                        }
                    }
                }
            },
            "deployment.pod.affinity.podAntiAffinity."
            "preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.namespaces",
        ),
    ],
)
def test_rejected_field_is_named(fields: dict[str, Any], field: str) -> None:
    _, refused = limited(fields)
    assert refused == (f"spec.kubernetes.{field}",)


def test_null_does_not_remove_a_value_of_the_class() -> None:
    fields = {"deployment": {"replicas": None, "container": {"image": None}}}
    assert limited(fields) == ({"deployment": {"container": {}}}, ())
    assert limited({"networkPolicy": None}) == ({}, ())


def test_rejection_message_is_truncated() -> None:
    message = overrides.refused_fields_message([f"f{number}" for number in range(50)])
    assert message.startswith("f0, f1, ")
    assert "f7 and 42 more: may be set only" in message
