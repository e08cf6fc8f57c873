"""JSON API of the console: the reports of the commands, for the objects that the user may read.

docs/tasks/console.md documents the paths. All requests are GET, and none changes anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from gatehouse.console.access import API_PATH, security_headers
from gatehouse.console.data_plane_feed import DataPlaneFeed
from gatehouse.console.object_feed import ObjectFeed
from gatehouse.inspection.errors import InspectionError
from gatehouse.inspection.kube_apiserver_report import report_api_clusters
from gatehouse.inspection.load_balancer_report import report_load_balancers
from gatehouse.inspection.object_set import pods_of_gateway
from gatehouse.inspection.request_explanation import explain_target, parse_request_target
from gatehouse.inspection.request_rates import SOURCES
from gatehouse.inspection.route_report import RouteReport, report_route
from gatehouse.kube import client as kube

_HEARTBEAT_SECONDS = 15.0
"""Period of comments on the event stream, which show that the other end exists."""


class ConsoleProblem(msgspec.Struct, frozen=True, rename="camel"):
    """Body of a response with an error status."""

    error: str


class RouteChange(msgspec.Struct, frozen=True, rename="camel"):
    """Report about a route, if anything that the console watches changed."""

    revision: str
    """Revision of the answer, for the next ``since``."""
    report: RouteReport | None = None
    """None: no object changed since the revision of the request."""


def json_response(value: Any, status: int = 200) -> web.Response:
    """Return a response with a JSON body."""
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ConsoleApi:
    """Handlers of the API."""

    def __init__(self, objects: ObjectFeed, data_planes: DataPlaneFeed) -> None:
        self._objects, self._data_planes = objects, data_planes
        self._compiling = asyncio.Lock()
        self._closed = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        paths: dict[str, _Handler] = {
            "topology": self._topology,
            "problems": self._problems,
            "data-planes": self._versions,
            "traffic": self._traffic,
            "explain": self._explain,
            "route": self._route,
            "kube-apiservers": self._api_clusters,
            "kube-apiserver-traffic": self._api_traffic,
            "load-balancers": self._load_balancers,
            "events": self._events,
        }
        return [
            web.get(f"{API_PATH}/{path}", _with_errors(handler)) for path, handler in paths.items()
        ]

    def close(self) -> None:
        """End the event streams."""
        self._closed.set()

    async def _topology(self, request: web.Request) -> web.Response:
        async with self._objects.used():
            return json_response(self._objects.topology.changes(request.query.get("since", "")))

    async def _problems(self, _: web.Request) -> web.Response:
        async with self._objects.used():
            return json_response(self._objects.topology.with_problems())

    async def _versions(self, _: web.Request) -> web.Response:
        async with self._objects.used():
            return json_response(await self._data_planes.versions())

    async def _traffic(self, request: web.Request) -> web.Response:
        by = request.query.get("by", "route")
        if by not in SOURCES:
            raise InspectionError(f"by must be one of {', '.join(SOURCES)}")
        return await self._measured(lambda: self._data_planes.traffic(by))

    async def _api_clusters(self, _: web.Request) -> web.Response:
        async with self._objects.used():
            return json_response(
                await asyncio.to_thread(report_api_clusters, self._objects.object_set())
            )

    async def _load_balancers(self, _: web.Request) -> web.Response:
        async with self._objects.used():
            return json_response(report_load_balancers(self._objects.object_set()))

    async def _api_traffic(self, _: web.Request) -> web.Response:
        return await self._measured(self._data_planes.api_traffic)

    async def _measured(self, measure: Callable[[], Awaitable[Any]]) -> web.Response:
        async with self._objects.used():
            try:
                return json_response(await measure())
            except ValueError as error:
                message = f"metrics of a data plane are not valid: {error}"
                raise InspectionError(message) from error

    async def _explain(self, request: web.Request) -> web.Response:
        query = request.query
        target = parse_request_target(
            (query.get("method", "") or "GET", query.get("url", ""))
            if query.get("url", "").startswith(("http:", "https:"))
            else (query.get("url", ""),),
            tuple(text for text in query.getall("header", []) if text.strip()),
            query.get("sni") or None,
            query.get("client", ""),
        )
        # One at a time: each compiles all objects.
        async with self._objects.used(), self._compiling:
            objects = await self._objects.with_credentials()
            explanation = await asyncio.to_thread(
                explain_target, objects, target, query.get("gateway", ""), offline=False
            )
            names = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in
                     pods_of_gateway(objects.pods, explanation.gateway)}  # fmt: skip
            planes = tuple(
                plane for plane in await self._data_planes.versions() if plane.pod in names
            )
        return json_response(msgspec.structs.replace(explanation, data_planes=planes))

    async def _route(self, request: web.Request) -> web.Response:
        query = request.query
        key = query.get("kind", ""), query.get("namespace", ""), query.get("name", "")
        # One at a time with explanations: each compiles all objects.
        async with self._objects.used(), self._compiling:
            revision = self._objects.objects_revision
            if revision and query.get("since") == revision:
                return json_response(RouteChange(revision))
            objects = await self._objects.with_credentials()
            report = await asyncio.to_thread(report_route, objects, key)
        return json_response(RouteChange(revision, report))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the revision of the topology, now and after each change, until the page closes."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        security_headers(response)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async with self._objects.used():
                revision = ""
                while not self._closed.is_set():
                    known = revision
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_HEARTBEAT_SECONDS):
                            revision = await self._next(revision)
                    data = msgspec.json.encode({"revision": revision}).decode()
                    line = f"data: {data}\n\n" if revision != known else ": no change\n\n"
                    await response.write(line.encode())
        return response

    async def _next(self, known: str) -> str:
        """Return the next revision, or the known one if the console ends."""
        waiting = asyncio.create_task(self._objects.next_revision(known))
        closed = asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait({waiting, closed}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else known
        finally:
            waiting.cancel()
            closed.cancel()


def _with_errors(handler: _Handler) -> _Handler:
    """Return a handler that answers errors of requests and of the API server as JSON."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except InspectionError as error:
            return json_response(ConsoleProblem(str(error)), status=400)
        except kube.ApiError as error:
            return json_response(ConsoleProblem(str(error)), status=502)

    return handle
