"""Echo backend for demonstrations and tests: responds with its name and the request."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web


@contextlib.asynccontextmanager
async def serve_echo(backends: dict[tuple[str, int], str]) -> AsyncIterator[None]:
    """Serve a backend on each ``(address, port)`` with the given name until the context exits."""
    runners: list[web.AppRunner] = []
    try:
        for (address, port), name in backends.items():
            runner = web.AppRunner(_application(name, f"{address}:{port}"), access_log=None)
            await runner.setup()
            runners.append(runner)
            await web.TCPSite(runner, address, port).start()
        yield
    finally:
        for runner in runners:
            await runner.cleanup()


def _application(name: str, endpoint: str) -> web.Application:
    async def echo(request: web.Request) -> web.Response:
        body = await request.read()
        return web.json_response(
            {
                "backend": name,
                "endpoint": endpoint,
                "method": request.method,
                "path": request.raw_path,
                "headers": {key.lower(): value for key, value in request.headers.items()},
                "body_bytes": len(body),
            },
            headers={"X-Backend": name, "X-Endpoint": endpoint},
        )

    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", echo)
    return application
