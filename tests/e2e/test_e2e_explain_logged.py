"""`gatehouse explain --send`: causes that only a request shows, from the access logs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner

from fakes import request_causes
from fakes.installation import BACKEND, Installation, apply, holds, until
from fakes.request_causes import HTTP_PORT, endpoints, filtered, http_route, metadata, service, to
from gatehouse.cli.explain import explain
from gatehouse.kube import client as kube

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(300)]

CLASSES = {"nginx": "gatehouse-nginx", "envoy": "gatehouse-envoy"}
CAUSES = {
    "refused": "connection_failure", "silent": "timeout", "limited": "rate_limit",
    "locked": "authentication",
}  # fmt: skip
"""Reason in the access log, by the name of the route."""


@pytest.fixture
async def silent_port() -> AsyncIterator[int]:
    """Return the port of a backend that never responds."""

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        port: int = server.sockets[0].getsockname()[1]
        yield port


def objects(gateway: str, silent_port: int) -> list[dict[str, Any]]:
    """Return a Gateway with a route for each cause, and one whose backend answers."""
    group, owner = "gateway.networking.k8s.io", {"group": "gateway.nginx.org"}
    listener = {"name": "http", "port": HTTP_PORT, "protocol": "HTTP"}
    users = {"auth": base64.b64encode(b"ann:{PLAIN}right\n").decode()}
    limit = {"rate": "1r/m", "key": "$binary_remote_addr", "zoneSize": "1m"}
    locked = {"type": "ExtensionRef", "extensionRef": {**owner, "kind": "AuthenticationFilter",
                                                       "name": "users"}}  # fmt: skip
    routes = [
        http_route("refused", to("closed")),
        http_route("silent", {**to("silent"), "timeouts": {"request": "200ms"}}),
        http_route("limited", to("app")),
        http_route("locked", filtered(to("app"), locked)),
        http_route("fine", to("app")),
    ]
    for item in routes:
        item["metadata"]["name"] = f"{gateway}-{item['metadata']['name']}"
        item["spec"]["parentRefs"] = [{"name": gateway}]
    return [
        {
            "apiVersion": request_causes.API, "kind": "Gateway", "metadata": metadata(gateway),
            "spec": {"gatewayClassName": CLASSES[gateway], "listeners": [listener]},
        },
        service("app"), endpoints("app", *BACKEND),
        service("closed"), endpoints("closed", "127.0.0.1", 1),
        service("silent"), endpoints("silent", "127.0.0.1", silent_port),
        {"apiVersion": "v1", "kind": "Secret", "type": "nginx.org/htpasswd",
         "metadata": metadata("users"), "data": users},
        {"apiVersion": "gateway.nginx.org/v1alpha1", "kind": "AuthenticationFilter",
         "metadata": metadata("users"),
         "spec": {"type": "Basic", "basic": {"secretRef": {"name": "users"}, "realm": "shop"}}},
        *routes,
        {"apiVersion": "gateway.nginx.org/v1alpha1", "kind": "RateLimitPolicy",
         "metadata": metadata(f"{gateway}-limit"),
         "spec": {"rateLimit": {"local": {"rules": [limit]}}, "targetRefs": [
             {"group": group, "kind": "HTTPRoute", "name": f"{gateway}-limited"}]}},
    ]  # fmt: skip


async def sent(installation: Installation, gateway: str, name: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the answer to a request with a wrong password."""
    words = [
        f"http://{name}.example:{HTTP_PORT}/", "--gateway", f"default/{gateway}", "--send",
        "-H", "Authorization: Basic YW5uOndyb25n", "-o", "json",
        "--kubeconfig", str(installation.kubeconfig),
    ]  # fmt: skip
    result = await asyncio.to_thread(CliRunner().invoke, explain, words)
    return result.exit_code, json.loads(result.stdout)["sent"]


@pytest.mark.parametrize("gateway", CLASSES)
async def test_answer_of_the_data_plane_has_its_reason(
    installation: Installation,
    client: kube.Client,
    backends: None,
    silent_port: int,
    gateway: str,
) -> None:
    await apply(client, objects(gateway, silent_port))
    await holds(client, "Gateway", gateway, "Programmed")

    async def served() -> bool:
        status, answer = await sent(installation, gateway, "fine")
        return status == 0 and answer["status"] == 200

    await until(served)
    for name, reason in CAUSES.items():

        async def logged(name: str = name, reason: str = reason) -> bool:
            # The first request of the limited route is within the limit.
            status, answer = await sent(installation, gateway, name)
            return status == 4 and answer.get("logged", {}).get("reason") == reason

        await until(logged)
