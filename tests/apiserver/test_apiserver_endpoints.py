"""Endpoints of the API server: those of Services with a selector, and those of the server."""

from __future__ import annotations

from typing import Any

from fakes.inprocess import Server
from fakes.patience import until_equal
from gatehouse.apis.resources import ENDPOINT_SLICES, PODS, SERVICES
from gatehouse.kube import client as kube
from kube_api_server.controllers.endpoints import MAX_ADDRESSES, desired_endpoints
from kube_api_server.controllers.kubernetes_service import advertised_address
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
SPEC: dict[str, Any] = {
    "selector": {"app": "web"},
    "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
}


def service(name: str = "web", **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default", "labels": {"team": "shop"}}
    return {"metadata": metadata, "spec": {**SPEC, **spec}}


async def add_pod(
    client: kube.Client, name: str, ip: str, *, ready: bool, port: int = 8080
) -> None:
    """Create a Pod that runs."""
    container = {"name": "main", "image": "web", "ports": [{"name": "web", "containerPort": port}]}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
    await client.create(PODS, {"metadata": metadata, "spec": {"containers": [container]}})
    condition = {"type": "Ready", "status": str(ready)}
    status = {"phase": "Running", "podIP": ip, "conditions": [condition]}
    await client.patch(PODS, name, {"status": status}, "default", "status")


async def addresses(client: kube.Client, name: str = "web") -> dict[str, Any] | None:
    """Return ready and other addresses with their ports; None without Endpoints."""
    try:
        endpoints = await client.get(ENDPOINTS, name, "default")
    except kube.NotFound:
        return None
    result: dict[str, Any] = {}
    for subset in endpoints.get("subsets") or ():
        (port,) = subset["ports"]
        for field in ("addresses", "notReadyAddresses"):
            for address in subset.get(field) or ():
                result.setdefault(field, []).append(f"{address['ip']}:{port['port']}")
    return {field: sorted(values) for field, values in result.items()}


async def test_endpoints_have_the_pods_of_a_service(client: kube.Client) -> None:
    await client.create(SERVICES, service())
    await until_equal(lambda: addresses(client), {})
    await add_pod(client, "one", "10.0.0.1", ready=True)
    await add_pod(client, "two", "10.0.0.2", ready=False)
    await add_pod(client, "three", "10.0.0.3", ready=True, port=9090)
    await until_equal(
        lambda: addresses(client),
        {"addresses": ["10.0.0.1:8080", "10.0.0.3:9090"], "notReadyAddresses": ["10.0.0.2:8080"]},
    )
    endpoints = await client.get(ENDPOINTS, "web", "default")
    assert endpoints["metadata"]["labels"] == {
        "team": "shop",
        "endpoints.kubernetes.io/managed-by": "endpoint-controller",
    }
    reference = endpoints["subsets"][0]["addresses"][0]["targetRef"]
    assert (reference["kind"], reference["name"]) == ("Pod", "one")
    await client.patch(PODS, "one", {"status": {"phase": "Failed"}}, "default", "status")
    await client.patch(SERVICES, "web", {"spec": {"publishNotReadyAddresses": True}}, "default")
    await until_equal(lambda: addresses(client), {"addresses": ["10.0.0.2:8080", "10.0.0.3:9090"]})


async def test_endpoints_follow_changes_of_others_and_deletions(client: kube.Client) -> None:
    await client.create(SERVICES, service())
    await add_pod(client, "one", "10.0.0.1", ready=True)
    served = {"addresses": ["10.0.0.1:8080"]}
    await until_equal(lambda: addresses(client), served)
    await client.patch(ENDPOINTS, "web", {"subsets": []}, "default")
    await until_equal(lambda: addresses(client), served)
    await client.delete(ENDPOINTS, "web", "default")
    await until_equal(lambda: addresses(client), served)
    await client.delete(SERVICES, "web", "default")
    await until_equal(lambda: addresses(client), None)


async def test_endpoints_of_users_stay_without_a_selector(client: kube.Client) -> None:
    metadata = {"name": "outside", "namespace": "default"}
    port = {"name": "http", "port": 8080}
    subset = {"addresses": [{"ip": "192.0.2.7"}], "ports": [port]}
    await client.create(ENDPOINTS, {"metadata": metadata, "subsets": [subset]})
    before = await client.get(ENDPOINTS, "outside", "default")
    await client.create(SERVICES, service("outside", selector=None))
    # The controller works on keys in order, so it has seen the first Service with the second.
    await client.create(SERVICES, service())
    await until_equal(lambda: addresses(client), {})
    assert await client.get(ENDPOINTS, "outside", "default") == before


async def test_terminating_namespace_gets_no_endpoints(client: kube.Client) -> None:
    """Endpoints that are deleted with their namespace are not created again."""
    namespaces = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
    await client.create(namespaces, {"metadata": {"name": "shop"}})
    obj = service()
    obj["metadata"]["namespace"] = "shop"
    await client.create(SERVICES, obj)

    async def count() -> int:
        return len((await client.list(ENDPOINTS, "shop")).items)

    async def exists() -> bool:
        names = [item["metadata"]["name"] for item in (await client.list(namespaces)).items]
        return "shop" in names

    await until_equal(count, 1)
    await client.delete(namespaces, "shop")
    await until_equal(exists, expected=False)
    assert await count() == 0


async def test_service_of_the_server_is_created_again(server: Server, client: kube.Client) -> None:
    async def read() -> tuple[Any, ...]:
        try:
            obj = await client.get(SERVICES, "kubernetes", "default")
            endpoints = await client.get(ENDPOINTS, "kubernetes", "default")
            part = await client.get(ENDPOINT_SLICES, "kubernetes", "default")
        except kube.NotFound:
            return ()
        return (
            obj["spec"]["clusterIP"],
            [port["targetPort"] for port in obj["spec"]["ports"]],
            [address["ip"] for address in endpoints["subsets"][0]["addresses"]],
            [endpoint["addresses"] for endpoint in part["endpoints"]],
            [port["port"] for port in part["ports"]],
        )

    expected = ("10.96.0.1", [server.port], ["127.0.0.1"], [["127.0.0.1"]], [server.port])
    await until_equal(read, expected)
    for resource in (SERVICES, ENDPOINTS, ENDPOINT_SLICES):
        await client.delete(resource, "kubernetes", "default")
        await until_equal(read, expected)
    await client.patch(ENDPOINT_SLICES, "kubernetes", {"ports": [{"port": 1}]}, "default")
    await until_equal(read, expected)


def test_advertised_address_is_one_of_this_machine() -> None:
    assert advertised_address("192.0.2.7") == "192.0.2.7"
    assert advertised_address("[2001:db8::7]") == "2001:db8::7"
    assert advertised_address("0.0.0.0") == "127.0.0.1"
    assert advertised_address("::") == "::1"
    assert advertised_address("localhost") == "127.0.0.1"


def test_endpoints_are_truncated() -> None:
    pods = [
        {
            "metadata": {"name": f"p{number}", "namespace": "default", "uid": str(number)},
            "spec": {"containers": [{"ports": [{"name": "web", "containerPort": 80}]}]},
            "status": {
                "podIP": f"10.0.{number // 250}.{number % 250}",
                "conditions": [{"type": "Ready", "status": str(number > 9)}],
            },
        }
        for number in range(MAX_ADDRESSES + 10)
    ]
    result = desired_endpoints(service(), pods)
    (subset,) = result["subsets"]
    assert len(subset["addresses"]) == MAX_ADDRESSES
    assert "notReadyAddresses" not in subset
    assert result["metadata"]["annotations"] == {
        "endpoints.kubernetes.io/over-capacity": "truncated"
    }
    headless = desired_endpoints(service(clusterIP="None"), [])
    assert headless["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    assert headless["subsets"] == []
