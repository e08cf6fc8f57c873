"""ResourceQuotas for what Pods and volume claims request, at the embedded API server.

Who: a tenant with permission to create Pods and volume claims in one namespace. Through what:
requests and limits of all containers, limits without requests, Pods without amounts, Pods that no
scope covers. What must hold: the sums of a quota are never exceeded, and its status has them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.inprocess import Server
from fakes.patience import until_equal
from gatehouse.standalone.state_directory import State

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.raw() as session:
        yield session


async def create(http: aiohttp.ClientSession, path: str, name: str, body: Any) -> tuple[int, str]:
    async with http.post(path, json={"metadata": {"name": name}, **body}) as response:
        answer = await response.json()
        return response.status, answer.get("message", "")


async def set_quota(http: aiohttp.ClientSession, name: str, hard: Any, **spec: Any) -> None:
    status, message = await create(http, QUOTAS, name, {"spec": {"hard": hard, **spec}})
    assert status == 201, message


async def use(http: aiohttp.ClientSession, name: str, expected: dict[str, str]) -> None:
    """Wait until the status of the quota has this use."""

    async def used() -> Any:
        async with http.get(f"{QUOTAS}/{name}") as response:
            return ((await response.json()).get("status") or {}).get("used")

    await until_equal(used, expected)


def pod(
    requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a Pod with one container."""
    resources = {"requests": requests or {}, "limits": limits or {}}
    container = {"name": "c", "image": "i", "resources": resources}
    return {"spec": {"containers": [container], **spec}}


async def test_sums_of_requests_and_limits_are_limited(admin: aiohttp.ClientSession) -> None:
    hard = {
        "cpu": "1",
        "requests.memory": "500Mi",
        "limits.cpu": "2",
        "ephemeral-storage": "50Gi",
        "requests.example.com/gpu": "3",
        "hugepages-2Mi": "4Mi",
    }
    await set_quota(admin, "q", hard)
    await use(admin, "q", dict.fromkeys(hard, "0"))
    requests = {
        "cpu": "500m",
        "memory": "252Mi",
        "ephemeral-storage": "30Gi",
        "example.com/gpu": "2",
        "hugepages-2Mi": "2Mi",
    }
    assert (await create(admin, PODS, "a", pod(requests, {"cpu": "1"}))) == (201, "")
    await use(
        admin,
        "q",
        {
            "cpu": "500m",
            "requests.memory": "252Mi",
            "limits.cpu": "1",
            "ephemeral-storage": "30Gi",
            "requests.example.com/gpu": "2",
            "hugepages-2Mi": "2Mi",
        },
    )
    for name, amount, message in (
        ("cpu", "600m", "requested: cpu=600m, used: cpu=500m, limited: cpu=1"),
        ("memory", "300Mi", "requested: requests.memory=300Mi, used: requests.memory=252Mi"),
        ("ephemeral-storage", "30Gi", "requested: ephemeral-storage=30Gi"),
        ("example.com/gpu", "2", "requested: requests.example.com/gpu=2"),
    ):
        small = {"cpu": "100m", "memory": "1Mi"}
        status, answer = await create(
            admin, PODS, "b", pod({**small, name: amount}, {"cpu": "600m"})
        )
        assert (status, message in answer) == (403, True), answer
    async with admin.delete(f"{PODS}/a"):
        pass
    await use(admin, "q", dict.fromkeys(hard, "0"))


async def test_limit_without_a_request_is_a_request(admin: aiohttp.ClientSession) -> None:
    await set_quota(admin, "q", {"requests.cpu": "1"})
    assert (await create(admin, PODS, "a", pod(limits={"cpu": "800m"})))[0] == 201
    assert (await create(admin, PODS, "b", pod(limits={"cpu": "800m"})))[0] == 403
    await use(admin, "q", {"requests.cpu": "800m"})


async def test_container_without_a_limited_amount_is_refused(admin: aiohttp.ClientSession) -> None:
    await set_quota(admin, "q", {"cpu": "1", "limits.memory": "1Gi", "ephemeral-storage": "1Gi"})
    status, message = await create(admin, PODS, "a", pod())
    assert status == 403
    assert message.endswith("failed quota: q: must specify cpu for: c; limits.memory for: c")


async def test_init_containers_count_beside_those_that_they_precede(
    admin: aiohttp.ClientSession,
) -> None:
    await set_quota(admin, "q", {"cpu": "10"})

    def container(name: str, cpu: str, **rest: Any) -> dict[str, Any]:
        return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}, **rest}

    init = [
        container("first", "3"),
        container("sidecar", "1", restartPolicy="Always"),
        container("last", "4"),
    ]
    spec = {"containers": [container("c", "2")], "initContainers": init, "overhead": {"cpu": "1"}}
    assert (await create(admin, PODS, "a", {"spec": spec}))[0] == 201
    await use(admin, "q", {"cpu": "6"})


SCOPES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"scopes": ["BestEffort"]}, pod(), pod({"cpu": "1"})),
    ({"scopes": ["NotBestEffort"]}, pod(limits={"memory": "1Gi"}), pod()),
    ({"scopes": ["Terminating"]}, pod(activeDeadlineSeconds=60), pod()),
    ({"scopes": ["NotTerminating"]}, pod(), pod(activeDeadlineSeconds=60)),
    (
        {"scopes": ["CrossNamespacePodAffinity"]},
        pod(
            affinity={
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "region", "namespaces": ["other"]}
                    ]
                }
            }
        ),
        pod(),
    ),
    (
        {
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
                ]
            }
        },
        pod(priorityClassName="high"),
        pod(priorityClassName="low"),
    ),
    (
        {
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}
                ]
            }
        },
        pod(priorityClassName="low"),
        pod(priorityClassName="high"),
    ),
    (
        {
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]
            }
        },
        pod(priorityClassName="low"),
        pod(),
    ),
]


@pytest.mark.parametrize(("scope", "counted", "other"), SCOPES)
async def test_scopes_select_the_pods_that_count(
    admin: aiohttp.ClientSession, scope: Any, counted: Any, other: Any
) -> None:
    await set_quota(admin, "q", {"pods": "1"}, **scope)
    assert (await create(admin, PODS, "other", other))[0] == 201
    await use(admin, "q", {"pods": "0"})
    assert (await create(admin, PODS, "counted", counted))[0] == 201
    await use(admin, "q", {"pods": "1"})
    assert (await create(admin, PODS, "more", counted))[0] == 403
    assert (await create(admin, PODS, "another", other))[0] == 201


def volume_quota(operator: str, *classes: str) -> dict[str, Any]:
    """Return the selector of a quota by VolumeAttributesClass."""
    requirement: dict[str, Any] = {"scopeName": "VolumeAttributesClass", "operator": operator}
    if classes:
        requirement |= {"values": list(classes)}
    return {"matchExpressions": [requirement]}


def volume(class_name: str | None = None) -> dict[str, Any]:
    """Return a PersistentVolumeClaim of 1Gi."""
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    spec["resources"] = {"requests": {"storage": "1Gi"}}
    return {"spec": spec | ({"volumeAttributesClassName": class_name} if class_name else {})}


@pytest.mark.parametrize(
    ("selector", "counted", "other"),
    [
        (volume_quota("In", "gold"), "gold", "silver"),
        (volume_quota("NotIn", "gold"), "silver", "gold"),
        (volume_quota("NotIn", "gold"), None, "gold"),
        (volume_quota("Exists"), "gold", None),
        (volume_quota("DoesNotExist"), None, "gold"),
    ],
)
async def test_quota_counts_volume_claims_of_a_class(
    admin: aiohttp.ClientSession, selector: Any, counted: str | None, other: str | None
) -> None:
    hard = {"persistentvolumeclaims": "1", "requests.storage": "5Gi"}
    await set_quota(admin, "q", hard, scopeSelector=selector)
    assert (await create(admin, CLAIMS, "other", volume(other)))[0] == 201
    await use(admin, "q", {"persistentvolumeclaims": "0", "requests.storage": "0"})
    assert (await create(admin, CLAIMS, "one", volume(counted)))[0] == 201
    await use(admin, "q", {"persistentvolumeclaims": "1", "requests.storage": "1Gi"})
    status, message = await create(admin, CLAIMS, "two", volume(counted))
    assert (status, "exceeded quota: q" in message) == (403, True)
    async with admin.delete(f"{CLAIMS}/one") as response:
        assert response.status == 200
    await use(admin, "q", {"persistentvolumeclaims": "0", "requests.storage": "0"})


async def test_volume_claim_counts_for_its_requested_and_its_current_class(
    admin: aiohttp.ClientSession,
) -> None:
    for name in ("gold", "silver"):
        hard = {"persistentvolumeclaims": "1"}
        await set_quota(admin, name, hard, scopeSelector=volume_quota("In", name))
    assert (await create(admin, CLAIMS, "one", volume("gold")))[0] == 201
    await use(admin, "silver", {"persistentvolumeclaims": "0"})

    async def change(path: str, body: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        async with admin.patch(f"{CLAIMS}/{path}", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()

    await change("one/status", {"status": {"currentVolumeAttributesClassName": "gold"}})
    await change("one", {"spec": {"volumeAttributesClassName": "silver"}})
    await use(admin, "silver", {"persistentvolumeclaims": "1"})
    await use(admin, "gold", {"persistentvolumeclaims": "1"})
    await change("one/status", {"status": {"currentVolumeAttributesClassName": "silver"}})
    await use(admin, "gold", {"persistentvolumeclaims": "0"})
    await use(admin, "silver", {"persistentvolumeclaims": "1"})


async def test_quota_without_a_scope_counts_claims_of_all_classes(
    admin: aiohttp.ClientSession,
) -> None:
    await set_quota(admin, "q", {"persistentvolumeclaims": "2"})
    for name, class_name in (("one", "gold"), ("two", None)):
        assert (await create(admin, CLAIMS, name, volume(class_name)))[0] == 201
    await use(admin, "q", {"persistentvolumeclaims": "2"})
    assert (await create(admin, CLAIMS, "three", volume("gold")))[0] == 403


async def test_scopes_of_a_quota_cannot_change(admin: aiohttp.ClientSession) -> None:
    await set_quota(admin, "q", {"pods": "1"}, scopes=["Terminating"])
    headers = {"Content-Type": "application/merge-patch+json"}
    body = {"spec": {"scopes": ["NotTerminating"]}}
    async with admin.patch(f"{QUOTAS}/q", json=body, headers=headers) as response:
        assert (response.status, "field is immutable" in await response.text()) == (422, True)


async def test_storage_of_volume_claims_is_limited_by_class(admin: aiohttp.ClientSession) -> None:
    gold = "gold.storageclass.storage.k8s.io"
    hard = {
        "persistentvolumeclaims": "3",
        "requests.storage": "3Gi",
        f"{gold}/requests.storage": "1Gi",
        f"{gold}/persistentvolumeclaims": "2",
    }
    await set_quota(admin, "q", hard)

    def claim(size: str, storage_class: str) -> dict[str, Any]:
        resources = {"requests": {"storage": size}}
        modes = ["ReadWriteOnce"]
        spec = {"accessModes": modes, "resources": resources, "storageClassName": storage_class}
        return {"spec": spec}

    assert (await create(admin, CLAIMS, "a", claim("1Gi", "gold")))[0] == 201
    status, message = await create(admin, CLAIMS, "b", claim("1Gi", "gold"))
    assert (status, f"used: {gold}/requests.storage=1Gi" in message) == (403, True), message
    assert (await create(admin, CLAIMS, "c", claim("2Gi", "iron")))[0] == 201
    await use(
        admin,
        "q",
        {
            "persistentvolumeclaims": "2",
            "requests.storage": "3Gi",
            f"{gold}/requests.storage": "1Gi",
            f"{gold}/persistentvolumeclaims": "1",
        },
    )


async def test_devices_of_resource_claims_are_limited_by_class(
    admin: aiohttp.ClientSession,
) -> None:
    gpus, cards = (f"{name}.deviceclass.resource.k8s.io/devices" for name in ("gpu", "card"))
    await set_quota(
        admin, "q", {"count/resourceclaims.resource.k8s.io": "3", gpus: "3", cards: "40"}
    )
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"

    def claim(*choices: dict[str, Any]) -> dict[str, Any]:
        named = [{"name": f"c{index}", **choice} for index, choice in enumerate(choices)]
        exactly = {"name": "a", "exactly": choices[0]}
        request = exactly if len(choices) == 1 else {"name": "a", "firstAvailable": named}
        return {"spec": {"devices": {"requests": [request]}}}

    gpu = {"deviceClassName": "gpu", "count": 2}
    every_card = {"deviceClassName": "card", "allocationMode": "All"}
    assert (await create(admin, path, "a", claim(gpu)))[0] == 201
    status, message = await create(admin, path, "b", claim(gpu))
    assert (status, f"used: {gpus}=2" in message) == (403, True), message
    # Any choice may be allocated: each class counts as if it were the one.
    one_gpu = {"deviceClassName": "gpu"}
    assert (await create(admin, path, "c", claim(one_gpu, every_card)))[0] == 201
    await use(admin, "q", {"count/resourceclaims.resource.k8s.io": "2", gpus: "3", cards: "32"})
