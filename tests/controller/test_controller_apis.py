"""A cluster that lacks kinds, forbids them, or has another Gateway API, at a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.inprocess import Server
from fakes.replica import Replica
from gatehouse.apis.resources import DEFINITIONS, DEPLOYMENTS, GATEWAY_CLASSES, GATEWAYS, SERVICES
from gatehouse.controller.informers import BUNDLE_VERSION_ANNOTATION
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State
from kube_base.types.resource import Resource

ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CONTROLLER_ROLE = "system:gatehouse:controller"

GATEWAY = {
    "metadata": {"name": "g", "namespace": "default"},
    "spec": {
        "gatewayClassName": "gatehouse-nginx",
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
    },
}


class Cluster:
    """An API server with a client that may do everything."""

    def __init__(self, server: Server, client: kube.Client) -> None:
        self.server = server
        self.client = client

    async def without(self, *plurals: str) -> list[dict[str, Any]]:
        """Remove definitions of Gateway API; gives them."""
        removed = []
        for plural in plurals:
            definition = await self.client.get(DEFINITIONS, f"{plural}.gateway.networking.k8s.io")
            removed.append({"metadata": _bare(definition), "spec": definition["spec"]})
            await self.client.delete(DEFINITIONS, definition["metadata"]["name"])
        async with patience.limit():
            while any(
                item["metadata"]["name"] == gone["metadata"]["name"]
                for item in (await self.client.list(DEFINITIONS)).items
                for gone in removed
            ):
                await patience.pause()
        return removed

    async def bundle(self, version: str, plural: str = "httproutes") -> None:
        patch = {"metadata": {"annotations": {BUNDLE_VERSION_ANNOTATION: version}}}
        await self.client.patch(DEFINITIONS, f"{plural}.gateway.networking.k8s.io", patch)

    async def until(self, resource: Resource, name: str, holds: Callable[[Any], Any]) -> Any:
        namespace = "default" if resource.namespaced else ""
        obj: Any = None
        try:
            async with patience.limit():
                while True:
                    try:
                        obj = await self.client.get(resource, name, namespace)
                    except kube.NotFound:
                        obj = None
                    if holds(obj):
                        return obj
                    await patience.pause()
        except TimeoutError:
            raise AssertionError(f"last seen: {obj}") from None


def _bare(obj: dict[str, Any]) -> dict[str, Any]:
    return {
        key: obj["metadata"][key]
        for key in ("name", "annotations", "labels")
        if key in obj["metadata"]
    }


def said(obj: Any) -> dict[str, tuple[str, str]]:
    conditions = (obj or {}).get("status", {}).get("conditions", ())
    return {
        condition["type"]: (condition["status"], condition["reason"]) for condition in conditions
    }


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.client() as client:
        yield Cluster(server, client)


async def test_missing_crds_are_reported_and_watched_after_creation(cluster: Cluster) -> None:
    needed = await cluster.without("gateways", "gatewayclasses")
    [optional] = await cluster.without("tcproutes")
    replica = Replica(cluster.server)
    try:
        report = await replica.until(lambda status, text: "Gateway (" in text)
        assert report.startswith("waiting for ")
        assert "Gateway (gateways.gateway.networking.k8s.io/v1 is not served)" in report
        assert "gatewayclasses.gateway.networking.k8s.io/v1" in report
        assert "without TCPRoute (tcproutes.gateway.networking.k8s.io/v1" in report
        for definition in needed:
            await cluster.client.create(DEFINITIONS, definition)
        report = await replica.until_ready()
        assert "without TCPRoute" in report
        count = report.count("without ")
        assert (
            f"gatehouse_controller_unavailable_kinds {count}.0"
            in (await replica.get("/metrics"))[1]
        )
        await cluster.client.create(GATEWAYS, GATEWAY)
        await cluster.until(DEPLOYMENTS, "g-gatehouse-nginx", bool)
        await cluster.client.create(DEFINITIONS, optional)
        report = await replica.until(lambda _, text: "TCPRoute" not in text)
        assert report.startswith("ok\n")
    finally:
        await replica.stop()


async def test_unsupported_gateway_api_version_is_reported_in_the_class(cluster: Cluster) -> None:
    replica = Replica(cluster.server)
    name = "gatehouse-nginx"

    async def until(**expected: tuple[str, str]) -> None:
        await cluster.until(
            GATEWAY_CLASSES, name, lambda obj: expected.items() <= said(obj).items()
        )

    try:
        await until(Accepted=("True", "Accepted"), SupportedVersion=("True", "SupportedVersion"))
        await cluster.client.create(GATEWAYS, GATEWAY)
        before = await cluster.until(DEPLOYMENTS, "g-gatehouse-nginx", bool)
        await cluster.bundle("v1.6.3")
        await until(Accepted=("True", "Accepted"), SupportedVersion=("False", "UnsupportedVersion"))
        await cluster.bundle("v2.0.1")
        await until(
            Accepted=("False", "UnsupportedVersion"),
            SupportedVersion=("False", "UnsupportedVersion"),
        )
        # An upgrade of the CRDs takes down nothing that is served.
        ports = [{"name": "more", "port": 81, "protocol": "HTTP"}]
        listeners = [*GATEWAY["spec"]["listeners"], *ports]  # type: ignore[index]
        await cluster.client.patch(GATEWAYS, "g", {"spec": {"listeners": listeners}}, "default")
        # A later change of a CRD is compiled and reported.
        await cluster.bundle("v2.0.2")
        await cluster.until(GATEWAY_CLASSES, name, lambda obj: "v2.0.2" in str(obj["status"]))
        after = await cluster.until(DEPLOYMENTS, "g-gatehouse-nginx", bool)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        service = await cluster.client.get(SERVICES, "g-gatehouse-nginx", "default")
        assert [port["port"] for port in service["spec"]["ports"]] == [80]
        await cluster.bundle("v1.7.1")
        await until(Accepted=("True", "Accepted"), SupportedVersion=("True", "SupportedVersion"))
        await cluster.until(
            SERVICES, "g-gatehouse-nginx", lambda obj: len(obj["spec"]["ports"]) == 2
        )
    finally:
        await replica.stop()


@pytest.mark.long
async def test_controller_runs_without_forbidden_resources_until_permitted(
    cluster: Cluster,
) -> None:
    role = await cluster.client.get(ROLES, CONTROLLER_ROLE)
    fewer = [
        rule
        for rule in role["rules"]
        if not {"gateway.nginx.org", "autoscaling"} & {*rule["apiGroups"]}
    ]
    assert len(fewer) < len(role["rules"])
    cut = await cluster.client.update(ROLES, {**role, "rules": fewer})
    replica = Replica(cluster.server, cluster.server.state.controller_kubeconfig)
    try:
        report = await replica.until(lambda status, _: status == 200)
        assert "without NginxProxy (forbidden: " in report
        assert "without HorizontalPodAutoscaler (forbidden: " in report
        await cluster.client.create(GATEWAYS, GATEWAY)
        await cluster.until(
            GATEWAYS, "g", lambda obj: said(obj).get("Accepted") == ("True", "Accepted")
        )
        await cluster.until(DEPLOYMENTS, "g-gatehouse-nginx", bool)
        await cluster.client.update(ROLES, {**cut, "rules": role["rules"]})
        await replica.until(lambda _, text: "NginxProxy" not in text and "Autoscaler" not in text)
    finally:
        await replica.stop()
