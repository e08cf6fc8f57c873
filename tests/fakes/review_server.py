"""A kube-apiserver that answers reviews by a rule, and other requests with their headers."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web

IMPERSONATOR = "admin"
"""The only user who may impersonate others."""

FAILING = "failing"
"""User whose impersonation cannot be reviewed: the server answers 500."""

TOKENS: dict[str, dict[str, object]] = {
    "of-alice": {"username": "alice", "groups": ["ops"]},
    "of-team": {"username": "team-a-2", "uid": "7", "extra": {"scopes": ["read", "write"]}},
    "of-account": {
        "username": "system:serviceaccount:n:s",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:n"],
    },
}
"""Users by token. The server rejects other tokens."""

LOST = "lost"
"""Part of paths whose connection ends without a response."""


class ReviewServer:
    """One server. It is ready."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.seen: list[tuple[str, str]] = []
        """Method and path of requests that lost their connection."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in ("/readyz", "/healthz", "/livez"):
            return web.Response(text="ok")
        if request.path.endswith("/subjectaccessreviews"):
            document = await request.json()
            attributes = document["spec"]["resourceAttributes"]
            if attributes["name"] == FAILING:
                return web.json_response({}, status=500)
            allowed = document["spec"]["user"] == IMPERSONATOR
            return web.json_response({**document, "status": {"allowed": allowed}}, status=201)
        if request.path.endswith("/tokenreviews"):
            document = await request.json()
            user = TOKENS.get(document["spec"]["token"])
            status = {"authenticated": True, "user": user} if user else {"authenticated": False}
            return web.json_response({**document, "status": status}, status=201)
        if LOST in request.path:
            self.seen.append((request.method, request.path))
            assert request.transport is not None
            request.transport.abort()
        headers = [[key.lower(), value] for key, value in request.headers.items()]
        return web.json_response({"service": self.name, "headers": headers})

    @contextlib.asynccontextmanager
    async def serving(self, context: ssl.SSLContext) -> AsyncIterator[None]:
        """Serve for a while on a free port."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()
