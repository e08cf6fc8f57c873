"""EndpointSlices of the API server for Services with a selector."""

from __future__ import annotations

from fakes import patience
from fakes.patience import until_equal
from gatehouse.apis.resources import ENDPOINT_SLICES, SERVICES
from gatehouse.kube import client as kube

NAMES = [f"service-{number}" for number in range(8)]


async def _counts(client: kube.Client) -> tuple[int, int]:
    """Return the number of Services of the test and of their slices."""
    services = (await client.list(SERVICES, "default")).items
    slices = (await client.list(ENDPOINT_SLICES, "default")).items
    named = [service for service in services if service["metadata"]["name"] in NAMES]
    labels = [
        entry["metadata"].get("labels", {}).get("kubernetes.io/service-name") for entry in slices
    ]
    return len(named), len([label for label in labels if label in NAMES])


async def _until(client: kube.Client, expected: tuple[int, int]) -> None:
    await until_equal(lambda: _counts(client), expected)


async def test_foreground_deleted_services_and_slices_are_removed(client: kube.Client) -> None:
    """A slice that is deleted before its Service is not created again."""
    for name in NAMES:
        spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
        await client.create(
            SERVICES, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        )
    await _until(client, (len(NAMES), len(NAMES)))
    for name in NAMES:
        await client.delete(SERVICES, name, "default", propagation="Foreground")
    await _until(client, (0, 0))


async def test_services_with_long_similar_names_have_distinct_slices(
    client: kube.Client,
) -> None:
    names = [f"{'a' * 60}-{number}" for number in range(2)]
    for name in names:
        spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
        metadata = {"name": name, "namespace": "default"}
        await client.create(SERVICES, {"metadata": metadata, "spec": spec})

    async def labels() -> set[str]:
        slices = (await client.list(ENDPOINT_SLICES, "default")).items
        return {entry["metadata"]["labels"]["kubernetes.io/service-name"] for entry in slices}

    async with patience.limit():
        while not await labels() >= set(names):
            await patience.pause()
