"""The evaluation of requests on the IR answers as the oracle, which both proxies agree with."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from differential import oracle, population, traffic
from differential.dialects import ENVOY, NGINX, Dialect
from differential.exchange import Expected, Object, Request
from differential.world import Addresses, compiled
from gatehouse.compiler.evaluation.answers import AnswerShare, expected_answers
from gatehouse.compiler.evaluation.http_matching import decide_http
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.compiler.ir.gateway import GatewayConfiguration

SETS, REQUESTS = 60, 25

ADDRESSES: Addresses = {
    name: [("192.0.2.1", 8000 + number) for number in range(count)]
    for name, count in population.SERVICES.items()
}


def evaluated(request: Request) -> HttpRequest:
    return HttpRequest(
        request.method, request.asked, request.target, request.port, request.port != 8080,
        request.sni or "", tuple(request.headers),
    )  # fmt: skip


def difference(
    gateway: GatewayConfiguration, request: Request, expected: Expected, dialect: Dialect
) -> str:
    """Return the difference between the evaluation and the oracle; empty if there is none."""
    clusters = {cluster.name: cluster for cluster in gateway.clusters}
    empty = frozenset(name for name, entry in clusters.items() if not entry.endpoints)
    mine = evaluated(request)
    decision = decide_http(gateway, mine, encoded_patterns=dialect is ENVOY)
    answers = expected_answers(decision, mine, empty)
    statuses = {200 if entry.status is None else entry.status for entry in answers} or {0}
    if statuses != {expected.status}:
        return f"{decision.outcome}: {statuses}, expected {expected.status}"
    backends = {clusters[entry.cluster].origin.name for entry in answers if entry.status is None}
    if backends != expected.backends:
        return f"backends {backends}, expected {set(expected.backends)}"
    return _location_difference(answers, expected, request)


def _location_difference(
    answers: tuple[AnswerShare, ...], expected: Expected, request: Request
) -> str:
    if "." in request.target.replace("%2e", ".").replace("%2E", ".") or "//" in request.target:
        # The spelling of paths with dot segments is the choice of a proxy.
        return ""
    (location, *_) = [entry.location for entry in answers] or [""]
    if unquote(location) != unquote(expected.location):
        return f"location {location!r}, expected {expected.location!r}"
    return ""


def exchanges(seed: int) -> Iterator[tuple[GatewayConfiguration, list[Object], Request]]:
    """Yield random requests with the routes that they nearly match."""
    rng = random.Random(seed)
    sets = [population.route_set(rng, number) for number in range(SETS)]
    with tempfile.TemporaryDirectory() as directory:
        routes = [route for entry in sets for route in entry]
        gateway = compiled(routes, ADDRESSES, "", Path(directory))
    for number, entry in enumerate(sets):
        for _ in range(REQUESTS):
            yield gateway, entry, traffic.request_for(rng, number, entry)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dialect", [NGINX, ENVOY], ids=lambda entry: entry.name)
def test_evaluation_answers_as_the_oracle(dialect: Dialect, seed: int) -> None:
    for gateway, routes, request in exchanges(seed):
        expected = oracle.answer(
            routes, population.SERVICES, population.LISTENERS, request,
            patterns_see=dialect.patterns_see,
        )  # fmt: skip
        if dialect is ENVOY and expected.status == 400:
            # Envoy is free to correct a path in place of rejecting it.
            continue
        assert not difference(gateway, request, expected, dialect), request
