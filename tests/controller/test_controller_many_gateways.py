"""The cost of a change of one Gateway does not depend on the number of Gateways."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from fakes.authority import Authority
from fakes.gateway_estate import (
    ENVOY,
    NGINX,
    Estate,
    changes,
    endpoints,
    gateway,
    memory_with,
    route,
)
from fakes.stable_hash import cut_tables_alike
from gatehouse.apis import resources
from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller import absences

FEW, MANY = 20, 200

MAX_ROUTE_STEPS = 18_500
"""Maximum number of steps for a change of one route, however many Gateways exist."""

MAX_MEMORY_BYTES = 250 * 1024
"""Maximum memory in bytes for each Gateway more. Runs differ by some 10 KiB."""


async def costs(kind: str, gateways: int, directory: Path) -> dict[str, int]:
    """Return the steps of each change among so many Gateways; agents of others get nothing.

    Two of those others have as many agents as there are Gateways.
    """
    estate, steps = Estate(Authority(directory)), {}
    async with estate.running(gateways):
        for number in (2, 3):
            estate.connect(number, first=1, count=gateways)
        await estate.rest()
        for what, name, change in changes(estate, kind):
            estate.agents.told.clear()
            estate.store.listed = 0
            steps[what] = await estate.steps_of(change)
            names_told = {} if what.endswith("goes") else {f"default/{name}"}
            assert set(estate.agents.told) == set(names_told), what
            assert estate.store.listed == 0, what
    return steps


@pytest.fixture(autouse=True)
def log_as_installed() -> Iterator[None]:
    """Skip debug messages, as in the default configuration of the programs."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def same_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_tables_alike(monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("kind", [NGINX, ENVOY])
async def test_cost_of_gateway_change_is_independent_of_gateway_count(
    kind: str, tmp_path: Path
) -> None:
    for number in (FEW, MANY):
        (tmp_path / str(number)).mkdir()
    few, many = [await costs(kind, number, tmp_path / str(number)) for number in (FEW, MANY)]
    ratios = {what: round(many[what] / few[what], 2) for what in few}
    assert max(ratios.values()) < 1.2, ratios
    assert many["a route"] <= MAX_ROUTE_STEPS


@pytest.mark.long
async def test_memory_for_each_gateway_is_limited(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    few, many = [await memory_with(number, authority) for number in (10, 60)]
    assert (many - few) / 50 <= MAX_MEMORY_BYTES


def change(estate: Estate, chance: random.Random) -> None:
    """Do to one of a few Gateways what users may do."""
    store, number = estate.store, chance.randrange(4)
    name, kind = f"g{number}", estate.class_of(chance.randrange(2))
    match chance.randrange(7):
        case 0 if ("Gateway", "default", name) in store.objects:
            store.drop(resources.GATEWAYS, name, "default")
        case 0 | 1:
            ports = chance.sample((8080, 8081, 8082), 2)
            store.put(resources.GATEWAYS, gateway(name, kind, *ports))
        case 2 | 3:
            path, parent = chance.choice(("/", "/a", "/b")), f"g{chance.randrange(4)}"
            store.put(resources.HTTP_ROUTES, route(f"{name}-r0", parent, f"{name}-r1", path))
        case 4:
            slices = endpoints(f"{name}-r1", f"10.0.0.{chance.randrange(1, 9)}")
            store.put(resources.ENDPOINT_SLICES, slices)
        case 5:
            estate.agents.connect(name, kind, chance.randrange(3))
        case 6:
            estate.own(kind, chance.choice((*gateway_api.CONTROLLERS, "somebody.else")))


def stated(estate: Estate) -> dict[object, object]:
    """Return all statuses, the provisioned objects of Gateways, and what each is served."""
    store, delivery = estate.store, estate.controller.delivery
    state: dict[object, object] = {
        key: (_timeless(obj.get("status")), obj.get("spec"), obj["metadata"].get("labels"))
        for key, obj in store.objects.items()
    }
    for number in range(4):
        name = f"default/g{number}"
        state[name] = delivery.report(name).desired, delivery.envoys.report(name).desired
    return state


def _timeless(status: Any) -> Any:
    match status:
        case dict():
            dated = ("lastTransitionTime", "observedGeneration")
            return {
                key: _timeless(value) for key, value in status.items() if value and key not in dated
            }
        case list():
            return [_timeless(entry) for entry in status]
    return status or {}


@pytest.mark.parametrize("seed", [0, 4, 14, 25])
async def test_state_after_random_changes_equals_state_of_fresh_controller(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fresh controller has never seen the instances that may connect again.
    monkeypatch.setattr(absences, "RETURN_SECONDS", 0.0)
    authority, chance = Authority(tmp_path), random.Random(seed)
    estate, fresh = Estate(authority), Estate(authority)
    async with estate.running(3):
        for _ in range(30):
            for _ in range(chance.randrange(1, 4)):
                change(estate, chance)
            await asyncio.sleep(chance.choice((0, 0.02, 0.15)))
        for kind in (NGINX, ENVOY):
            estate.own(kind)
        await estate.rest()
        async with fresh.running(0, like=estate):
            assert stated(fresh) == stated(estate)


def made_for(estate: Estate, name: str) -> set[str]:
    """Return the kinds of the existing objects of a Gateway's data plane."""
    return {
        kind
        for (kind, _, _), obj in estate.store.objects.items()
        if any(owner["name"] == name for owner in obj["metadata"].get("ownerReferences", ()))
    }


async def test_late_objects_of_deleted_gateway_are_pruned(
    tmp_path: Path,
) -> None:
    estate = Estate(Authority(tmp_path))
    async with estate.running(2):
        store = estate.store
        service = store.objects["Service", "default", f"g0-{NGINX}"]
        store.listed = 0
        store.drop(resources.GATEWAYS, "g0", "default")
        await estate.rest()
        assert (made_for(estate, "g0"), len(made_for(estate, "g1"))) == (set(), 4)
        store.put(resources.SERVICES, service)
        await estate.rest()
        assert not made_for(estate, "g0")
        assert store.listed == 0


async def test_owned_objects_stay_without_class_and_are_pruned_on_class_change(
    tmp_path: Path,
) -> None:
    estate = Estate(Authority(tmp_path))
    async with estate.running(2):
        store = estate.store
        names_of_objects = {name: made_for(estate, name) for name in ("g0", "g1")}
        store.drop(resources.GATEWAY_CLASSES, NGINX)
        await estate.rest()
        store.put(resources.SERVICES, store.objects["Service", "default", f"g0-{NGINX}"])
        await estate.rest()
        assert {name: made_for(estate, name) for name in names_of_objects} == names_of_objects
        estate.own(NGINX)
        await estate.rest()
        estate.own(NGINX, "somebody.else")
        await estate.rest()
        assert {name: made_for(estate, name) for name in names_of_objects} == {
            **names_of_objects,
            "g0": set(),
        }
