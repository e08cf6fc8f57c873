"""Statuses of routes that some instances do not serve yet, on NGINX and Envoy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.authority import Authority
from fakes.gateway_estate import ENVOY, NGINX, Estate, endpoints, route, service
from gatehouse.apis import resources
from gatehouse.controller import deferred_status
from gatehouse.inspection.condition_summary import bad_conditions

ACCEPTED = "the route is accepted"


async def condition_with(estate: Estate, name: str, message: str) -> dict[str, Any]:
    """Wait for the condition Accepted of a route with a message."""
    current: dict[str, Any] = {}
    try:
        async with patience.limit():
            while current.get("message") != message:
                obj = await estate.store.get(resources.HTTP_ROUTES, name, "default")
                parents = obj.get("status", {}).get("parents") or [{}]
                conditions = parents[0].get("conditions") or ()
                current = next((item for item in conditions if item["type"] == "Accepted"), {})
                await patience.pause()
    except TimeoutError:
        raise AssertionError(f"{current.get('message')!r}, not {message!r}") from None
    return current


def put_route(estate: Estate, name: str, gateway: str, path: str = "/") -> None:
    estate.store.put(resources.SERVICES, service(name))
    estate.store.put(resources.ENDPOINT_SLICES, endpoints(name, "10.0.0.1"))
    estate.store.put(resources.HTTP_ROUTES, route(name, gateway, name, path))


@pytest.mark.parametrize(("number", "class_name"), [(0, NGINX), (1, ENVOY)], ids=["NGINX", "Envoy"])
async def test_status_says_which_instances_do_not_serve_a_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, class_name: str
) -> None:
    monkeypatch.setattr(deferred_status, "MAX_DEFER_SECONDS", 0.2)
    estate, gateway = Estate(Authority(tmp_path)), f"g{number}"
    async with estate.running(2):
        put_route(estate, "before", gateway)
        await condition_with(estate, "before", ACCEPTED)
        await estate.rest()
        estate.agents.connect(gateway, class_name, 7, hangs=True)
        await estate.rest()
        put_route(estate, "late", gateway)
        waiting = f"not served yet: waiting for 1 of 2 instances of Gateway default/{gateway}"
        late = await condition_with(estate, "late", f"{ACCEPTED}; {waiting}")
        assert (late["status"], late["reason"]) == ("True", "Accepted")
        obj = await estate.store.get(resources.HTTP_ROUTES, "late", "default")
        obj = {**obj, "kind": "HTTPRoute"}
        assert late["observedGeneration"] == obj["metadata"]["generation"]
        assert [entry.type for entry in bad_conditions(obj)] == ["Accepted"]
        # A route that all instances served before has its status unchanged.
        await condition_with(estate, "before", ACCEPTED)
        changed = late["lastTransitionTime"]
        await estate.agents.disconnect(gateway)
        for instance in (0, 7):
            estate.agents.connect(gateway, class_name, instance)
        late = await condition_with(estate, "late", ACCEPTED)
        assert late["lastTransitionTime"] == changed
        assert not len(estate.controller.loop._status_release.overdue)


async def test_deleted_route_leaves_no_overdue_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred_status, "MAX_DEFER_SECONDS", 0.2)
    estate = Estate(Authority(tmp_path))
    async with estate.running(1):
        estate.agents.connect("g0", NGINX, 7, hangs=True)
        put_route(estate, "late", "g0")
        waiting = "not served yet: waiting for 1 of 2 instances of Gateway default/g0"
        await condition_with(estate, "late", f"{ACCEPTED}; {waiting}")
        # The other routes wait too: the instance has confirmed nothing.
        before = len(estate.controller.loop._status_release.overdue)
        estate.store.drop(resources.HTTP_ROUTES, "late", "default")
        await estate.rest()
        assert len(estate.controller.loop._status_release.overdue) == before - 1
