"""What a change of one Gateway costs among many: what it costs among few."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from authority import Authority
from gateway_estate import ENVOY, NGINX, Estate, endpoints, gateway, route, secret

from gatehouse import table
from gatehouse.apis import resources

FEW, MANY = 20, 200

Change = Callable[[], object]


def changes(estate: Estate, kind: str) -> Iterator[tuple[str, str, Change]]:
    """Give what may happen to one Gateway of a class, each with the Gateway's name."""
    number = (NGINX, ENVOY).index(kind)
    yield from _of_one(estate, f"g{number}", kind)
    number += 10_000

    def made() -> None:
        estate.add(number)
        estate.connect(number)

    yield "a new Gateway", f"g{number}", made
    gone = functools.partial(estate.store.drop, resources.GATEWAYS, f"g{number}", "default")
    yield "a Gateway that goes", f"g{number}", gone


def _of_one(estate: Estate, name: str, kind: str) -> Iterator[tuple[str, str, Change]]:
    store, one, renewed = estate.store, f"{name}-r0", estate.pair(f"{name}.example")
    objects = {
        "a route": (resources.HTTP_ROUTES, route(one, name, one, "/other")),
        "endpoints": (resources.ENDPOINT_SLICES, endpoints(one, "10.0.0.1", "10.0.0.2")),
        "a certificate": (resources.SECRETS, secret(f"{name}-tls", renewed)),
        "a listener": (resources.GATEWAYS, gateway(name, kind, 8080, 8081)),
    }
    for what, (resource, obj) in objects.items():
        yield what, name, functools.partial(store.put, resource, obj)
    yield "an agent", name, lambda: estate.connect(int(name[1:]), first=1)


async def costs(kind: str, gateways: int, directory: Path) -> dict[str, int]:
    """Give the steps of each change among so many Gateways, of whose agents no other is told."""
    estate, found = Estate(Authority(directory)), {}
    async with estate.running(gateways):
        for what, name, change in changes(estate, kind):
            estate.agents.told.clear()
            estate.store.listed = 0
            found[what] = await estate.steps_of(change)
            told = {} if what.endswith("goes") else {f"default/{name}"}
            assert set(estate.agents.told) == set(told), what
            assert estate.store.listed == 0, what
    return found


@pytest.fixture(autouse=True)
def same_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut tables alike in every run: Python's hashes of text differ, and chunks' sizes by them."""

    def digest(key: object) -> int:
        return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:4])

    monkeypatch.setattr(table, "hash", digest, raising=False)


@pytest.mark.parametrize("kind", [NGINX, ENVOY])
async def test_a_change_of_one_gateway_costs_the_same_among_many(kind: str, tmp_path: Path) -> None:
    for each in (FEW, MANY):
        (tmp_path / str(each)).mkdir()
    few, many = [await costs(kind, each, tmp_path / str(each)) for each in (FEW, MANY)]
    ratios = {what: round(many[what] / few[what], 2) for what in few}
    # What grows is a look at each chunk of tables: that of all objects with a status, above all.
    assert max(ratios.values()) < 1.5, ratios
