"""The console's HTTP server, on the loopback interface."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources

import msgspec
from aiohttp import web

from gatehouse.console.access import LOGIN_PATH, ROOT_PATH, Access
from gatehouse.console.api import ConsoleApi
from gatehouse.console.data_plane_feed import DataPlaneFeed
from gatehouse.console.documents import Documents, read_documents
from gatehouse.console.object_feed import ObjectFeed, ReadScope
from gatehouse.inspection.data_plane_metrics import MetricsReader
from gatehouse.kube.client import Client
from kube_base.runtime.limited_http import LimitedAppRunner

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class RunningConsole(msgspec.Struct, frozen=True):
    """A console that accepts requests."""

    port: int
    login_link: str
    objects: ObjectFeed


@contextlib.asynccontextmanager
async def serve_console(
    client: Client, scope: ReadScope, port: int = 0
) -> AsyncIterator[RunningConsole]:
    """Serve the console for the user of `client`. ``port``: 0 for any free one. Raises OSError."""
    objects = ObjectFeed(client, scope)
    data_planes = DataPlaneFeed(MetricsReader(client), lambda: objects.object_set().pods)
    api, access = ConsoleApi(objects, data_planes), Access()
    application = web.Application(middlewares=[access.middleware])
    application.add_routes([*api.routes(), *_static_routes(), *_document_routes()])
    application.router.add_get(LOGIN_PATH, access.log_in, allow_head=False)
    # The stream of a closed page ends at once, and with it the watches.
    runner = LimitedAppRunner(application, shutdown_timeout=1.0, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        bound: int = runner.addresses[0][1]
        yield RunningConsole(bound, access.login_link(bound), objects)
    finally:
        api.close()
        await runner.cleanup()
        await objects.close()


def _static_routes() -> list[web.RouteDef]:
    """Return a route for each file. There is no route for any other path."""
    routes = [web.get("/", _forward)]
    for file in sorted(resources.files(__package__).joinpath("static").iterdir(), key=str):
        suffix = file.name[file.name.rfind(".") :]
        body, kind = file.read_bytes(), _TYPES[suffix]
        path = ROOT_PATH if file.name == "index.html" else f"{ROOT_PATH}{file.name}"
        routes.append(web.get(path, _serve(body, kind)))
    return routes


def _document_routes() -> list[web.RouteDef]:
    """Return a route for each document."""
    documents = Documents(read_documents())
    return [
        web.get(f"{ROOT_PATH}docs/{path}", _serve_document(documents, path))
        for path in documents.texts
    ]


def _serve_document(
    documents: Documents, path: str
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(text=documents.page(path), content_type="text/html")

    return handle


async def _forward(_: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": ROOT_PATH})


def _serve(body: bytes, kind: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=kind, charset="utf-8")

    return handle
