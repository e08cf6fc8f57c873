"""Metrics of the endpoints of backends: names and help for all proxies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gatehouse.agent.request_families import MAX_KEYS
from gatehouse.runtime.prometheus import Sample

_KNOWN = "gatehouse_backend_endpoints"
_KNOWN_HELP = "Endpoints of a backend that the proxy knows."

_HEALTHY = "gatehouse_backend_healthy_endpoints"
_HEALTHY_HELP = (
    "Endpoints of a backend that the proxy counts as healthy. Not with open-source NGINX."
)


class EndpointCounts(NamedTuple):
    """Numbers of endpoints of a backend. `healthy` is None if the proxy does not tell."""

    known: int
    healthy: int | None


def backend_samples(backends: Mapping[str, EndpointCounts]) -> Iterator[Sample]:
    """Yield the metrics of a limited number of backends, those without endpoints first."""
    chosen = sorted(backends, key=lambda name: (_usable(backends[name]) > 0, name))[:MAX_KEYS]
    for name in chosen:
        counts, labels = backends[name], {"backend": name}
        yield Sample(_KNOWN, _KNOWN_HELP, counts.known, labels=labels)
        if counts.healthy is not None:
            yield Sample(_HEALTHY, _HEALTHY_HELP, counts.healthy, labels=labels)


def _usable(counts: EndpointCounts) -> int:
    return counts.known if counts.healthy is None else counts.healthy
