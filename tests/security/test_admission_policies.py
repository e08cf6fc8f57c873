"""The chart's ValidatingAdmissionPolicies, on a real kube-apiserver.

Who: authors of objects. Through: create and update. Must hold: a name of another object and an
invalid emergency brake are rejected with the field and the owner, as far as CEL can see others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fakes import kubectls
from fakes.administrator import CHART, HELM, SYSTEM, Cluster, rendered
from fakes.kube_apiserver import KubeApiserver
from fakes.patience import KUBECTL_TIMEOUT, wait_until
from gatehouse.apis.feature_gates import FALSE, KNOWN, TRUE
from kube_api_server.admission_policies.policy import AdmissionPolicy, check_policy

pytestmark = [pytest.mark.process, pytest.mark.skipif(HELM is None, reason="no helm: make helm")]

Object = dict[str, Any]
GATES, GATEWAYS = "proxy.kubegateway.io/feature-gates", "gatehouse.dev/gateways"
RULE = {"verbs": ["*"], "nonResourceURLs": ["*"]}


def policies() -> list[Object]:
    """Return the policies and bindings of the chart."""
    objects = yaml.load_all(rendered("gatehouse", *SYSTEM), yaml.CSafeLoader)
    return [obj for obj in objects if obj["kind"].startswith("ValidatingAdmissionPolicy")]


def upstream(name: str, *names: str, **annotations: str) -> Object:
    known = {"gates": GATES, "gateways": GATEWAYS}
    metadata = {"name": name, "annotations": {known[key]: v for key, v in annotations.items()}}
    spec: Object = {"servers": [{"endpoint": "http://a"}], "dispatchPolicies": [{"rules": [RULE]}]}
    if names:
        spec["secureServing"] = {"serverNames": list(names)}
    kind = {"apiVersion": "proxy.kubegateway.io/v1alpha1", "kind": "UpstreamCluster"}
    return {**kind, "metadata": metadata, "spec": spec}


def hosted(name: str, *hosts: str, namespace: str = "default", **more: Any) -> Object:
    spec = {"parentRefs": [{"name": "gw"}], "hosts": list(hosts), "service": {"name": name}, **more}
    kind = {"apiVersion": "gatehouse.dev/v1alpha1", "kind": "HostedAPIServer"}
    return {**kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.fixture(scope="module")
def cluster(
    kube_apiserver: KubeApiserver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    result = Cluster(kube_apiserver.kubeconfig, tmp_path_factory.mktemp("policies"))
    result.kubectl("apply", "--server-side", "--filename", str(CHART / "crds"))
    result.kubectl("wait", "--for=condition=Established", KUBECTL_TIMEOUT, "crd", "--all")
    result.kubectl(
        "apply", "--filename", "-", stdin=yaml.dump_all(policies(), Dumper=yaml.CSafeDumper)
    )
    # Policies take effect some time after they are written.
    probe = upstream("probe.test", gates="probe")
    wait_until(lambda: "denied" in rejection(result, probe, "--dry-run=server"))
    yield result
    result.kubectl(
        "delete", "--filename", "-", stdin=yaml.dump_all(policies(), Dumper=yaml.CSafeDumper)
    )
    result.kubectl("delete", "upstreamclusters,hostedapiservers", "--all", "--all-namespaces")


def rejection(cluster: Cluster, obj: Object, *words: str) -> str:
    """Apply an object. Return the error; empty if it was accepted."""
    done = cluster.run(
        *(kubectls.newest(), "apply", "--filename", "-", *words), stdin=json.dumps(obj)
    )
    return done.stderr if done.returncode else ""


def test_hostnames_of_other_clusters_are_rejected(cluster: Cluster) -> None:
    assert rejection(cluster, upstream("old.test")) == ""
    assert rejection(cluster, upstream("new.test", "x.test")) == ""
    theft = upstream("old.test", "free.test", "X.test")
    field = "spec.secureServing.serverNames: x.test already used by UpstreamCluster new.test"
    wait_until(lambda: field in rejection(cluster, theft, "--dry-run=server"))
    assert "serverNames: new.test already" in rejection(cluster, upstream("old.test", "new.test"))
    assert "metadata.name: x.test already used" in rejection(cluster, upstream("x.test"))
    assert rejection(cluster, upstream("old.test", "free.test")) == ""
    assert rejection(cluster, upstream("new.test", "x.test", "more.test")) == ""


def test_hostnames_at_other_gateways_are_accepted(cluster: Cluster) -> None:
    assert rejection(cluster, upstream("one.test", "y.test", gateways="ns/a, ns/b")) == ""
    same = upstream("two.test", "y.test", gateways="ns/b")
    wait_until(lambda: "y.test already used" in rejection(cluster, same, "--dry-run=server"))
    assert rejection(cluster, upstream("two.test", "y.test", gateways="ns/c")) == ""
    assert "y.test already" in rejection(cluster, same)


def test_names_of_hosted_servers_of_the_namespace_are_rejected(cluster: Cluster) -> None:
    assert rejection(cluster, hosted("p", "api.p.test", advertiseAddress="fd00::5")) == ""
    assert rejection(cluster, hosted("q", "api.q.test")) == ""
    owner = "already used by HostedAPIServer default/p"
    theft = hosted("q", "API.p.test.")
    wait_until(lambda: owner in rejection(cluster, theft, "--dry-run=server"))
    for body, field in (
        (theft, "spec.hosts: api.p.test"),
        (hosted("q", "api.q.test", advertiseAddress="FD00::5"), "spec.advertiseAddress: fd00::5"),
        (hosted("q", "api.q.test", service={"name": "p"}), "spec.service: p:443"),
    ):
        assert f"{field} {owner}" in rejection(cluster, body)
    assert rejection(cluster, hosted("q", "api.q.test", "b.q.test")) == ""


def test_invalid_feature_gates_are_rejected(cluster: Cluster) -> None:
    assert rejection(cluster, upstream("g.test", gates="DenyAllRequests=true")) == ""
    for text in (
        "DenyAllRequests=maybe",
        "Unknown=true",
        "DenyAllRequests",
        "DenyAllRequests=true;",
    ):
        message = rejection(cluster, upstream("g.test", gates=text))
        assert f'metadata.annotations[{GATES}]: "{text}" must be' in message
    assert rejection(cluster, upstream("g.test", gates="")) == ""


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("value", [*TRUE, *FALSE])
def test_policy_accepts_every_valid_gate(name: str, value: str) -> None:
    documents = {
        document["metadata"]["name"]: document
        for document in policies()
        if "paramRef" not in document
    }
    policy = AdmissionPolicy(documents["gatehouse-feature-gates"])
    obj = upstream("g.test", gates=f" {name} = {value} ,")
    assert not [*policy.denials({"object": obj, "oldObject": None, "request": {}, "params": None})]


def test_status_is_written_by_the_controller_only(cluster: Cluster) -> None:
    """Who: a tenant with all permissions of RBAC. Through: `status.ownedHosts`."""
    binding = ("clusterrolebinding", "tenants")
    users = [
        f"system:serviceaccount:{account}" for account in ("tenant:t", "gatehouse-system:gatehouse")
    ]
    words = [f"--user={user}" for user in users]
    cluster.kubectl("create", *binding, "--clusterrole=cluster-admin", *words)
    assert rejection(cluster, upstream("s.test")) == ""
    forged = json.dumps({"status": {"ownedHosts": [{"gateway": "ns/gw", "hosts": ["x.test"]}]}})
    patch = ("patch", "upstreamcluster", "s.test", "--subresource=status", "--type=merge")
    results = [
        cluster.run(kubectls.newest(), *patch, f"--patch={forged}", f"--as={user}")
        for user in users
    ]
    assert [done.returncode for done in results] == [1, 0], results
    assert "only the controller and system:masters may write it" in results[0].stderr
    cluster.kubectl("delete", *binding)


def test_embedded_server_compiles_the_policies() -> None:
    policy_objects = [
        policy for policy in policies() if policy["kind"] == "ValidatingAdmissionPolicy"
    ]
    assert len(policy_objects) == 4
    assert [cause for policy in policy_objects for cause in check_policy(policy, None)] == []
