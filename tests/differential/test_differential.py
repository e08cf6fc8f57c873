"""Differential tests: proxies configured by Gatehouse answer random requests as the oracle."""

from __future__ import annotations

import asyncio
import os
import random
import re
import tempfile
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
import yaml

from differential import oracle, population, traffic
from differential.connections import Seen
from differential.dialects import ENVOY, NGINX, Dialect
from differential.echoes import PADDING, padding
from differential.exchange import Expected, Object, Request
from differential.world import World

pytestmark = [pytest.mark.process, pytest.mark.timeout(3600)]

PAIRS = int(os.environ.get("PAIRS", "6000"))
SEED = int(os.environ.get("SEED", "1"))
EACH, SETS, CLIENTS = 25, 120, 8
"""Requests per set of routes, sets per configuration, concurrent clients."""


def difference(request: Request, expected: Expected, response: Seen) -> str:
    """Return the difference from the expected response; empty if there is none."""
    if response.status != expected.status:
        return f"status {response.status}, expected {expected.status}"
    headers = dict(response.headers)
    if expected.location and _same(headers.get("location", "")) != _same(expected.location):
        return f"location {headers.get('location')!r}, expected {expected.location!r}"
    own = expected.by_backend.get(response.backend.get("service", ""), ({}, expected.response))
    for name, value in own[1].items():
        lines = [v for n, v in response.headers if n == name]
        if value is None and lines:
            return f"response header {name}: {lines}, expected none"
        # Values sent by the backend and added ones are in separate lines.
        if value is not None and not _bytes(",".join(lines)).endswith(_bytes(value)):
            return f"response header {name}: {lines}, expected {value!r}"
    pads = [f"{name}: {value}" for name, value in response.headers if name.startswith("x-pad-")]
    if response.backend and sorted(pads) != sorted(padding(request.header(PADDING))):
        return f"{len(pads)} of the additional headers {request.header(PADDING)}"
    return _at_backend(request, expected, response) if expected.backends else ""


def _at_backend(request: Request, expected: Expected, response: Seen) -> str:
    got = response.backend
    if got["service"] not in expected.backends:
        return f"backend {got['service']}, expected one of {sorted(expected.backends)}"
    if got["method"] != request.method:
        return f"method {got['method']}"
    path, _, query = got["target"].partition("?")
    if expected.path is None and _bytes(got["target"]) != _bytes(request.target):
        return f"target {got['target']!r}, expected as it was sent"
    if expected.path is not None and unquote_to_bytes(_bytes(path)) != expected.path:
        return f"path {path!r}, expected {expected.path!r}"
    if query != expected.query:
        return f"query {query!r}, expected {expected.query!r}"
    result: Object = {}
    for name, value in got["headers"]:
        # Several lines are one, joined by commas (RFC 9110, 5.2).
        result[name] = f"{result[name]},{value}" if name in result else value
    if got["service"] == "calls":
        # A gRPC server does not pass these headers to its handlers.
        result["host"] = expected.host
    if result["host"] != expected.host:
        return f"host {result['host']!r}, expected {expected.host!r}"
    own = expected.by_backend.get(got["service"], (expected.headers, {}))
    for name, value in own[0].items():
        if _bytes(result.get(name) or "") != _bytes(value or ""):
            return f"header {name}: {result.get(name)!r}, expected {value!r}"
    return ""


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _same(location: str) -> bytes:
    """CHOICE: slashes in a redirect may stay doubled as the client wrote them."""
    head, _, query = location.partition("?")
    scheme, _, rest = head.partition("://")
    host, slash, path = rest.partition("/")
    rest = f"{host.lower()}{slash}{path}"
    return unquote_to_bytes(_bytes(f"{scheme}://{re.sub('/+', '/', rest)}?")) + _bytes(query)


async def _round(dialect: Dialect, seed: int, pairs: int) -> tuple[int, list[str]]:
    rng = random.Random(seed)
    sets = [population.route_set(rng, number) for number in range(min(SETS, -(-pairs // EACH)))]
    work = [
        (number, traffic.request_for(rng, number, routes))
        for number, routes in enumerate(sets)
        for _ in range(EACH)
    ]
    wrong: list[str] = []
    unsaid: list[Request] = []
    with tempfile.TemporaryDirectory(prefix="ghd-") as directory:
        world = World(Path(directory), dialect.runner)
        async with world.serving([route for routes in sets for route in routes]):
            queue = list(reversed(work))

            async def client() -> None:
                connection = world.client()
                while queue:
                    number, request = queue.pop()
                    response = await connection.send(request)
                    expected = oracle.answer(
                        sets[number], population.SERVICES, population.LISTENERS, request,
                        patterns_see=dialect.patterns_see,
                    )  # fmt: skip
                    adapted = dialect.adapted(request, expected, response)
                    problem = difference(request, adapted, response) if adapted is not None else ""
                    unsaid.extend([request] if adapted is None else [])
                    if problem:
                        wrong.append(_report(seed, sets[number], request, problem))
                connection.close()

            await asyncio.gather(*(client() for _ in range(CLIENTS)))
    # A proxy must not have many choices, compared with what is specified.
    assert len(unsaid) < len(work) / 3
    return len(work), wrong


def _report(seed: int, routes: list[Object], request: Request, problem: str) -> str:
    text = yaml.safe_dump([{r["metadata"]["name"]: r} for r in routes], allow_unicode=True)
    return f"{problem}\nseed {seed}\n{request}\n{text}"


@pytest.mark.long
@pytest.mark.parametrize("dialect", [NGINX, ENVOY], ids=lambda dialect: dialect.name)
async def test_proxy_answers_as_specified(dialect: Dialect) -> None:
    done, wrong, seed = 0, list[str](), SEED
    while done < PAIRS:
        count, result = await _round(dialect, seed, PAIRS - done)
        done, wrong, seed = done + count, wrong + result, seed + 1
    assert not wrong, f"{len(wrong)} of {done} answers are wrong; the first:\n{wrong[0]}"
