"""The REST API."""

from __future__ import annotations

import contextlib
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from fakes.durations import be_slow
from fakes.nginx_plus.faults import Fault
from fakes.nginx_plus.model import ApiError, Keyval, Plus, Upstream

VERSIONS = tuple(range(1, 10))

HREF = "https://nginx.org/en/docs/http/ngx_http_api_module.html"

MAX_BODY_BYTES = 16 << 10
"""``client_body_buffer_size``; what is larger is answered 413."""

ROOT = ("nginx", "processes", "connections", "slabs", "http", "stream", "resolvers", "ssl")
HTTP = ("requests", "server_zones", "location_zones", "caches", "limit_conns", "limit_reqs")
STREAM = ("server_zones", "limit_conns", "keyvals", "zone_sync", "upstreams")
SINCE = {"location_zones": 5, "resolvers": 5, "limit_conns": 6, "limit_reqs": 6}
"""The version of the API in which an endpoint appeared."""


class Call(msgspec.Struct, frozen=True):
    """A request that was answered; path behind the version; status 0: it was cut off."""

    method: str
    path: str
    status: int
    body: Any = None


class FakePlus:
    """Serves the API of one :class:`Plus` under ``prefix``."""

    def __init__(self, plus: Plus, *, prefix: str = "/api", authorization: str = "") -> None:
        """``authorization``: what that header must be, where another part of NGINX checks it."""
        self.plus = plus
        self.faults: list[Fault] = []
        self.calls: list[Call] = []
        self.before: Callable[[], None] = lambda: None
        """Called before a request is looked at."""
        self.after: Callable[[Call], None] = lambda _: None
        """Called with each call that was answered."""
        self._prefix, self._authorization = prefix, authorization
        self._runner: web.AppRunner | None = None

    @contextlib.asynccontextmanager
    async def serving(
        self, unix: Path | None = None, tls: ssl.SSLContext | None = None, port: int = 0
    ) -> AsyncIterator[str]:
        """Serve on a Unix socket, or on a port of 127.0.0.1. Yield the address of the API."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        try:
            if unix is not None:
                await web.UnixSite(runner, str(unix)).start()
                yield f"http://nginx{self._prefix}"
            else:
                await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
                scheme = "https" if tls else "http"
                yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}{self._prefix}"
        finally:
            await runner.cleanup()

    def change_calls(self) -> list[Call]:
        """Return the calls that request a change."""
        return [call for call in self.calls if call.method != "GET"]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.before()
        path = request.path.removeprefix(self._prefix)
        if self._authorization and request.headers.get("Authorization") != self._authorization:
            return _page(401, "Authorization Required")
        if not request.path.startswith(self._prefix) or path[:1] not in ("", "/"):
            return _page(404, "Not Found")
        rest = "/" + path.lstrip("/").partition("/")[2]
        fault = next(
            (candidate for candidate in self.faults if candidate.takes(request.method, rest)), None
        )
        if fault is not None:
            await be_slow(fault.delay)
        raw = await request.read()
        answer = None
        if fault is None or fault.after or not (fault.status or fault.cut):
            answer = self._answer(request, path, raw)
        if fault is not None and fault.cut:
            self._note(Call(request.method, rest, 0, _decoded(raw)))
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if fault is not None and fault.status:
            answer = _faulty(fault)
        assert answer is not None
        self._note(Call(request.method, rest, answer.status, _decoded(raw)))
        return answer

    def _note(self, call: Call) -> None:
        self.calls.append(call)
        self.after(call)

    def _answer(self, request: web.Request, path: str, raw: bytes) -> web.Response:
        names = [name for name in path.split("/") if name]
        version = int(names[0]) if names and names[0].isdecimal() else 0
        if len(raw) > MAX_BODY_BYTES:
            return _page(413, "Request Entity Too Large")
        try:
            if not names:
                return _json(200, list(VERSIONS))
            if version not in VERSIONS:
                raise ApiError(404, "UnknownVersion", "unknown version")
            if request.method not in ("GET", "HEAD", "POST", "PATCH", "DELETE"):
                raise ApiError(405, "MethodNotSupported", "method not supported")
            if request.method not in ("GET", "HEAD") and not self.plus.write:
                raise ApiError(405, "MethodDisabled", "method disabled")
            status, body = _Request(self.plus, request, version, raw).answer(names[1:])
        except ApiError as error:
            return _error(error, request, version)
        return web.Response(status=status) if body is None else _json(status, body)


class _Request:
    """One request without its version prefix."""

    def __init__(self, plus: Plus, request: web.Request, version: int, raw: bytes) -> None:
        self._plus, self._raw, self._version = plus, raw, version
        self._method = "GET" if request.method == "HEAD" else request.method
        self._query = request.query

    def answer(self, names: list[str]) -> tuple[int, Any]:
        """Return status and body of the response."""
        match names:
            case []:
                return self._get([n for n in ROOT if self._has(n)])
            case ["nginx"]:
                return self._get(self._fields(self._about()))
            case ["connections"]:
                return self._counted({"accepted": 0, "dropped": 0, "active": 1, "idle": 0})
            case ["processes"]:
                return self._counted({"respawned": 0})
            case ["ssl"]:
                return self._counted({"handshakes": 0, "handshakes_failed": 0})
            case ["slabs" | "resolvers" as name] if self._has(name):
                return self._get({})
            case ["http" | "stream" as kind, *rest] if self._has(kind):
                return self._of(kind, rest)
        raise _no_path()

    def _of(self, kind: str, names: list[str]) -> tuple[int, Any]:
        match names:
            case []:
                known = (*HTTP, "keyvals", "upstreams") if kind == "http" else STREAM
                return self._get([name for name in known if self._has(name)])
            case ["upstreams"]:
                zoned = [u for u in self._plus.upstreams.values() if u.kind == kind and u.zone]
                return self._get({u.name: self._fields(u.status()) for u in zoned})
            case ["upstreams", name, *rest]:
                return self._upstream(self._plus.upstream(kind, name), rest)
            case ["keyvals"]:
                held = [k for k in self._plus.keyvals.values() if k.kind == kind]
                return self._get({zone.name: zone.pairs() for zone in held})
            case ["keyvals", name]:
                return self._keyval(self._plus.keyval(kind, name))
            case ["server_zones"]:
                names = self._plus.server_zones[kind]
                return self._get({name: self._fields(_zone(kind)) for name in names})
            case ["server_zones", name]:
                if name not in self._plus.server_zones[kind]:
                    raise ApiError(404, "ServerZoneNotFound", "server zone not found")
                return self._counted(_zone(kind))
            case ["requests"] if kind == "http":
                return self._counted({"total": 0, "current": 1})
            case [name] if self._has(name) and name in (HTTP if kind == "http" else STREAM):
                return self._get({})
        raise _no_path()

    def _upstream(self, upstream: Upstream, names: list[str]) -> tuple[int, Any]:
        match self._method, names:
            case "GET", []:
                return 200, self._fields(upstream.status())
            case "DELETE", []:
                return 204, None
            case "GET", ["servers"]:
                return 200, self._shown(upstream)
            case "POST", ["servers"]:
                server = upstream.add(self._body(), self._plus.names, self._version)
                self._plus.on_change()
                return 201, server.to_api(upstream.kind)
            case "GET", ["servers", number]:
                return 200, upstream.find(number).to_api(upstream.kind)
            case "PATCH", ["servers", number]:
                upstream.find(number)
                changed = upstream.change(number, self._body(), self._version)
                self._plus.on_change()
                return 200, changed.to_api(upstream.kind)
            case "DELETE", ["servers", number]:
                upstream.remove(number)
                self._plus.on_change()
                # What is left (the documentation's wordings differ).
                return 200, self._shown(upstream)
        if names and (names[0] != "servers" or len(names) > 2):
            raise _no_path()
        raise ApiError(405, "MethodNotSupported", "method not supported")

    def _keyval(self, zone: Keyval) -> tuple[int, Any]:
        match self._method:
            case "GET":
                pairs = zone.pairs()
                key = self._query.get("key")
                if key is None:
                    return 200, pairs
                if key not in pairs:
                    raise ApiError(404, "KeyvalKeyNotFound", f'key "{key}" not found')
                return 200, {key: pairs[key]}
            case "POST":
                zone.add(self._body())
                return 201, None
            case "PATCH":
                zone.change(self._body())
                return 204, None
            case _:
                zone.clear()
                return 204, None

    def _get(self, body: Any) -> tuple[int, Any]:
        if self._method != "GET":
            raise ApiError(405, "MethodNotSupported", "method not supported")
        return 200, body

    def _counted(self, figures: dict[str, Any]) -> tuple[int, Any]:
        """Answer for figures that a DELETE sets back."""
        return (204, None) if self._method == "DELETE" else self._get(self._fields(figures))

    def _has(self, name: str) -> bool:
        if name == "stream" and not self._plus.stream:
            return False
        return self._version >= SINCE.get(name, 1)

    def _fields(self, fields_by_name: dict[str, Any]) -> dict[str, Any]:
        fields = self._query.get("fields")
        if fields is None:
            return fields_by_name
        return {name: held for name, held in fields_by_name.items() if name in fields.split(",")}

    def _body(self) -> Any:
        try:
            return msgspec.json.decode(self._raw)
        except msgspec.DecodeError as error:
            raise ApiError(415, "JsonError", "JSON error") from error

    def _shown(self, upstream: Upstream) -> list[dict[str, Any]]:
        return [server.to_api(upstream.kind) for server in upstream.servers.values()]

    def _about(self) -> dict[str, Any]:
        return {
            "version": self._plus.version,
            "build": self._plus.build,
            "address": "127.0.0.1",
            "generation": self._plus.generation,
            "load_timestamp": "2026-01-01T00:00:00.000Z",
            "timestamp": "2026-01-01T00:00:01.000Z",
            "pid": 2,
            "ppid": 1,
        }


def _zone(kind: str) -> dict[str, Any]:
    shared = {"processing": 0, "discarded": 0, "received": 0, "sent": 0}
    counts = {f"{n}xx": 0 for n in (range(1, 6) if kind == "http" else (2, 4, 5))} | {"total": 0}
    if kind == "http":
        return {**shared, "requests": 0, "responses": {**counts, "codes": {}}}
    return {**shared, "connections": 0, "sessions": counts}


def _no_path() -> ApiError:
    return ApiError(404, "PathNotFound", "path not found")


def _json(status: int, body: Any) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json"
    )


def _error(error: ApiError, request: web.Request, version: int) -> web.Response:
    inner: dict[str, Any] = {"status": error.status, "text": error.text, "code": error.code}
    if 0 < version < 4:
        # Only the first versions repeat the request in errors.
        inner |= {"path": request.path, "method": request.method}
    return _json(error.status, {"error": inner, "request_id": uuid.uuid4().hex, "href": HREF})


def _faulty(fault: Fault) -> web.Response:
    if fault.garbage:
        return web.Response(status=fault.status, text=fault.garbage, content_type="text/html")
    inner = {"status": fault.status, "text": fault.text, "code": fault.code}
    return _json(fault.status, {"error": inner, "request_id": uuid.uuid4().hex, "href": HREF})


def _page(status: int, reason: str) -> web.Response:
    """Return an error page of NGINX itself, which is no JSON."""
    page = f"<html>\r\n<head><title>{status} {reason}</title></head>\r\n</html>\r\n"
    return web.Response(status=status, text=page, content_type="text/html")


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError:
        return None
