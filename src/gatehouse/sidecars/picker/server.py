"""Sockets of pools: one for each, open while any NGINX worker may use it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web

from gatehouse.dataplane.endpoints import Endpoints, parse_endpoints
from gatehouse.runtime.limited_http import LimitedHttpServer
from gatehouse.sidecars.base.context_cache import ContextCache
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import InvalidConfigError
from gatehouse.sidecars.picker import config
from gatehouse.sidecars.picker.config import PickerTls, Pool
from gatehouse.sidecars.picker.endpoint_http import CONNECT_SECONDS
from gatehouse.sidecars.picker.exchange import Exchange, ServedPool

_BACKLOG = 4096
"""Length of the accept queue. If it is full, NGINX's connection fails at once."""

_MAX_LINE_BYTES = 1 << 17
"""Maximum size of a request line and of a header field in bytes. NGINX accepts 64 KB from clients,
and may add to them."""

_KEEPALIVE_SECONDS = 75.0
"""Idle timeout in seconds, longer than NGINX's, so that NGINX never sends to a closed
connection."""


class _LoadedPool(msgspec.Struct, frozen=True):
    """A pool with the content of its files."""

    pool: Pool
    endpoints: Endpoints
    pickers: Endpoints
    context: ssl.SSLContext | None


class _Socket:
    """The listening socket of a pool."""

    def __init__(self, served: ServedPool, runner: web.ServerRunner) -> None:
        self.served, self.runner = served, runner
        self.close_timer: asyncio.TimerHandle | None = None

    def configure(self, loaded: _LoadedPool) -> None:
        """Serve a pool from now on."""
        pool = loaded.pool
        tls = None
        if pool.tls is not None and loaded.context is not None:
            tls = pool.tls, loaded.context
        self.served.pool = pool
        self.served.endpoints.replace(loaded.endpoints)
        self.served.pickers.configure(loaded.pickers, tls, pool.seconds)

    def keep_open(self) -> None:
        """Do not close it."""
        if self.close_timer is not None:
            self.close_timer.cancel()
            self.close_timer = None


class PoolServer:
    """The pools whose sockets are in one directory."""

    def __init__(self, directory: Path, linger: float, failures: FailureLog) -> None:
        """``linger`` is the time in seconds for which an unused socket stays open."""
        self.idle = asyncio.Event()
        self._directory = directory
        self._linger = linger
        self._failures = failures
        self._sockets: dict[str, _Socket] = {}
        self._contexts = ContextCache()
        self._http: aiohttp.ClientSession | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Listen on the sockets of ``configurations``, and close others after the linger time.

        All or nothing: raises InvalidConfigError without applying any change. If two configurations
        define the same socket, the last one is used.
        """
        loaded = await asyncio.to_thread(_load, configurations, self._contexts)
        opened: dict[str, _Socket] = {}
        try:
            for name, one in loaded.items():
                if name not in self._sockets:
                    opened[name] = await self._open(name, one.pool)
        except OSError as error:
            for socket in opened.values():
                await socket.runner.cleanup()
            raise InvalidConfigError(f"{self._directory / name}: {error.strerror}") from error
        self._sockets.update(opened)
        for name, socket in self._sockets.items():
            if name in loaded:
                socket.configure(loaded[name])
                socket.keep_open()
            elif socket.close_timer is None:
                loop = asyncio.get_running_loop()
                socket.close_timer = loop.call_later(self._linger, self._close, name)
        self._update_idle()

    async def _open(self, name: str, pool: Pool) -> _Socket:
        served = ServedPool(pool, self._session(), self._failures)

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return await Exchange(served, request).run()

        server = LimitedHttpServer(
            answer,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_LINE_BYTES,
        )
        # The picker and the endpoint need not work for a client that left.
        server.handler_cancellation = True
        runner = web.ServerRunner(server, shutdown_timeout=self._linger)
        await runner.setup()
        path = self._directory / name
        path.unlink(missing_ok=True)
        await web.UnixSite(runner, path, backlog=_BACKLOG).start()
        return _Socket(served, runner)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                # Model servers take long for a request, so that a connection of its own costs
                # little. None is used that the server is about to close.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                max_line_size=_MAX_LINE_BYTES,
                max_field_size=_MAX_LINE_BYTES,
            )
        return self._http

    def _close(self, name: str) -> None:
        """Stop listening, and end the socket after its last request."""
        socket = self._sockets.pop(name)
        socket.keep_open()
        (self._directory / name).unlink(missing_ok=True)
        task = asyncio.create_task(self._end(socket))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        task.add_done_callback(lambda _: self._update_idle())

    @staticmethod
    async def _end(socket: _Socket) -> None:
        await socket.runner.cleanup()
        socket.served.pickers.close()

    def _update_idle(self) -> None:
        if self._sockets or self._closing:
            self.idle.clear()
        else:
            self.idle.set()

    async def housekeeping(self) -> None:
        """Do nothing: there are no periodic tasks."""

    async def drain(self) -> None:
        """Stop listening, and wait for requests for at most the linger time."""
        for name in tuple(self._sockets):
            self._close(name)
        await asyncio.gather(*self._closing)
        if self._http is not None:
            await self._http.close()


def _load(configurations: Sequence[Path], cache: ContextCache) -> dict[str, _LoadedPool]:
    """Load pools with the content of their files. Raises InvalidConfigError."""
    loaded: dict[str, _LoadedPool] = {}
    for configuration in configurations:
        try:
            pools = config.read_pools(configuration)
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidConfigError(f"{config.POOLS_FILE}: {error}") from error
        for pool in pools:
            loaded[pool.socket] = _loaded(configuration, pool, cache)
    cache.forget_unused()
    return loaded


def _loaded(configuration: Path, pool: Pool, cache: ContextCache) -> _LoadedPool:
    read = {}
    for path in (pool.endpoints, pool.pickers):
        try:
            read[path] = parse_endpoints((configuration / path).read_bytes())
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or error
            raise InvalidConfigError(f"cluster {pool.cluster}: {path}: {problem}") from error
    context = _context(configuration, pool, pool.tls, cache) if pool.tls else None
    return _LoadedPool(pool, read[pool.endpoints], read[pool.pickers], context)


def _context(
    configuration: Path, pool: Pool, tls: PickerTls, cache: ContextCache
) -> ssl.SSLContext:
    path = ""

    def load() -> ssl.SSLContext:
        nonlocal path
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The chain is verified here, the names after the handshake.
        context.check_hostname = False
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["h2"])
        if tls.trust:
            path = tls.trust
            context.load_verify_locations(configuration / path)
        else:
            context.verify_mode = ssl.CERT_NONE
        if tls.certificate:
            path = tls.certificate
            context.load_cert_chain(configuration / path, configuration / tls.key)
        return context

    contents = []
    try:
        for path in filter(None, (tls.trust, tls.certificate, tls.key)):
            contents.append((configuration / path).read_bytes())
        return cache.get(contents, load)
    except OSError as error:
        raise InvalidConfigError(f"cluster {pool.cluster}: {path}: {error.strerror}") from error
