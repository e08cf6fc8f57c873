"""PoolEndpoints of a pool, and the choice among them for requests without a picker's."""

from __future__ import annotations

import contextlib
import ipaddress
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from gatehouse.dataplane.endpoints import WeightedEndpoint

MAX_PICKED = 16
"""Maximum number of endpoints that a picker can name for one request."""


class PoolEndpoints:
    """Ready endpoints of a pool, and the number of requests that each one serves."""

    def __init__(self) -> None:
        self._by_text: dict[str, WeightedEndpoint] = {}
        self._active: Counter[WeightedEndpoint] = Counter()

    def replace(self, endpoints: Sequence[WeightedEndpoint]) -> None:
        """Replace the endpoints. Requests that are being served stay where they are."""
        self._by_text = {_canonical(endpoint.encoded): endpoint for endpoint in endpoints}

    def picked(self, text: str) -> list[WeightedEndpoint]:
        """Return the endpoints that a picker names, separated by commas.

        Others than those of the pool are left out.
        """
        names = text.split(",", MAX_PICKED)[:MAX_PICKED]
        picked = (self._by_text.get(_canonical(name.strip())) for name in names)
        return list(dict.fromkeys(endpoint for endpoint in picked if endpoint is not None))

    def own_choice(self) -> list[WeightedEndpoint]:
        """Return the endpoint with fewer requests of two random ones; none if there is none."""
        endpoints = list(self._by_text.values())
        two = random.sample(endpoints, min(2, len(endpoints)))
        return [min(two, key=lambda one: self._active[one])] if two else []

    @contextlib.contextmanager
    def counted(self, endpoint: WeightedEndpoint) -> Iterator[None]:
        """Count a request to an endpoint."""
        self._active[endpoint] += 1
        try:
            yield
        finally:
            self._active[endpoint] -= 1
            if not self._active[endpoint]:
                del self._active[endpoint]


def _canonical(text: str) -> str:
    """Return an endpoint in one spelling; unchanged if it is none."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return text
    return f"{address} {port}"
