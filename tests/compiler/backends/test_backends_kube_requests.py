"""Request parsing by the script, compared with recorded results of Kubernetes' own code."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fakes import patience
from fakes.kube_serving import EVERYTHING, World, world
from gatehouse.compiler.ir import kube_apiserver as ir

pytestmark = pytest.mark.process

_TABLE = Path(__file__).parents[1] / "frontends" / "upstream_cluster" / "request_infos.json"
LOGGED = ir.DispatchPolicy((EVERYTHING,), logged=True)

Found = dict[str, Any] | int


def table() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(_TABLE.read_text())["requests"]
    return [entry for entry in entries if _can_come(entry["method"], entry["target"])]


def _can_come(method: str, target: str) -> bool:
    """Return whether Envoy's HTTP parser accepts a request; it answers all others with 400."""
    printable = target.isascii() and target.isprintable() and " " not in target
    return bool(target) and printable and "#" not in target and method not in ("get", "LIST")


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as proxy:
        proxy.upstream.watched = False
        await proxy.serve(proxy.cluster(LOGGED))
        yield proxy


async def understood(one: World, requests: list[tuple[str, str]]) -> list[Found]:
    """Return, for each request, its fields in the log, or the status of its rejection."""
    connection = await one.connect(one.client("alice"))
    result: list[Found] = []
    for method, target in requests:
        before = len(one.upstream.seen)
        answer = await connection.ask(target, method)
        if len(one.upstream.seen) == before:
            result.append(answer.status)
            if answer.headers.get("connection") == "close":
                connection = await one.connect(one.client("alice"))
            continue
        # The parsed request is forwarded byte for byte.
        assert one.upstream.seen[-1][:2] == (method, target)
        result.append({})
    forwarded = sum(isinstance(outcome, dict) for outcome in result)
    await patience.until(lambda: len(one.log()) >= forwarded)
    lines = iter(one.log())
    return [next(lines) if isinstance(outcome, dict) else outcome for outcome in result]


async def test_requests_are_parsed_like_kubernetes(one: World) -> None:
    known = table()
    assert len(known) > 200
    outcomes = await understood(one, [(entry["method"], entry["target"]) for entry in known])
    wrong: list[tuple[dict[str, Any], Found]] = []
    for parsed, got in zip(known, outcomes, strict=True):
        refused = "error" in parsed or "\0" in parsed["path"]
        if isinstance(got, int) or refused:
            if not refused or got not in (400, 500):
                wrong.append((parsed, got))
            continue
        resource = parsed.get("resource", "")
        if parsed.get("subresource"):
            resource += "/" + parsed["subresource"]
        keys = "verb", "group", "namespace", "name", "path"
        expected = {"resource": resource, **{key: parsed.get(key, "") for key in keys}}
        actual = {key: got[key] for key in expected}
        if actual != expected:
            wrong.append((parsed, actual))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("target", ["/api/v1/pods#top", "/api/v1/pods/\u00e4"])
async def test_invalid_targets_are_rejected(one: World, target: str) -> None:
    answer = await one.ask(one.client("alice"), target)
    assert answer.status == 400
    assert one.upstream.seen == []
