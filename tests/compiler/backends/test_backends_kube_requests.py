"""Request parsing by the script, compared with recorded results of Kubernetes' own code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fakes.kube_serving import EVERYTHING, World, world
from gatehouse.compiler.ir import kube_apiserver as ir

pytestmark = pytest.mark.process

_TABLE = Path(__file__).parents[1] / "frontends" / "upstream_cluster" / "request_infos.json"
LOGGED = ir.Policy((EVERYTHING,), logged=True)

Found = dict[str, Any] | int


def table() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_TABLE.read_text())["requests"]
    return [each for each in found if _can_come(each["method"], each["target"])]


def _can_come(method: str, target: str) -> bool:
    """Return whether Envoy's HTTP parser accepts a request; it answers all others with 400."""
    printable = target.isascii() and target.isprintable() and " " not in target
    return bool(target) and printable and "#" not in target and method not in ("get", "LIST")


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as found:
        found.upstream.watched = False
        await found.serve(found.cluster(LOGGED))
        yield found


async def understood(one: World, requests: list[tuple[str, str]]) -> list[Found]:
    """Return, for each request, its fields in the log, or the status of its rejection."""
    connection = await one.connect(one.client("alice"))
    found: list[Found] = []
    for method, target in requests:
        before = len(one.upstream.seen)
        answer = await connection.ask(target, method)
        if len(one.upstream.seen) == before:
            found.append(answer.status)
            if answer.headers.get("connection") == "close":
                connection = await one.connect(one.client("alice"))
            continue
        # The parsed request is forwarded byte for byte.
        assert one.upstream.seen[-1][:2] == (method, target)
        found.append({})
    forwarded = sum(isinstance(each, dict) for each in found)
    async with asyncio.timeout(20):
        while len(one.log()) < forwarded:
            await asyncio.sleep(0.05)
    lines = iter(one.log())
    return [next(lines) if isinstance(each, dict) else each for each in found]


async def test_requests_are_parsed_like_kubernetes(one: World) -> None:
    known = table()
    assert len(known) > 200
    found = await understood(one, [(each["method"], each["target"]) for each in known])
    wrong: list[tuple[dict[str, Any], Found]] = []
    for wanted, got in zip(known, found, strict=True):
        refused = "error" in wanted or "\0" in wanted["path"]
        if isinstance(got, int) or refused:
            if not refused or got not in (400, 500):
                wrong.append((wanted, got))
            continue
        resource = wanted.get("resource", "")
        if wanted.get("subresource"):
            resource += "/" + wanted["subresource"]
        keys = "verb", "group", "namespace", "name", "path"
        expected = {"resource": resource, **{key: wanted.get(key, "") for key in keys}}
        actual = {key: got[key] for key in expected}
        if actual != expected:
            wrong.append((wanted, actual))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("target", ["/api/v1/pods#top", "/api/v1/pods/\u00e4"])
async def test_invalid_targets_are_rejected(one: World, target: str) -> None:
    answer = await one.ask(one.client("alice"), target)
    assert answer.status == 400
    assert one.upstream.seen == []
