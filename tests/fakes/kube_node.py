"""A kube-apiserver's ways to a running Pod: logs that go on, and commands over a WebSocket.

It speaks HTTP/1.1 alone. The protocol of commands is ``v5.channel.k8s.io``
(k8s.io/apimachinery, pkg/util/remotecommand): the first byte of a message is its channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator

from aiohttp import web

_IN, _OUT, _ERROR, _CLOSED = 0, 1, 3, 255
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "team"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
    "status": {"phase": "Running"},
}
_DISCOVERY = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod",
             "verbs": ["get"]},
        ],
    },
}  # fmt: skip


class Node:
    """One Pod, and the users of requests to it."""

    def __init__(self) -> None:
        self.users: list[str] = []
        """Users of requests except health checks."""
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        """Log of the Pod."""

    def _note(self, request: web.Request) -> None:
        self.users.append(request.headers.get("Impersonate-User", ""))

    async def pod(self, request: web.Request) -> web.Response:
        self._note(request)
        return web.json_response(_POD)

    async def log(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        assert request.query.get("follow") == "true"
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(f"{await self.lines.get()}\n".encode())

    async def command(self, request: web.Request) -> web.WebSocketResponse:
        """Echo input in upper case until it ends."""
        self._note(request)
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
        await socket.prepare(request)
        async for message in socket:
            channel, data = message.data[0], message.data[1:]
            if channel == _IN:
                await socket.send_bytes(bytes([_OUT]) + data.upper())
            elif channel == _CLOSED:
                done = json.dumps({"metadata": {}, "status": "Success"}).encode()
                await socket.send_bytes(bytes([_ERROR]) + done)
                await socket.close()
        return socket


@contextlib.asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[tuple[Node, int]]:
    """Run a node for a while. Yield it and its port."""
    node, app = Node(), web.Application()

    async def ready(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def discovery(request: web.Request) -> web.Response:
        return web.json_response(_DISCOVERY[request.path])

    for path in _DISCOVERY:
        app.router.add_get(path, discovery)
    pod = "/api/v1/namespaces/team/pods/p"
    app.router.add_get("/readyz", ready)
    app.router.add_get(pod, node.pod)
    app.router.add_get(f"{pod}/log", node.log)
    app.router.add_get(f"{pod}/exec", node.command)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield node, runner.addresses[0][1]
    finally:
        await runner.cleanup()
