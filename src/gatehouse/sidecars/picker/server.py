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
from gatehouse.sidecars.base.context_cache import ClientTlsFiles, ContextCache, client_context
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import InvalidConfigError
from gatehouse.sidecars.base.sockets import ACCEPT_QUEUE_LENGTH, SocketTable
from gatehouse.sidecars.picker import config
from gatehouse.sidecars.picker.config import Pool
from gatehouse.sidecars.picker.endpoint_http import ENDPOINT_CONNECT_SECONDS
from gatehouse.sidecars.picker.exchange import Exchange, ServedPool
from kube_base.runtime.limited_http import LimitedHttpServer

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
        self._served, self._runner = served, runner

    def configure(self, target: _LoadedPool) -> None:
        """Serve a pool from now on."""
        pool, tls = target.pool, None
        if pool.tls is not None and target.context is not None:
            tls = pool.tls, target.context
        self._served.pool = pool
        self._served.endpoints.replace(target.endpoints)
        self._served.pickers.configure(target.pickers, tls, pool.seconds)

    async def close(self) -> None:
        """Stop listening, and wait for requests for at most the linger time."""
        await self._runner.cleanup()
        self._served.pickers.close()


class PoolServer:
    """The pools whose sockets are in one directory."""

    def __init__(self, directory: Path, linger: float, failures: FailureLog) -> None:
        """``linger`` is the time in seconds for which an unused socket stays open."""
        self._linger = linger
        self._failures = failures
        self._sockets = SocketTable(directory, linger, self._listen)
        self.idle = self._sockets.idle
        """Set while there is no socket and no request."""
        self._contexts = ContextCache()
        self._http: aiohttp.ClientSession | None = None

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Listen on the sockets of ``configurations``, and close others after the linger time.

        All or nothing: raises InvalidConfigError without applying any change. If two configurations
        define the same socket, the last one is used.
        """
        await self._sockets.serve(await asyncio.to_thread(_load, configurations, self._contexts))

    async def _listen(self, path: Path, loaded: _LoadedPool) -> _Socket:
        served = ServedPool(loaded.pool, self._session(), self._failures)

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
        try:
            await web.UnixSite(runner, path, backlog=ACCEPT_QUEUE_LENGTH).start()
        except OSError:
            await runner.cleanup()
            raise
        return _Socket(served, runner)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                # Model servers take long for a request, so that a connection of its own costs
                # little. None is used that the server is about to close.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=ENDPOINT_CONNECT_SECONDS),
                max_line_size=_MAX_LINE_BYTES,
                max_field_size=_MAX_LINE_BYTES,
            )
        return self._http

    async def housekeeping(self) -> None:
        """Do nothing: there are no periodic tasks."""

    async def drain(self) -> None:
        """Stop listening, and wait for requests for at most the linger time."""
        await self._sockets.drain()
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
    context = None
    if pool.tls is not None:
        files = ClientTlsFiles(pool.tls.trust, pool.tls.certificate, pool.tls.key)
        context = client_context(cache, configuration, f"cluster {pool.cluster}", files, "h2")
    return _LoadedPool(pool, read[pool.endpoints], read[pool.pickers], context)
