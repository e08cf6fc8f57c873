"""XBackendTrafficPolicy and XMesh in an installation with real proxies."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from fakes.installation import BACKEND, PORT, REVISED, address, apply, hello
from fakes.installation_fixtures import backends, client
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["backends", "client", "installation"]

pytestmark = pytest.mark.process

POLICIES, MESHES = resources.BACKEND_TRAFFIC_POLICIES, resources.MESHES
CONTROLLERS = {"gatehouse-nginx": "gatehouse.dev/nginx", "gatehouse-envoy": "gatehouse.dev/envoy"}


@pytest.fixture(scope="module", params=CONTROLLERS)
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def policy(name: str, service: str = "app", **fields: Any) -> dict[str, Any]:
    target = {"group": "", "kind": "Service", "name": service}
    return {
        **POLICIES.type_meta,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"targetRefs": [target], **fields},
    }


async def expect(client: kube.Client, name: str, status: str, reason: str, message: str) -> None:
    """Wait for the condition `Accepted` of a policy at the only Gateway."""
    current: Any = None

    async def is_so() -> bool:
        nonlocal current
        current = (await client.get(POLICIES, name, "default")).get("status")
        return any(
            (entry["type"], entry["status"], entry["reason"]) == ("Accepted", status, reason)
            and message in entry["message"]
            for ancestor in (current or {}).get("ancestors") or ()
            for entry in ancestor["conditions"]
        )

    await until(is_so, lambda: str(current))


async def cookies(where: str) -> list[str]:
    """Return the names of the cookies that a response sets."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{where}:{PORT}/") as answer:
        assert answer.status == 200
        return [line.partition("=")[0] for line in answer.headers.getall("Set-Cookie", [])]


async def test_policy_of_a_service_sets_sessions_and_says_what_the_proxy_lacks(
    client: kube.Client, backends: None, gateway_class: str
) -> None:
    await apply(client, hello(gateway_class))
    session = {"cookie": {"name": "shop"}}
    await client.create(POLICIES, policy("a", sessionPersistence=session, retryConstraint={}))
    where = await address(client)
    lacks = "retryConstraint" if gateway_class == "gatehouse-nginx" else "budget.interval"
    await expect(client, "a", "True", "Accepted", lacks)

    async def has_session() -> bool:
        return any(name.startswith("shop-") for name in await cookies(where))

    await until(has_session)
    await client.create(POLICIES, policy("b", sessionPersistence=session))
    await expect(client, "b", "False", "Conflicted", "XBackendTrafficPolicy default/a")

    await client.patch(POLICIES, "a", {"spec": {"sessionPersistence": None}}, "default")
    if gateway_class == "gatehouse-nginx":
        await expect(client, "a", "False", "Invalid", "spec.retryConstraint: NGINX")
    else:
        await expect(client, "a", "True", "Accepted", "budget.interval")

    async def has_no_session() -> bool:
        return not await cookies(where)

    await until(has_no_session)
    await client.delete(POLICIES, "a", "default")
    await expect(client, "b", "True", "Accepted", "the policy is accepted")
    await until(has_session)


def with_endpoint(name: str, endpoint: tuple[str, int]) -> list[dict[str, Any]]:
    """Return a Service with an endpoint."""
    address, port = endpoint
    _, service, endpoints, _ = hello()
    service["metadata"]["name"] = name
    labels = {"kubernetes.io/service-name": name}
    endpoints["metadata"] |= {"name": f"{name}-1", "labels": labels}
    endpoints["ports"] = [{"name": "http", "port": port, "protocol": "TCP"}]
    endpoints["endpoints"] = [{"addresses": [address]}]
    return [service, endpoints]


async def test_policy_of_one_service_sets_no_session_of_the_other_of_a_rule(
    client: kube.Client, backends: None, gateway_class: str
) -> None:
    gateway, _, _, route = hello(gateway_class)
    route["metadata"]["name"] = "both"
    services = {"sticky": BACKEND, "free": REVISED}
    match = {"path": {"type": "PathPrefix", "value": "/both"}}
    references = [{"name": name, "port": 80} for name in services]
    route["spec"]["rules"] = [{"matches": [match], "backendRefs": references}]
    objects = [one for name in services for one in with_endpoint(name, services[name])]
    await apply(client, [gateway, *objects, route])
    session = {"cookie": {"name": "own"}}
    await client.create(POLICIES, policy("sticky", "sticky", sessionPersistence=session))
    await expect(client, "sticky", "True", "Accepted", "the policy is accepted")
    where = await address(client)

    async def begun() -> tuple[str, bool]:
        """Return the text of a response, and whether it begins a session."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{where}:{PORT}/both") as answer,
        ):
            return await answer.text(), any(name.startswith("own-") for name in answer.cookies)

    async def has_session() -> bool:
        return (await begun())[1]

    await until(has_session)
    answers = {await begun() for _ in range(40)}
    assert len(answers) == 2, "each Service always or never begins a session"
    assert {is_begun for _, is_begun in answers} == {True, False}


async def test_mesh_that_names_gatehouse_is_not_accepted(
    client: kube.Client, gateway_class: str
) -> None:
    own, other = f"own-{gateway_class}", f"other-{gateway_class}"
    for name, controller in ((own, CONTROLLERS[gateway_class]), (other, "example.com/mesh")):
        spec = {"controllerName": controller}
        await client.create(MESHES, {**MESHES.type_meta, "metadata": {"name": name}, "spec": spec})
    try:
        conditions: list[dict[str, Any]] = []

        async def is_reported() -> bool:
            nonlocal conditions
            conditions = (await client.get(MESHES, own))["status"]["conditions"]
            return any(entry["reason"] == "Unsupported" for entry in conditions)

        await until(is_reported, lambda: str(conditions))
        (accepted,) = [entry for entry in conditions if entry["type"] == "Accepted"]
        assert accepted["status"] == "False"
        assert "service meshes are not supported" in accepted["message"]
        (pending,) = (await client.get(MESHES, other))["status"]["conditions"]
        assert (pending["status"], pending["reason"]) == ("Unknown", "Pending")
    finally:
        for name in (own, other):
            await client.delete(MESHES, name)
