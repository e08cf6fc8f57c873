"""Endpoints of Services without a selector, mirrored to EndpointSlices by the API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fakes import patience
from gatehouse.apis.resources import ENDPOINT_SLICES, SERVICES
from gatehouse.kube import client as kube
from kube_base.types.resource import Resource

ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
MANAGER = "endpointslicemirroring-controller.k8s.io"
PORTS = [{"name": "http", "port": 8080, "protocol": "TCP"}]


def service(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"ports": [{"name": "http", "port": 80}], **spec}}


def endpoints(
    name: str,
    *addresses: str,
    not_ready: tuple[str, ...] = (),
    ports: list[dict[str, Any]] = PORTS,
    **metadata: Any,
) -> dict[str, Any]:
    subset: dict[str, Any] = {"ports": ports}
    for field, values in (("addresses", addresses), ("notReadyAddresses", not_ready)):
        if values:
            subset[field] = [{"ip": value} for value in values]
    return {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "subsets": [subset] if addresses or not_ready else [],
    }


async def mirrored(client: kube.Client, name: str) -> list[dict[str, Any]]:
    slices = (await client.list(ENDPOINT_SLICES, "default")).items
    owned = {
        "endpointslice.kubernetes.io/managed-by": MANAGER,
        "kubernetes.io/service-name": name,
    }
    return [
        entry
        for entry in slices
        if (entry["metadata"].get("labels") or {}).items() >= owned.items()
    ]


def addresses(entries: list[dict[str, Any]]) -> list[tuple[str, str, bool | None]]:
    return sorted(
        (
            entry["addressType"],
            endpoint["addresses"][0],
            endpoint.get("conditions", {}).get("ready"),
        )
        for entry in entries
        for endpoint in entry["endpoints"]
    )


async def until(
    client: kube.Client, name: str, holds: Callable[[list[dict[str, Any]]], object]
) -> list[dict[str, Any]]:
    async with patience.limit():
        while not holds(entries := await mirrored(client, name)):
            await patience.pause()
    return entries


async def mirror(client: kube.Client, obj: dict[str, Any]) -> list[dict[str, Any]]:
    await client.create(ENDPOINTS, obj)
    return await until(client, obj["metadata"]["name"], bool)


async def test_endpoints_are_mirrored_with_ports_families_and_readiness(
    client: kube.Client,
) -> None:
    await client.create(SERVICES, service("app"))
    obj = endpoints(
        "app",
        *("192.0.2.1", "2001:db8::1"),
        not_ready=("192.0.2.2",),
        labels={"team": "shop"},
        annotations={"a": "b", "endpoints.kubernetes.io/last-change-trigger-time": "x"},
    )
    obj["subsets"][0]["addresses"][0]["hostname"] = "one"
    entries = await mirror(client, obj)
    entries = await until(client, "app", lambda current: len(current) == 2)
    assert addresses(entries) == [
        ("IPv4", "192.0.2.1", True),
        ("IPv4", "192.0.2.2", False),
        ("IPv6", "2001:db8::1", True),
    ]
    for entry in entries:
        metadata = entry["metadata"]
        assert entry["ports"] == PORTS
        assert metadata["labels"]["team"] == "shop"
        assert metadata["annotations"] == {"a": "b"}
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Endpoints", "app", True)
    hostnames = [endpoint.get("hostname") for entry in entries for endpoint in entry["endpoints"]]
    assert hostnames.count("one") == 1


async def test_mirrored_slices_follow_updates_and_deletion(client: kube.Client) -> None:
    await client.create(SERVICES, service("app"))
    await mirror(client, endpoints("app", "192.0.2.1"))
    await client.patch(ENDPOINTS, "app", endpoints("app", "192.0.2.9"), "default")
    await until(client, "app", lambda entries: addresses(entries) == [("IPv4", "192.0.2.9", True)])
    other = [{"name": "http", "port": 9090, "protocol": "TCP"}]
    await client.patch(ENDPOINTS, "app", endpoints("app", "192.0.2.9", ports=other), "default")
    await until(client, "app", lambda entries: [e["ports"] for e in entries] == [other])
    # A change by others is reverted.
    entries = await until(client, "app", lambda entries: len(entries) == 1)
    entry = entries[0]
    change = {"endpoints": [{"addresses": ["192.0.2.66"]}]}
    await client.patch(ENDPOINT_SLICES, entry["metadata"]["name"], change, "default")
    await until(client, "app", lambda entries: addresses(entries) == [("IPv4", "192.0.2.9", True)])
    await client.delete(ENDPOINTS, "app", "default")
    await until(client, "app", lambda entries: not entries)


async def test_mirrored_slices_follow_the_service(client: kube.Client) -> None:
    """Endpoints before the Service, a selector, whose Pods then determine the Endpoints, and the
    deletion of the Service."""
    await client.create(ENDPOINTS, endpoints("app", "192.0.2.1"))
    await client.create(SERVICES, service("app"))
    await until(client, "app", bool)
    await client.patch(SERVICES, "app", {"spec": {"selector": {"app": "x"}}}, "default")
    await until(client, "app", lambda entries: not entries)
    await client.patch(SERVICES, "app", {"spec": {"selector": None}}, "default")
    await client.update(ENDPOINTS, endpoints("app", "192.0.2.2"))
    await until(client, "app", bool)
    await client.delete(SERVICES, "app", "default")
    await until(client, "app", lambda entries: not entries)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}},
    ],
    ids=["label", "leader election"],
)
async def test_endpoints_that_are_not_for_traffic_are_not_mirrored(
    client: kube.Client, metadata: dict[str, Any]
) -> None:
    await client.create(SERVICES, service("app"))
    await mirror(client, endpoints("app", "192.0.2.1"))
    await client.patch(ENDPOINTS, "app", {"metadata": metadata}, "default")
    await until(client, "app", lambda entries: not entries)


async def test_slices_of_others_stay_unchanged(client: kube.Client) -> None:
    """A Service may have slices that its user writes, as in the quick start."""
    await client.create(SERVICES, service("app"))
    own = {
        "metadata": {
            "name": "app-mine",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "app"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.77"]}],
        "ports": PORTS,
    }
    created = await client.create(ENDPOINT_SLICES, own)
    await mirror(client, endpoints("app", "192.0.2.1"))
    await client.delete(ENDPOINTS, "app", "default")
    await until(client, "app", lambda entries: not entries)
    assert await client.get(ENDPOINT_SLICES, "app-mine", "default") == created


@pytest.mark.parametrize(
    ("subset", "field"),
    [
        ({"addresses": [{"ip": "not-an-address"}]}, "subsets[0].addresses[0].ip"),
        ({"notReadyAddresses": [{"ip": "0.0.0.0"}]}, "subsets[0].notReadyAddresses[0].ip"),
        ({"ports": PORTS}, "subsets[0]"),
        (
            {"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 70000}]},
            "subsets[0].ports[0].port",
        ),
        (
            {"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 1}, {"port": 2}]},
            "subsets[0].ports[0].name",
        ),
    ],
)
async def test_invalid_endpoints_are_rejected(
    client: kube.Client, subset: dict[str, Any], field: str
) -> None:
    obj = {"metadata": {"name": "app", "namespace": "default"}, "subsets": [subset]}
    with pytest.raises(kube.Invalid) as error:
        await client.create(ENDPOINTS, obj)
    assert field in str(error.value)
