"""Objects of Gateways at a real API server, and their reaction to changes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes import patience
from fakes.process import ApiServer
from gatehouse.apis.data_plane_workload import Workload
from gatehouse.apis.resources import (
    AUTOSCALERS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    GATEWAY_CLASSES,
    GATEWAYS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICES,
)
from gatehouse.controller.gateway_provisioner import GatewayProvisioner
from gatehouse.controller.programmed_condition import ProvisioningError
from gatehouse.controller.provisioner.copied_secrets import CopiedSecret, SecretSource, read_all
from gatehouse.controller.provisioner.manifests import ProvisionerSettings, ProvisioningPlan
from gatehouse.controller.provisioner.reconcile import reconcile_objects
from gatehouse.kube import client as kube
from kube_base.types.resource import Resource

# So that no other controller of the API server writes to what is made.
SETTINGS = ProvisionerSettings(
    {"nginx": "image"}, "host", 1, "name", "PEM", "agents", on_service_address=True
)
NAME = ("default", "g")


class Live:
    """A Provisioning over an API server, with one Gateway."""

    def __init__(self, client: kube.Client) -> None:
        self.client = client
        self.gateways: dict[tuple[str, str], Any] = {}
        self.told: dict[tuple[str, str], ProvisioningError | None] = {}
        self.provisioning = GatewayProvisioner(
            client, SETTINGS, self.gateways.get, lambda _: False, self.told.__setitem__
        )

    def trouble(self) -> str:
        finding = self.told.get(NAME)
        return finding.message if finding else ""

    async def gateway(self, name: str = "g") -> None:
        created = await self.client.create(
            GATEWAYS,
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "gatewayClassName": "c",
                    "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
                },
            },
        )
        self.gateways[("default", name)] = created

    def plan(self, waiting: str = "", **workload: Any) -> None:
        workload_options = msgspec.convert(workload, Workload)
        self.provisioning.set_gateways(
            {NAME: ProvisioningPlan(((80, "TCP"),), workload=workload_options, waiting=waiting)}
        )

    async def get(self, resource: Resource, name: str = "g-c") -> dict[str, Any] | None:
        try:
            return await self.client.get(resource, name, "default")
        except kube.NotFound:
            return None

    async def spec(self, resource: Resource) -> dict[str, Any]:
        obj = await self.get(resource)
        return obj["spec"] if obj else {}

    async def until(self, resource: Resource, holds: Callable[[Any], Any]) -> Any:
        async with patience.limit():
            while not holds(obj := await self.get(resource)):
                await patience.pause()
        return obj


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    server = ApiServer(tmp_path / "state")
    server.start()
    try:
        async with kube.Client.from_kubeconfig(server.kubeconfig) as client:
            await client.create(
                GATEWAY_CLASSES,
                {"metadata": {"name": "c"}, "spec": {"controllerName": "gatehouse.dev/nginx"}},
            )
            estate = Live(client)
            await estate.gateway()
            running = asyncio.create_task(estate.provisioning.run())
            yield estate
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
    finally:
        server.kill()


async def test_autoscaler_controls_replicas_and_is_deleted_when_disabled(live: Live) -> None:
    scaling = {"enable": True, "minReplicas": 2, "maxReplicas": 9}
    live.plan(deployment={"autoscaling": scaling, "podDisruptionBudget": {"minAvailable": 1}})
    await live.until(AUTOSCALERS, bool)
    await live.until(DISRUPTION_BUDGETS, bool)
    await live.client.patch(DEPLOYMENTS, "g-c", {"spec": {"replicas": 6}}, "default")
    live.provisioning.enqueue(NAME)
    live.plan(deployment={"autoscaling": {**scaling, "maxReplicas": 12}})
    await live.until(AUTOSCALERS, lambda obj: obj["spec"]["maxReplicas"] == 12)
    await live.until(DISRUPTION_BUDGETS, lambda obj: obj is None)
    assert (await live.spec(DEPLOYMENTS))["replicas"] == 6
    live.plan(deployment={"replicas": 3})
    await live.until(AUTOSCALERS, lambda obj: obj is None)
    await live.until(DEPLOYMENTS, lambda obj: obj["spec"]["replicas"] == 3)


async def test_equivalent_quantities_are_unchanged(live: Live) -> None:
    limits = {"cpu": 2, "memory": "1024Mi", "acme.com/none": "0.50"}
    deployment_options = {"container": {"resources": {"limits": limits}}}
    live.plan(deployment=deployment_options)
    deployment = await live.until(DEPLOYMENTS, bool)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    answered = {"cpu": "2", "memory": "1Gi", "acme.com/none": "500m"}
    assert container["resources"] == {"limits": answered}
    plan = ProvisioningPlan(
        ((80, "TCP"),), workload=msgspec.convert({"deployment": deployment_options}, Workload)
    )
    outcomes = await reconcile_objects(live.client, live.gateways[NAME], SETTINGS, plan)
    assert {outcome.action for outcome in outcomes if outcome.kind == "Deployment"} == {"unchanged"}


async def test_daemon_set_replaces_deployment_and_vice_versa(live: Live) -> None:
    live.plan()
    await live.until(DEPLOYMENTS, bool)
    live.plan(daemonSet={})
    await live.until(DAEMON_SETS, bool)
    await live.until(DEPLOYMENTS, lambda obj: obj is None)
    live.plan()
    await live.until(DEPLOYMENTS, bool)
    await live.until(DAEMON_SETS, lambda obj: obj is None)


async def test_reconcile_removes_unset_fields_and_reverts_user_changes(live: Live) -> None:
    live.plan(
        service={"loadBalancerSourceRanges": ["10.0.0.0/8"]},
        deployment={"pod": {"nodeSelector": {"a": "1", "b": "2"}}},
    )
    await live.until(DEPLOYMENTS, bool)
    live.plan(deployment={"pod": {"nodeSelector": {"a": "1"}}})

    def pod(workload: Any) -> Any:
        return workload["spec"]["template"]["spec"]

    await live.until(DEPLOYMENTS, lambda obj: pod(obj)["nodeSelector"] == {"a": "1"})
    await live.until(SERVICES, lambda obj: "loadBalancerSourceRanges" not in obj["spec"])
    await live.client.patch(
        SERVICES, "g-c", {"spec": {"externalTrafficPolicy": "Cluster"}}, "default"
    )
    live.provisioning.enqueue(NAME)
    await live.until(SERVICES, lambda obj: obj["spec"]["externalTrafficPolicy"] == "Local")


async def test_network_policy_allows_listener_ports_until_disabled(live: Live) -> None:
    def plan(*ports: int, **options: Any) -> None:
        workload = msgspec.convert({"networkPolicy": options}, Workload)
        listening = tuple((port, "TCP") for port in ports)
        live.provisioning.set_gateways({NAME: ProvisioningPlan(listening, workload=workload)})

    def open_to_everybody(policy: Any) -> list[int]:
        first = policy["spec"]["ingress"][0]
        return [entry["port"] for entry in first.get("ports", ()) if "from" not in first]

    plan(80, enable=True)
    await live.until(NETWORK_POLICIES, bool)
    plan(80, 443, enable=True)
    await live.until(NETWORK_POLICIES, lambda policy: open_to_everybody(policy) == [80, 443])
    plan(443, enable=True, egressTo=[])
    policy = await live.until(NETWORK_POLICIES, lambda policy: open_to_everybody(policy) == [443])
    assert all("ports" in rule for rule in policy["spec"]["egress"])
    opened: dict[str, Any] = {"spec": {"ingress": [{}]}}
    await live.client.patch(NETWORK_POLICIES, "g-c", opened, "default")
    live.provisioning.enqueue(NAME)
    await live.until(NETWORK_POLICIES, lambda policy: open_to_everybody(policy) == [443])
    plan(443)
    await live.until(NETWORK_POLICIES, lambda policy: policy is None)
    plan(443, enable=True)
    await live.until(NETWORK_POLICIES, bool)
    live.provisioning.set_gateways({NAME: None})
    await live.until(NETWORK_POLICIES, lambda policy: policy is None)


async def test_invalid_network_policy_peer_is_reported_with_api_server_message(live: Live) -> None:
    live.plan(networkPolicy={"enable": True, "egressTo": [{"ipBlock": {"cidr": "ten"}}]})
    await patience.until(lambda: "spec.egress[1].to[0].ipBlock.cidr" in live.trouble())
    assert live.trouble().startswith("NetworkPolicy default/g-c: ")


async def test_changed_load_balancer_class_recreates_service(live: Live) -> None:
    live.plan(service={"loadBalancerClass": "example.com/a"})
    before = await live.until(SERVICES, bool)
    live.plan(service={"loadBalancerClass": "example.com/b"})
    after = await live.until(
        SERVICES,
        lambda service: service and service["spec"]["loadBalancerClass"] == "example.com/b",
    )
    assert before["metadata"]["uid"] != after["metadata"]["uid"]


def _has_type(exposed: str, service: Any) -> bool:
    return bool(service["spec"]["type"] == exposed)


async def test_service_keeps_its_cluster_ip_and_is_exposed_as_requested(live: Live) -> None:
    """A cluster IP is immutable, and another Service could take it while this one is replaced."""
    spec = live.gateways[NAME]["spec"]
    spec["addresses"] = [{"routability": "Cluster", "value": "10.96.0.77"}]
    live.plan()
    before = await live.until(SERVICES, bool)
    assert (before["spec"]["type"], before["spec"]["clusterIP"]) == ("ClusterIP", "10.96.0.77")
    for addresses, exposed in (
        ([{"routability": "Cluster", "value": "10.96.0.78"}, {}], "LoadBalancer"),
        ([{"routability": "Cluster"}], "ClusterIP"),
        ([], "LoadBalancer"),
    ):
        spec["addresses"] = addresses
        live.provisioning.enqueue(NAME)
        is_changed = functools.partial(_has_type, exposed)
        after = await live.until(SERVICES, is_changed)
        assert after["spec"]["clusterIP"] == "10.96.0.77"
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert not live.trouble()


async def test_inapplicable_patch_is_reported_and_leaves_deployment_unchanged(live: Live) -> None:
    live.plan()
    before = await live.until(DEPLOYMENTS, bool)
    patch = {"type": "JSONPatch", "value": [{"op": "remove", "path": "/spec/nothing"}]}
    live.plan(deployment={"patches": [patch], "replicas": 4})
    await patience.until(lambda: "patches[0]" in live.trouble())
    assert (await live.get(DEPLOYMENTS)) == before
    live.plan(deployment={"replicas": 4})
    await live.until(DEPLOYMENTS, lambda obj: obj["spec"]["replicas"] == 4)
    await patience.until(lambda: not live.trouble())


async def test_invalid_pod_field_is_reported_with_api_server_message(live: Live) -> None:
    live.plan(deployment={"pod": {"tolerations": [{"operator": 7}]}})
    await patience.until(live.trouble)
    assert "tolerations" in live.trouble()


async def test_gateway_with_missing_parameters_keeps_its_objects(live: Live) -> None:
    live.plan()
    before = await live.until(DEPLOYMENTS, bool)
    live.plan(waiting="waiting for parameters: GatewayParameters default/later not found")
    await patience.until(lambda: "later" in live.trouble())
    assert (await live.get(DEPLOYMENTS)) == before


async def test_copied_secret_is_created_updated_and_deleted_with_its_source(live: Live) -> None:
    source = SecretSource.parse("pull=default/registry")
    raw = {"metadata": {"name": "registry"}, "type": "example.com/x", "data": {"a": "MQ=="}}

    def told(secret: Any) -> tuple[CopiedSecret, ...]:
        return read_all([source], lambda _: secret)

    live.provisioning.set_copied_secrets(told(raw))
    live.plan()

    async def copy() -> Any:
        return await live.get(SECRETS, "g-c-registry")

    async with patience.limit():
        while not (copied := await copy()):
            await patience.pause()
    assert copied["data"] == {"a": "MQ=="}
    assert copied["type"] == "example.com/x"
    spec = (await live.until(DEPLOYMENTS, bool))["spec"]["template"]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "g-c-registry"}]
    live.provisioning.set_copied_secrets(told({**raw, "data": {"b": "Mg=="}}))
    async with patience.limit():
        while (await copy())["data"] != {"b": "Mg=="}:
            await patience.pause()
    live.provisioning.set_copied_secrets(())
    async with patience.limit():
        while await copy() is not None:
            await patience.pause()


@pytest.mark.parametrize("text", ["pull=registry", "nothing=ns/name", "pull=a/b/c", "ns/name"])
def test_malformed_secret_source_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        SecretSource.parse(text)
