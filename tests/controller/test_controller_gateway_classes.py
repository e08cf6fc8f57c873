"""GatewayClasses that the controller creates."""

from __future__ import annotations

from pathlib import Path

import structlog

from fakes.inprocess import Server
from gatehouse.apis.resources import GATEWAY_CLASSES
from gatehouse.controller.gateway_classes import create_classes
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State

NGF = "gateway.nginx.org/nginx-gateway-controller"


async def _controllers(client: kube.Client) -> dict[str, str]:
    classes = (await client.list(GATEWAY_CLASSES)).items
    return {item["metadata"]["name"]: item["spec"]["controllerName"] for item in classes}


async def test_classes_are_created_and_those_of_others_reported(tmp_path: Path) -> None:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client:
        spec = {"controllerName": NGF}
        await client.create(GATEWAY_CLASSES, {"metadata": {"name": "nginx"}, "spec": spec})
        classes = {"nginx": "gatehouse.dev/nginx", "edge": "gatehouse.dev/envoy"}
        for _ in range(2):
            with structlog.testing.capture_logs() as logs:
                await create_classes(client, classes)
            (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
            assert warning["event"].startswith("GatewayClass belongs to another controller")
            assert (warning["name"], warning["controller_name"]) == ("nginx", NGF)
            assert await _controllers(client) == {
                "gatehouse-nginx": "gatehouse.dev/nginx",
                "gatehouse-envoy": "gatehouse.dev/envoy",
                "edge": "gatehouse.dev/envoy",
                "nginx": NGF,
            }
        await client.delete(GATEWAY_CLASSES, "nginx")
        await create_classes(client, classes)
        assert (await _controllers(client))["nginx"] == "gatehouse.dev/nginx"
