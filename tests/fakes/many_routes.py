"""Tens of thousands of HTTPRoutes of one tenant, a part of them hostile, as the API server stores
them.

The API server admits a few hundred routes a second of a whole installation. So all but the last
ones are written into its database while it does not run.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fakes import hostile_objects
from gatehouse.apis import resources
from kube_api_server.storage import factory

Object = dict[str, Any]

NAMESPACE = "evil"
SHAPES = 200
"""Number of tenants whose routes are the models of all others."""
BATCH = 2_000
"""Number of concurrent writes into the database."""


def routes(seed: int) -> Iterator[Object]:
    """Yield routes without end. Their specs are those of hostile tenants' admitted routes, and
    each has a hostname of its own.
    """
    tenants = (hostile_objects.tenant(number, seed) for number in range(SHAPES))
    models = [raw for one in tenants for raw in one.objects if raw["kind"] == "HTTPRoute"]
    for number, model in enumerate(itertools.cycle(models)):
        route = copy.deepcopy(model)
        route["spec"]["hostnames"] = [f"r{number}.evil.example"]
        route["metadata"] = {"name": f"r{number}", "namespace": NAMESPACE}
        yield route


def stored(route: Object, number: int) -> Object:
    """Return a route with the metadata that the API server gives to new objects."""
    hours, seconds = divmod(number, 3600)
    created = f"2026-01-{1 + hours // 24:02}T{hours % 24:02}:{seconds // 60:02}:{seconds % 60:02}Z"
    metadata = {"uid": str(uuid.uuid4()), "generation": 1, "creationTimestamp": created}
    return route | {"metadata": route["metadata"] | metadata}


async def fill(directory: Path, new: Iterable[Object]) -> None:
    """Write routes into the database of an API server that does not run."""
    store = await factory.open_store(str(directory))
    prefix = f"/{resources.HTTP_ROUTES.group}/{resources.HTTP_ROUTES.plural}/{NAMESPACE}"
    try:
        numbered = enumerate(new)
        while batch := [*itertools.islice(numbered, BATCH)]:
            writes = (
                store.put(f"{prefix}/{route['metadata']['name']}", stored(route, number), 0)
                for number, route in batch
            )
            await asyncio.gather(*writes)
    finally:
        await store.close()
