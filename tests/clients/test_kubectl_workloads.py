"""Workloads, cascades, definitions, rights: by the real kubectl."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from fakes.kubectls import MAP, Kubectl, table
from fakes.patience import wait_until

pytestmark = pytest.mark.process


def until(kubectl: Kubectl, arguments: list[str], expected: str) -> str:
    output = ""

    def is_printed() -> bool:
        nonlocal output
        output = kubectl(*arguments)
        return expected in output

    wait_until(is_printed, lambda: output)
    return output


def owned(kind: str, version: str, owner: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a dependent of an object, with the name and kind of its owner's controller."""
    reference = {"controller": True, "blockOwnerDeletion": True, "uid": owner["metadata"]["uid"]}
    reference |= {key: owner[key] for key in ("apiVersion", "kind")}
    metadata = {"name": "web", "ownerReferences": [{**reference, "name": "web"}]}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def deployed(kubectl: Kubectl) -> None:
    """Create a Deployment with a ReplicaSet and a Pod, as its controller does in a cluster."""
    kubectl("create", "deployment", "web", "--image=nginx")
    obj = kubectl.json("get", "deployment", "web")
    spec = {key: obj["spec"][key] for key in ("selector", "template")}
    replica_set = owned("ReplicaSet", "apps/v1", obj, **spec)
    kubectl("create", "-f", "-", stdin=replica_set)
    obj = kubectl.json("get", "rs", "web")
    kubectl("create", "-f", "-", stdin=owned("Pod", "v1", obj, **spec["template"]["spec"]))


def test_deployment_is_scaled_and_shown(kubectl: Kubectl) -> None:
    deployed(kubectl)
    kubectl("scale", "deployment", "web", "--replicas=3")
    out = until(kubectl, ["get", "deployment", "web"], "0/3")
    assert table(out)[0] == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    rows = [row[0] for row in table(kubectl("get", "all")) if row]
    assert {"deployment.apps/web", "replicaset.apps/web", "pod/web"} <= set(rows)
    assert "IMAGES" in kubectl("get", "deployment", "-o", "wide")
    assert "Pending" in kubectl("describe", "pods")
    assert "waiting to start" in kubectl.fails("logs", "pod/web")


def test_background_deletion_deletes_dependents(kubectl: Kubectl) -> None:
    deployed(kubectl)
    kubectl("delete", "deployment", "web")
    until(kubectl, ["get", "pods,rs"], "No resources found")


def test_foreground_deletion_waits_for_dependents(kubectl: Kubectl) -> None:
    deployed(kubectl)
    flag = "--cascade=foreground" if kubectl.minor >= 20 else "--cascade=true"
    kubectl("delete", "deployment", "web", flag)
    assert "No resources found" in kubectl("get", "pods,rs")


def test_orphan_deletion_keeps_dependents(kubectl: Kubectl) -> None:
    deployed(kubectl)
    kubectl("delete", "deployment", "web", "--cascade=orphan")
    assert len(table(kubectl("get", "rs"))) == 2
    # A deletion would precede this one.
    kubectl("create", "configmap", "owner")
    owner = kubectl.json("get", "configmap", "owner")
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    head = {key: owner[key] for key in ("apiVersion", "kind")}
    metadata = {"name": "dependent", "ownerReferences": [reference]}
    kubectl("create", "-f", "-", stdin={**head, "metadata": metadata})
    kubectl("delete", "configmap", "owner")
    wait_until(lambda: "dependent" not in kubectl("get", "configmaps"))
    assert len(table(kubectl("get", "pods"))) == 2
    owners = kubectl.json("get", "rs")["items"][0]["metadata"].get("ownerReferences")
    assert not owners


def test_services_get_addresses_and_slices_follow_ready_pods(kubectl: Kubectl) -> None:
    kubectl("create", "service", "nodeport", "s", "--tcp=80:8080")
    spec = kubectl.json("get", "svc", "s")["spec"]
    assert spec["clusterIP"].startswith("10.96.")
    assert 30000 <= spec["ports"][0]["nodePort"] < 32768
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"app": "s"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    kubectl("create", "-f", "-", stdin=pod)
    if kubectl.minor < 24:
        return
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"podIP": "10.1.2.3", "phase": "Running", "conditions": [ready]}}
    kubectl("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    until(kubectl, ["get", "endpointslices"], "10.1.2.3")
    endpoint = kubectl.json("get", "endpointslices")["items"][0]["endpoints"][0]
    assert endpoint["conditions"]["ready"] is True
    assert endpoint["targetRef"]["name"] == "p"
    kubectl("delete", "pod", "p")
    until(kubectl, ["get", "endpointslices"], "<unset>")


def definition(group: str) -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "name": {"type": "string", "default": "cup", "maxLength": 10},
        },
        "x-kubernetes-validations": [
            {"rule": "self.size <= 10", "message": "the cup is too large"},
            {"rule": "self.size >= oldSelf.size", "message": "cups do not shrink"},
        ],
    }
    status = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Full", "type": "string", "jsonPath": ".spec.name", "priority": 1},
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"cups.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "cups", "kind": "Cup", "shortNames": ["cu"], "categories": ["all"]},
            "versions": [version],
        },
    }


def test_crd_objects_are_created_and_shown(kubectl: Kubectl) -> None:
    group = f"{kubectl.namespace}.example.com"
    kubectl("apply", "-f", "-", stdin=definition(group))
    kubectl("wait", "--for=condition=Established", f"crd/cups.{group}")
    cup = {
        "apiVersion": f"{group}/v1",
        "kind": "Cup",
        "metadata": {"name": "c"},
        "spec": {"size": 3},
    }
    kubectl("create", "-f", "-", stdin=cup)
    name = f"cups.{group}"
    assert table(kubectl("get", name))[:2] == [["NAME", "SIZE"], ["c", "3"]]
    assert table(kubectl("get", name, "-o", "wide"))[1] == ["c", "3", "cup"]
    refusal = kubectl.fails("patch", name, "c", "--type=merge", "-p", '{"spec":{"size":11}}')
    assert 'spec: Invalid value: "object": the cup is too large' in refusal
    refusal = kubectl.fails("patch", name, "c", "--type=merge", "-p", '{"spec":{"size":2}}')
    assert "cups do not shrink" in refusal
    kubectl("scale", name, "c", "--replicas=5")
    assert kubectl.json("get", name, "c")["spec"] == {"size": 5, "name": "cup"}
    if kubectl.minor >= 24:
        assert "size\t<integer>" in kubectl("explain", f"{name}.spec")
    assert name in kubectl("api-resources", "-o", "name")
    kubectl("delete", "crd", name)
    assert "the server doesn't have a resource type" in kubectl.fails("get", name)


def test_crd_with_invalid_rule_is_rejected(kubectl: Kubectl) -> None:
    group = f"{kubectl.namespace}.example.com"
    wrong = definition(group)
    schema = wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"][0]["rule"] = "self.size <"
    refusal = kubectl.fails("create", "-f", "-", stdin=wrong)
    assert "x-kubernetes-validations[0].rule" in refusal
    assert "compilation failed" in refusal


def test_discovery_and_explain_list_resources_and_fields(kubectl: Kubectl) -> None:
    resources = kubectl("api-resources")
    for row in ("configmaps", "httproutes", "gatewayclasses", "clusterrolebindings", "leases"):
        assert row in resources
    assert "gateway.networking.k8s.io/v1" in kubectl("api-versions").splitlines()
    assert "replicas\t<integer>" in kubectl("explain", "deployment.spec")
    assert "FIELD" in kubectl("explain", "httproute.spec.rules.matches.path")
    assert 'field "colour" does not exist' in kubectl.fails("explain", "service.spec.colour")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("externalloadbalancer.spec.drainSeconds", "drained before it is removed"),
        ("gatewayparameters.spec.kubernetes.service.type", "Default: LoadBalancer."),
        ("gateway.spec.listeners.hostname", "virtual hostname"),
        ("httproute.spec.rules.backendRefs.weight", "proportion of requests"),
        ("nginxproxy.spec.rewriteClientIP.mode", "PROXY header"),
        ("authenticationfilter.spec.jwt.remote.uri", "The controller fetches it."),
        ("upstreamcluster.spec.dispatchPolicies.rules.verbs", "a leading - excludes"),
        ("externalloadbalancer.apiVersion", "APIVersion defines the group"),
        ("externalloadbalancer.metadata", "Standard object's metadata"),
        ("externalloadbalancer.metadata.creationTimestamp", "CreationTimestamp is a timestamp"),
        ("service.metadata.labels", "Labels by which selectors"),
        # Objects with any fields, and integers or strings, are reduced in OpenAPI v2.
        ("gatewayparameters.spec.kubernetes.deployment.pod.affinity", "Affinity of the Pods"),
        (
            "gatewayparameters.spec.kubernetes.deployment.podDisruptionBudget.minAvailable",
            "Minimum number or percentage",
        ),
    ],
)
def test_explain_shows_description_of_field(kubectl: Kubectl, field: str, text: str) -> None:
    assert text in " ".join(kubectl("explain", field).split())
    assert "v1.34" in kubectl("get", "--raw", "/version")


def test_kubectl_reports_rbac_permissions_and_denials(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "*.*" in kubectl("auth", "can-i", "--list")
    refused = kubectl.fails("auth", "can-i", "list", "secrets", "--as=alice")
    assert refused.strip().startswith("no")
    message = kubectl.fails("get", "cm", "--as=alice")
    assert (
        'User "alice" cannot list resource "configmaps" in API group "" in the namespace '
        f'"{kubectl.namespace}"' in message
    )
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    kubectl("create", "rolebinding", "readers", "--role=reader", "--user=alice")
    kubectl("create", "-f", "-", stdin=MAP)
    assert "settings" in kubectl("get", "cm", "--as=alice")
    message = kubectl.fails("delete", "cm", "settings", "--as=alice")
    assert 'User "alice" cannot delete resource "configmaps"' in message
    kubectl("create", "rolebinding", "granters", "--clusterrole=admin", "--user=bob")
    grant = ["create", "rolebinding", "more", "--clusterrole=cluster-admin", "--user=bob"]
    assert "RBAC permissions not currently held" in kubectl.fails(*grant, "--as=bob")
    if kubectl.minor >= 27:
        assert "alice" in kubectl("auth", "whoami", "--as=alice")


def test_service_account_tokens_are_created(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "robot")
    if kubectl.minor < 24:
        pytest.skip("has no create token")
    token = kubectl("create", "token", "robot", "--duration=1h").strip()
    body = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    assert claims["sub"] == f"system:serviceaccount:{kubectl.namespace}:robot"
    assert claims["exp"] - claims["iat"] == 3600
    refusal = kubectl.fails("create", "token", "robot", "--duration=1m")
    assert "may not specify a duration less than 10 minutes" in refusal


def test_typed_create_commands_create_objects(kubectl: Kubectl) -> None:
    kubectl("create", "secret", "generic", "s", "--from-literal=password=tea")
    assert kubectl.json("get", "secret", "s")["data"] == {"password": "dGVh"}
    assert table(kubectl("get", "secret", "s"))[1][1:3] == ["Opaque", "1"]
    kubectl("create", "configmap", "c", "--from-literal=a=b")
    wrong = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "t"},
        "type": "kubernetes.io/tls",
    }
    refusal = kubectl.fails("create", "-f", "-", stdin=wrong)
    assert "data[tls.crt]: Required value" in refusal
