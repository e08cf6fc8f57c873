"""Copies of requests are what the backend gets, on both proxies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from differential.proxies import Runner
from fakes import patience
from fakes.authorized_traffic import COPY, served
from fakes.envoy_serving import listening
from fakes.one_route import BACKEND, Object
from fakes.served_objects import RUNNERS

MIRROR = {"type": "RequestMirror", "requestMirror": {"backendRef": COPY}}
SET = {"set": [{"name": "X-Set", "value": "by rule"}]}
CHANGED = {
    "add": [{"name": "X-Set", "value": "by backend"}, {"name": "X-Case", "value": "more"}],
}
HEADERS = {"type": "RequestHeaderModifier", "requestHeaderModifier": SET}


def rewrite(**fields: Any) -> Object:
    """Return a filter that rewrites path or host."""
    return {"type": "URLRewrite", "urlRewrite": fields}


def prefix(value: str) -> Object:
    """Return a filter that replaces the matched prefix."""
    return rewrite(path={"type": "ReplacePrefixMatch", "replacePrefixMatch": value})


FULL = rewrite(hostname="b.example", path={"type": "ReplaceFullPath", "replaceFullPath": "/n w"})
CASES = {
    "unchanged": ((MIRROR,), "/p/a%20b?q=1", "/p/a%20b?q=1", "a.example"),
    "host": ((rewrite(hostname="b.example"), MIRROR), "/p/a?q=1", "/p/a?q=1", "b.example"),
    "full path": ((FULL, MIRROR), "/p/a?q=%20", "/n%20w?q=%20", "b.example"),
    "prefix": ((prefix("/x"), MIRROR), "/p/a?q=1", "/x/a?q=1", "a.example"),
    "prefix behind the mirror": ((MIRROR, prefix("/x")), "/p/a", "/x/a", "a.example"),
    "prefix to root": ((prefix("/"), MIRROR), "/p/a/b", "/a/b", "a.example"),
    "whole prefix to root": ((prefix("/"), MIRROR), "/p", "/", "a.example"),
    "encoded line end": (
        (prefix("/x"), MIRROR), "/p/a%0D%0AX-Bad:%20b", "/x/a%0D%0AX-Bad:%20b", "a.example"
    ),
    "encoded question mark": ((prefix("/x"), MIRROR), "/p/a%3Fb?c", "/x/a%3Fb?c", "a.example"),
    "two mirrors": ((prefix("/x"), MIRROR, MIRROR), "/p/a", "/x/a", "a.example"),
}  # fmt: skip


def joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by name: several lines are one, joined by commas (RFC 9110, 5.2)."""
    result: dict[str, str] = {}
    for name, value in pairs:
        result[name] = f"{result[name]},{value}" if name in result else value
    return result


@contextlib.asynccontextmanager
async def recording(received: list[tuple[str, dict[str, str]]]) -> AsyncIterator[int]:
    """Run a server that appends target and headers of each request. Yield its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
            pairs = (line.partition(":") for line in lines)
            headers = joined((name.lower(), value.strip()) for name, _, value in pairs)
            received.append((first.split()[1], headers))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with listening(answer) as endpoint:
        yield endpoint.port


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_copy_is_the_request_that_the_backend_gets(runner: Runner, tmp_path: Path) -> None:
    copies: list[tuple[str, dict[str, str]]] = []
    rules: list[Object] = []
    for number, (filters, *_) in enumerate(CASES.values()):
        path = {"type": "PathPrefix", "value": "/p"}
        case = {"name": "X-Case", "value": str(number)}
        backend = BACKEND | {
            "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": CHANGED}]
        }
        rules.append(
            {
                "matches": [{"path": path, "headers": [case]}],
                "filters": [HEADERS, *filters],
                "backendRefs": [backend],
            }
        )
    async with (
        recording(copies) as port,
        served(runner, tmp_path, 0, *rules, mirrored=port) as proxy,
    ):
        for number, (name, (filters, sent, target, host)) in enumerate(CASES.items()):
            copies.clear()
            status, _, echo = await proxy.send(sent, X_Case=str(number))
            assert (status, echo["target"]) == (200, target), name
            async with patience.limit():
                while len(copies) < filters.count(MIRROR):
                    await patience.pause()
            backend_headers = joined(echo["headers"])
            assert backend_headers["host"] == host
            for received, headers in copies:
                assert (received, headers["host"]) == (target, host), name
                assert headers["x-set"] == backend_headers["x-set"] == "by rule,by backend"
                assert headers["x-case"] == backend_headers["x-case"] == f"{number},more"
                assert "x-bad" not in headers
