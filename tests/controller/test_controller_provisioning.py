"""A whole controller provisions at a real API server: failures are reported, the rest continues."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.durations import last, pace
from fakes.process import ApiServer
from fakes.replica import Replica
from gatehouse.apis.data_plane_workload import NetworkOptions
from gatehouse.apis.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    GATEWAY_CLASSES,
    GATEWAYS,
    NETWORK_POLICIES,
    NGINX_PROXIES,
    SERVICES,
)
from gatehouse.controller.provisioner.reconcile import OWNED_KINDS
from gatehouse.kube import client as kube
from kube_base.types.resource import Resource

ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)

WAITING = "waiting for the data plane to connect"

LATER = "later-"
"""Start of the names of Gateways that only show that earlier ones have been provisioned."""
# Agents find every controller of a test at one place.
AGENTS = {"agent_advertise": "10.0.0.1:8443"}


class Cluster:
    """An API server, as its user sees it."""

    def __init__(self, server: ApiServer, client: kube.Client) -> None:
        self.server = server
        self.client = client
        self._later = 0

    def controller(self, **options: Any) -> Replica:
        return Replica(self.server, self.server.state.controller_kubeconfig, **options)

    async def gateway(self, name: str, parameters: str = "") -> None:
        spec: dict[str, Any] = {
            "gatewayClassName": "gatehouse-nginx",
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
        }
        if parameters:
            reference = {"group": "gateway.nginx.org", "kind": "NginxProxy", "name": parameters}
            spec["infrastructure"] = {"parametersRef": reference}
        metadata = {"name": name, "namespace": "default"}
        await self.client.create(GATEWAYS, {"metadata": metadata, "spec": spec})

    async def parameters(self, name: str, **kubernetes: Any) -> None:
        metadata = {"name": name, "namespace": "default"}
        parameters_object = {"metadata": metadata, "spec": {"kubernetes": kubernetes}}
        await self.client.create(NGINX_PROXIES, parameters_object)

    async def deployment(self, name: str) -> dict[str, Any] | None:
        try:
            return await self.client.get(DEPLOYMENTS, f"{name}-gatehouse-nginx", "default")
        except kube.NotFound:
            return None

    async def programmed(self, name: str) -> tuple[str, str]:
        """Return status and message of a Gateway's Programmed condition."""
        gateway = await self.client.get(GATEWAYS, name, "default")
        for condition in gateway.get("status", {}).get("conditions", ()):
            if condition["type"] == "Programmed":
                return condition["status"], condition["message"]
        return "", ""

    async def reason(self, name: str) -> str:
        """Return the reason of a Gateway's Programmed condition."""
        gateway = await self.client.get(GATEWAYS, name, "default")
        conditions = gateway.get("status", {}).get("conditions", ())
        return next(
            (condition["reason"] for condition in conditions if condition["type"] == "Programmed"),
            "",
        )

    async def events(self, name: str) -> list[str]:
        return [
            item["message"]
            for item in (await self.client.list(EVENTS, "default")).items
            if item["involvedObject"]["name"] == name and item["reason"] == "ProvisioningFailed"
        ]

    async def versions(self) -> dict[tuple[str, str], str]:
        """Return the resource versions of all objects that a controller writes, except Events and
        those of later Gateways."""
        return {
            (resource.kind, obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
            for resource in (*OWNED_KINDS, GATEWAYS, GATEWAY_CLASSES)
            for obj in (await self.client.list(resource)).items
            if not obj["metadata"]["name"].startswith(LATER)
        }

    async def quiet(self) -> dict[tuple[str, str], str]:
        """Wait until nothing is written while a later Gateway is provisioned. Return the
        versions."""
        before: dict[tuple[str, str], str] = {}
        while before != (versions := await self.versions()):
            before = versions
            self._later += 1
            name = f"{LATER}{self._later}"
            await self.gateway(name)
            await until(functools.partial(self.deployment, name))
            await until(functools.partial(self.programmed, name), lambda now: now[1] == WAITING)
        return versions


async def until(ask: Callable[[], Awaitable[Any]], holds: Callable[[Any], Any] = bool) -> Any:
    answer: Any = None
    try:
        async with patience.limit():
            while True:
                with contextlib.suppress(kube.Unavailable):
                    if holds(answer := await ask()):
                        return answer
                await patience.pause()
    except TimeoutError:
        raise AssertionError(f"last seen: {answer}") from None


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    server = ApiServer(tmp_path / "state")
    server.start()
    try:
        async with kube.Client.from_kubeconfig(server.kubeconfig) as client:
            yield Cluster(server, client)
    finally:
        server.kill()


@contextlib.asynccontextmanager
async def running(cluster: Cluster, **options: Any) -> AsyncIterator[Replica]:
    replica = cluster.controller(**options)
    try:
        await replica.until(lambda status, _: status == 200)
        yield replica
    finally:
        await replica.stop()


async def test_provisioning_continues_after_api_server_restart(cluster: Cluster) -> None:
    async with running(cluster):
        await cluster.gateway("first")
        await until(lambda: cluster.deployment("first"))
        await cluster.parameters("more", deployment={"replicas": 3})
        # It fails while the controller writes to it; acknowledged writes are durable.
        for name in ("a", "b", "c"):
            await cluster.gateway(name, "more")
        cluster.server.kill()
        await last(1.5)
        cluster.server.start()
        for name in ("a", "b", "c"):
            deployment = await until(functools.partial(cluster.deployment, name))
            assert deployment["spec"]["replicas"] == 3
            await until(functools.partial(cluster.programmed, name), lambda now: now[1] == WAITING)


async def test_kind_that_rbac_forbids_is_reported_for_its_gateway_only(
    cluster: Cluster,
) -> None:
    role = await cluster.client.get(ROLES, "system:gatehouse:controller")
    rules = [
        {**rule, "verbs": ["get", "list", "watch"]} if rule["apiGroups"] == ["policy"] else rule
        for rule in role["rules"]
    ]
    cut = await cluster.client.update(ROLES, {**role, "rules": rules})
    async with running(cluster):
        await cluster.parameters("budget", deployment={"podDisruptionBudget": {"minAvailable": 1}})
        await cluster.gateway("guarded", "budget")
        await cluster.gateway("plain")
        await until(lambda: cluster.deployment("plain"))
        status, message = await until(
            lambda: cluster.programmed("guarded"), lambda now: "forbidden" in now[1]
        )
        assert status == "False"
        assert message.startswith("PodDisruptionBudget default/guarded-gatehouse-nginx: ")
        # The rest of it is made all the same.
        assert await cluster.deployment("guarded") is not None
        assert message in await until(lambda: cluster.events("guarded"))
        assert await cluster.events("plain") == []
        await cluster.client.update(ROLES, {**cut, "rules": role["rules"]})
        await until(
            lambda: cluster.programmed("guarded"),
            lambda now: now[1] == WAITING,
        )
        await cluster.client.get(DISRUPTION_BUDGETS, "guarded-gatehouse-nginx", "default")


async def test_network_policy_is_created_when_permitted_and_deleted_with_gateway(
    cluster: Cluster,
) -> None:
    role = await cluster.client.get(ROLES, "system:gatehouse:controller")
    rules = [rule for rule in role["rules"] if "networkpolicies" not in rule["resources"]]
    assert len(rules) < len(role["rules"])
    cut = await cluster.client.update(ROLES, {**role, "rules": rules})
    async with running(cluster, network_policy=NetworkOptions(enable=True)):
        await cluster.gateway("closed")
        _, message = await until(
            lambda: cluster.programmed("closed"), lambda now: "forbidden" in now[1]
        )
        assert message.startswith("NetworkPolicy default/closed-gatehouse-nginx: ")
        assert await cluster.deployment("closed") is not None
        await cluster.client.update(ROLES, {**cut, "rules": role["rules"]})
        await until(lambda: cluster.programmed("closed"), lambda now: now[1] == WAITING)
        where = ("closed-gatehouse-nginx", "default")
        policy = await cluster.client.get(NETWORK_POLICIES, *where)
        assert policy["spec"]["ingress"][0] == {"ports": [{"port": 80, "protocol": "TCP"}]}
        await cluster.client.delete(GATEWAYS, "closed", "default")

        async def gone() -> bool:
            policies = await cluster.client.list(NETWORK_POLICIES, "default")
            return not policies.items

        await until(gone)


async def test_foreign_object_of_same_name_is_left_unchanged(cluster: Cluster) -> None:
    name = "taken-gatehouse-nginx"
    theirs = await cluster.client.create(
        SERVICES,
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"ports": [{"port": 9999}], "selector": {"app": "theirs"}},
        },
    )
    async with running(cluster):
        await cluster.gateway("taken")
        await cluster.gateway("free")
        await until(lambda: cluster.deployment("free"))
        _, message = await until(
            lambda: cluster.programmed("taken"), lambda now: "not managed" in now[1]
        )
        assert message.startswith(f"Service default/{name} exists and is not managed by Gatehouse")
        assert await until(lambda: cluster.events("taken"))
        now = await cluster.client.get(SERVICES, name, "default")
        assert now == theirs
        await cluster.client.delete(SERVICES, name, "default")
        await until(lambda: cluster.programmed("taken"), lambda now: "not managed" not in now[1])
        assert (await cluster.client.get(SERVICES, name, "default"))["spec"]["selector"] != theirs[
            "spec"
        ]["selector"]


async def test_quota_rejection_is_reported_with_server_message_and_retried(
    cluster: Cluster,
) -> None:
    await cluster.client.create(
        POLICIES,
        {
            "metadata": {"name": "quota"},
            "spec": {
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": ["apps"],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["deployments"],
                        }
                    ]
                },
                "validations": [
                    {
                        "expression": "object.spec.replicas < 3",
                        "reason": "Forbidden",
                        "message": "exceeded quota: pods, requested: 3, limited: 2",
                    }
                ],
            },
        },
    )
    await cluster.client.create(
        BINDINGS,
        {
            "metadata": {"name": "quota"},
            "spec": {"policyName": "quota", "validationActions": ["Deny"]},
        },
    )
    async with running(cluster):
        await cluster.parameters("many", deployment={"replicas": 3})
        await cluster.gateway("large", "many")
        await cluster.gateway("small")
        await until(lambda: cluster.deployment("small"))
        status, _ = await until(
            lambda: cluster.programmed("large"), lambda now: "exceeded quota: pods" in now[1]
        )
        assert status == "False"
        _, message = await cluster.programmed("large")
        assert message.startswith("Deployment default/large-gatehouse-nginx: ")
        assert await cluster.reason("large") == "NoResources"
        assert await cluster.reason("small") == "Pending"
        assert await until(lambda: cluster.events("large"))
        await cluster.client.delete(BINDINGS, "quota")
        await until(lambda: cluster.deployment("large"))
        await until(lambda: cluster.programmed("large"), lambda now: "quota" not in now[1])
        assert await cluster.reason("large") == "Pending"


async def test_quota_that_blocks_pods_is_reported(cluster: Cluster) -> None:
    async with running(cluster):
        await cluster.gateway("starved")
        deployment = await until(lambda: cluster.deployment("starved"))
        refused = 'pods "starved-1" is forbidden: exceeded quota: pods, requested: pods=1'
        condition = {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreate",
            "message": refused,
        }
        # As kube-controller-manager writes it.
        await cluster.client.patch(
            DEPLOYMENTS,
            deployment["metadata"]["name"],
            {"status": {"conditions": [condition]}},
            "default",
            subresource="status",
        )
        status, message = await until(
            lambda: cluster.programmed("starved"), lambda now: "quota" in now[1]
        )
        assert status == "False"
        assert message == f"Deployment default/starved-gatehouse-nginx: {refused}"
        assert await cluster.reason("starved") == "NoResources"
        await cluster.client.patch(
            DEPLOYMENTS,
            deployment["metadata"]["name"],
            {"status": {"conditions": []}},
            "default",
            subresource="status",
        )
        await until(lambda: cluster.programmed("starved"), lambda now: now[1] == WAITING)


@pytest.mark.long
async def test_restarted_controller_writes_nothing(cluster: Cluster) -> None:
    await cluster.parameters(
        "all",
        deployment={
            "replicas": 2,
            "autoscaling": {"enable": True, "minReplicas": 2, "maxReplicas": 4},
            "podDisruptionBudget": {"maxUnavailable": 1},
            "pod": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]},
        },
        service={"type": "NodePort", "externalTrafficPolicy": "Cluster"},
    )
    async with running(cluster, **AGENTS):
        await cluster.gateway("plain")
        await cluster.gateway("rich", "all")
        for name in ("plain", "rich"):
            await until(functools.partial(cluster.deployment, name))
        before = await cluster.quiet()
    async with running(cluster, **AGENTS):
        assert await cluster.quiet() == before


@pytest.mark.long
async def test_changed_controller_options_update_each_object_once(
    cluster: Cluster,
) -> None:
    names = ("a", "b", "c")
    async with running(cluster, **AGENTS):
        for name in names:
            await cluster.gateway(name)
            await until(functools.partial(cluster.deployment, name))
        before = await cluster.quiet()
        deployments = {name: await cluster.deployment(name) for name in names}
    async with running(cluster, images={"nginx": "new:2", "envoy": "e"}, **AGENTS):
        after = await cluster.quiet()
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert changed == {("Deployment", f"{name}-gatehouse-nginx") for name in names}
        for name in names:
            deployment, earlier = await cluster.deployment(name), deployments[name]
            assert deployment is not None
            assert earlier is not None
            assert deployment["metadata"]["generation"] == earlier["metadata"]["generation"] + 1
            assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "new:2"


async def test_changes_apply_while_another_client_updates_the_objects(
    cluster: Cluster,
) -> None:
    async with running(cluster):
        await cluster.parameters("some", deployment={"replicas": 1})
        await cluster.gateway("g", "some")
        await until(lambda: cluster.deployment("g"))

        async def scribble() -> None:
            for number in range(10_000):
                note = {"metadata": {"annotations": {"theirs": str(number)}}}
                await cluster.client.patch(DEPLOYMENTS, "g-gatehouse-nginx", note, "default")
                await pace(0.005)

        writer = asyncio.create_task(scribble())
        try:
            spec = {"spec": {"kubernetes": {"deployment": {"replicas": 4}}}}
            await cluster.client.patch(NGINX_PROXIES, "some", spec, "default")
            await until(
                lambda: cluster.deployment("g"),
                lambda deployment: deployment["spec"]["replicas"] == 4,
            )
        finally:
            writer.cancel()
        deployment = await cluster.deployment("g")
        assert deployment is not None
        assert "theirs" in deployment["metadata"]["annotations"]
