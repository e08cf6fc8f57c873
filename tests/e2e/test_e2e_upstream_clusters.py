"""UpstreamClusters in a running installation: refused in words, judged, renewed, explained."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from typing import Any

import pytest

from fakes.installation import Installation, apply, until
from fakes.upstream_worlds import EVERYTHING, b64, ca
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = pytest.mark.process

Object = dict[str, Any]
NAME = "prod.example"


def gateway(class_name: str) -> Object:
    listener = {"name": "api", "port": 6443, "protocol": "gatehouse.dev/KubeAPIServer"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": class_name, "namespace": "default"},
        "spec": {"gatewayClassName": f"gatehouse-{class_name}", "listeners": [listener]},
    }


def cluster(name: str = NAME, **spec: Any) -> Object:
    made = {
        "servers": [{"endpoint": "https://127.0.0.1:6443"}],
        "clientConfig": {"secretRef": {"namespace": "default", "name": "credentials"}},
        "dispatchPolicies": [{"rules": [EVERYTHING]}],
    }
    return {
        "apiVersion": "proxy.kubegateway.io/v1alpha1",
        "kind": "UpstreamCluster",
        "metadata": {"name": name},
        "spec": {**made, **spec},
    }


def secret(authority: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "credentials", "namespace": "default"},
        "data": {"ca.crt": authority, "token": b64(b"word")},
    }


async def said(client: kube.Client, kind: str, status: str, name: str = NAME) -> Object:
    """Wait for a condition of an UpstreamCluster."""

    async def check() -> Object | None:
        upstream_cluster = await client.get(resources.UPSTREAM_CLUSTERS, name)
        for each in (upstream_cluster.get("status") or {}).get("conditions") or ():
            if (each["type"], each["status"]) == (kind, status):
                return dict(each)
        return None

    condition: Object = await until(check)
    return condition


async def create(client: kube.Client, raw: Object) -> None:
    await client.create(resources.UPSTREAM_CLUSTERS, raw)


async def test_invalid_policy_subset_is_rejected_with_a_message(client: kube.Client) -> None:
    with pytest.raises(kube.Invalid, match="upstreamSubset of every policy must be among"):
        policies = [{"rules": [EVERYTHING], "upstreamSubset": ["https://other"]}]
        await create(client, cluster(dispatchPolicies=policies))


async def test_cluster_waits_for_credentials_and_reports_their_changes(client: kube.Client) -> None:
    await create(client, cluster())
    await said(client, "Accepted", "False")
    await apply(client, [gateway("envoy")])
    missing = await said(client, "ResolvedRefs", "False")
    assert "Secret default/credentials not found" in missing["message"]
    assert (await said(client, "Accepted", "False"))["reason"] == "Invalid"
    await apply(client, [secret(ca())])
    await said(client, "ResolvedRefs", "True")
    await said(client, "Accepted", "True")
    listed = await client.get(resources.GATEWAYS, "envoy", "default")
    (listener,) = listed["status"]["listeners"]
    assert listener["attachedRoutes"] == 1
    assert listener["supportedKinds"] == [
        {"group": "proxy.kubegateway.io", "kind": "UpstreamCluster"}
    ]
    await client.patch(
        resources.SECRETS, "credentials", {"data": {"ca.crt": b64(b"nonsense")}}, "default"
    )
    assert "must be PEM certificates" in (await said(client, "ResolvedRefs", "False"))["message"]
    await client.patch(resources.SECRETS, "credentials", {"data": {"ca.crt": ca()}}, "default")
    await said(client, "ResolvedRefs", "True")
    assert base64.b64decode(ca()).startswith(b"-----BEGIN")


async def test_younger_cluster_loses_a_hostname_conflict(client: kube.Client) -> None:
    # Times of creation are whole seconds.
    await asyncio.sleep(1.1)
    await create(client, cluster("young.example", secureServing={"serverNames": [NAME]}))
    conflict = await said(client, "Conflicted", "True", "young.example")
    assert (
        conflict["message"] == f"hostname {NAME} already used by the older UpstreamCluster {NAME}"
    )
    await client.delete(resources.UPSTREAM_CLUSTERS, "young.example")


async def test_shared_limits_are_published_as_rate_limit_conditions(
    client: kube.Client,
) -> None:
    limit = {
        "name": "s",
        "strategy": "globalAllocate",
        "maxRequestsInflight": {"max": 1},
        "globalMaxRequestsInflight": {"max": 10},
    }
    manifest = cluster(
        "shared.example",
        flowControl={"flowControlSchemas": [limit]},
        dispatchPolicies=[{"rules": [EVERYTHING], "flowControlSchemaName": "s"}],
    )
    gates = {"proxy.kubegateway.io/feature-gates": "GlobalRateLimiter=true"}
    manifest["metadata"]["annotations"] = gates
    await create(client, manifest)

    async def told() -> dict[str, Object]:
        rate_limit_conditions = (await client.list(resources.RATE_LIMIT_CONDITIONS)).items
        return {each["metadata"]["name"]: each for each in rate_limit_conditions}

    async def both() -> dict[str, Object] | None:
        result = await told()
        whole = "status" in result.get("shared.example.state", {})
        return result if whole and len(result) == 2 else None

    state, one = (each for _, each in sorted((await until(both)).items(), reverse=True))
    (item,) = state["status"]["limitItemStatuses"]
    assert item == {"name": "s", "maxRequestsInflight": {"max": 10}}
    pods = (await client.list(resources.PODS, "default")).items
    assert one["spec"]["instance"] in {f"default.{each['metadata']['name']}" for each in pods}
    (item,) = one["spec"]["limitItemConfigurations"]
    assert item["maxRequestsInflight"] == {"max": 10}
    await client.delete(resources.UPSTREAM_CLUSTERS, "shared.example")

    async def none() -> bool:
        return not await told()

    await until(none)


async def test_nginx_listener_with_kube_apiserver_protocol_is_not_accepted(
    client: kube.Client,
) -> None:
    await apply(client, [gateway("nginx")])

    async def refused() -> Object | None:
        upstream_cluster = await client.get(resources.GATEWAYS, "nginx", "default")
        for listener in (upstream_cluster.get("status") or {}).get("listeners") or ():
            for each in listener["conditions"]:
                if each["type"] == "Accepted" and each["reason"] == "UnsupportedProtocol":
                    return dict(each)
        return None

    assert "only by gatehouse.dev/envoy" in (await until(refused))["message"]
    upstream_cluster = await client.get(resources.UPSTREAM_CLUSTERS, NAME)
    assert [each["gatewayRef"]["name"] for each in upstream_cluster["status"]["gateways"]] == [
        "envoy"
    ]


async def test_explain_reads_the_installation(installation: Installation) -> None:
    words = ("--cluster", NAME, "--as", "alice", "--verb", "list", "--resource", "pods")
    command = (sys.executable, "-m", "gatehouse", "explain", "-o", "json", *words)
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "--kubeconfig", str(installation.kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["servers"] == ["https://127.0.0.1:6443"]
