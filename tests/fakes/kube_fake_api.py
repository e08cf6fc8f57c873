"""A small API server over real sockets that fails on demand, for one resource (ConfigMaps)."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from gatehouse.kube.client import Client
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken, TokenSource

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def status(code: int, reason: str, message: str = "", **headers: str) -> Handler:
    """Answer with a Status object."""

    async def answer(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "reason": reason, "message": message or reason}
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=code, headers=fields)

    return answer


def stream(*parts: bytes, cut: bool = False) -> Handler:
    """Answer a watch with these bytes, then end it: properly, or by dropping the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if cut:
            assert request.transport is not None
            request.transport.close()
        return response

    return answer


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def config_map(name: str, version: int, namespace: str = "ns", **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
    return {"metadata": metadata, "data": data}


class FakeApi:
    """Objects with a history; the next answers can be replaced by ``lists`` and ``watches``."""

    def __init__(self) -> None:
        self.revision = 10
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.history: list[tuple[int, bytes]] = []
        self.lists: deque[Handler] = deque()
        self.watches: deque[Handler] = deque()
        self.others: deque[Handler] = deque()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[Any] = []
        self.tokens: list[str] = []
        self.url = ""
        self._changed = asyncio.Event()

    def put(self, name: str, namespace: str = "ns", **data: str) -> None:
        self.revision += 1
        key = (namespace, name)
        kind = "MODIFIED" if key in self.objects else "ADDED"
        self.objects[key] = config_map(name, self.revision, namespace, **data)
        self._note(line(kind, self.objects[key]))

    def remove(self, name: str, namespace: str = "ns") -> None:
        self.revision += 1
        gone = self.objects.pop((namespace, name))
        gone["metadata"]["resourceVersion"] = str(self.revision)
        self._note(line("DELETED", gone))

    def remove_unseen(self, name: str, namespace: str = "ns") -> None:
        """Remove without any trace in the history, as if it had been compacted away."""
        self.revision += 1
        del self.objects[(namespace, name)]

    def _note(self, event: bytes) -> None:
        self.history.append((self.revision, event))
        self._changed.set()
        self._changed = asyncio.Event()

    def watched_from(self) -> list[str]:
        return [q["resourceVersion"] for _, _, q in self.requests if "watch" in q]

    def listed(self) -> int:
        return sum(m == "GET" and "watch" not in q for m, _, q in self.requests)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.requests.append((request.method, request.path, query))
        self.tokens.append(request.headers.get("Authorization", ""))
        body = await request.read()
        self.bodies.append(json.loads(body) if body else None)
        if self.others:
            return await self.others.popleft()(request)
        if "watch" in query:
            if self.watches:
                return await self.watches.popleft()(request)
            return await self._watch(request, int(query["resourceVersion"]))
        if self.lists:
            return await self.lists.popleft()(request)
        return self._list(query)

    def _list(self, query: dict[str, str]) -> web.Response:
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 0))
        items = [self.objects[key] for key in sorted(self.objects)]
        page = items[start : start + limit] if limit else items[start:]
        metadata = {"resourceVersion": str(self.revision)}
        if start + len(page) < len(items):
            metadata["continue"] = str(start + len(page))
        return web.json_response({"metadata": metadata, "items": page})

    async def _watch(self, request: web.Request, after: int) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            changed = self._changed
            for revision, event in [entry for entry in self.history if entry[0] > after]:
                await response.write(event)
                after = revision
            await changed.wait()


@asynccontextmanager
async def serving(tokens: TokenSource | None = None) -> AsyncIterator[tuple[FakeApi, Client]]:
    """Run a fake and give it with a client connected to it."""
    api = FakeApi()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", api.handle)
    server = TestServer(app, shutdown_timeout=0)
    await server.start_server()
    api.url = str(server.make_url("")).rstrip("/")
    try:
        async with Client(Configuration(server=api.url, tokens=tokens or StaticToken())) as client:
            yield api, client
    finally:
        await server.close()
