"""A backend for demonstrations and tests: says who it is and what it was asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web


@contextlib.asynccontextmanager
async def serve(backends: dict[tuple[str, int], str]) -> AsyncIterator[None]:
    """Serve each ``(address, port)`` under the name it is given, for as long as the context."""
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
    async def answer(request: web.Request) -> web.Response:
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
    application.router.add_route("*", "/{path:.*}", answer)
    return application
