"""Server on the reviewer's socket: each request of Envoy's script gets a status and headers."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import InvalidConfigError
from gatehouse.sidecars.base.sockets import ACCEPT_QUEUE_LENGTH
from gatehouse.sidecars.reviewer import config, metrics, tokens, unready, user_headers
from gatehouse.sidecars.reviewer.cache import CacheTTLs
from gatehouse.sidecars.reviewer.caching_reviewer import CachingReviewer
from gatehouse.sidecars.reviewer.concurrency import BusyError, ClusterLimiter
from gatehouse.sidecars.reviewer.review_client import ReviewClient, ReviewUnavailableError
from gatehouse.sidecars.reviewer.reviews import Verdict
from gatehouse.sidecars.reviewer.user_headers import MalformedHeaderError
from kube_base.runtime.limited_http import LimitedHttpServer

_MAX_LINE_BYTES = 1 << 18
"""Maximum size of a header line in bytes. Envoy accepts 60 KB from clients, and a script may encode
each byte as three."""

_KEEPALIVE_SECONDS = 3600.0
"""Idle timeout in seconds, the same as Envoy's, so that Envoy closes connections first and never
sends to a closed one."""

DETACH_GRACE_SECONDS = 0.2
"""Time in seconds for one more response on each connection before idle ones are closed. It is short
because requests are not accepted meanwhile."""

HANDOVER_SECONDS = 30.0
"""The same if another reviewer took over."""

_POLL_SECONDS = 1.0
"""Interval in seconds of the check whether another reviewer took over."""

SWEEP_SECONDS = 30.0

MAX_REASON_CHARACTERS = 300


class ReviewServer:
    """Serves requests on one socket beside ``directory`` and sends reviews to another one there."""

    def __init__(self, directory: Path, linger: float, failures: FailureLog) -> None:
        """``linger`` is the time in seconds for which it serves after its last configuration."""
        self.idle = asyncio.Event()
        self._directory = directory.parent
        self._socket = self._directory / config.REVIEWER_SOCKET
        self._linger = linger
        self._failures = failures
        self._idle_timer: asyncio.TimerHandle | None = None
        self._upstream: ReviewClient | None = None
        self._reviewer: CachingReviewer | None = None
        self._runner: web.ServerRunner | None = None
        self._inode = 0
        """Inode of its own socket, to recognise that of a successor."""
        self._draining = False

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Serve while there is any configuration. Only Envoy needs its content.

        Raises InvalidConfigError.
        """
        if configurations:
            self._cancel_idle()
            try:
                await self._listen()
            except OSError as error:
                raise InvalidConfigError(f"{self._socket}: {error.strerror or error}") from error
            self.idle.clear()
        elif self._runner is None:
            self.idle.set()
        elif self._idle_timer is None:
            self._idle_timer = asyncio.get_running_loop().call_later(self._linger, self.idle.set)

    async def housekeeping(self) -> None:
        """Remove expired verdicts, and become idle when another reviewer took over, until
        cancelled."""
        swept = 0.0
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            if self._runner is not None and not self._owns_socket():
                self.idle.set()
            if self._reviewer is not None and now() - swept > SWEEP_SECONDS:
                self._reviewer.sweep()
                swept = now()

    async def drain(self) -> None:
        """Stop accepting connections and finish all received requests."""
        self._cancel_idle()
        seconds = HANDOVER_SECONDS
        if self._owns_socket():
            self._socket.unlink(missing_ok=True)
            seconds = DETACH_GRACE_SECONDS
        if self._runner is not None:
            self._draining = True
            for site in tuple(self._runner.sites):
                await site.stop()
            await self._wait_for_close(seconds)
            await self._runner.cleanup()
        if self._upstream is not None:
            await self._upstream.close()

    async def _wait_for_close(self, seconds: float) -> None:
        """Wait until connections are closed, each after a response with ``Connection: close``."""
        assert self._runner is not None
        now = asyncio.get_running_loop().time
        end = now() + seconds
        while self._runner.server is not None and self._runner.server.connections:
            if now() >= end:
                return
            await asyncio.sleep(0.02)

    async def _listen(self) -> None:
        if self._runner is not None:
            return
        self._upstream = ReviewClient(self._directory / config.UPSTREAM)
        self._reviewer = CachingReviewer(self._upstream, ClusterLimiter())
        server = LimitedHttpServer(
            self._handle,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_LINE_BYTES,
        )
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        # Bound to a temporary name and renamed: until then another reviewer serves the old socket,
        # and the permissions are set before anyone can connect.
        path = self._socket.with_suffix(".new")
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        path.chmod(0o600)
        await web.SockSite(self._runner, listening, backlog=ACCEPT_QUEUE_LENGTH).start()
        self._inode = path.stat().st_ino
        path.rename(self._socket)

    def _owns_socket(self) -> bool:
        try:
            return self._inode != 0 and self._socket.stat().st_ino == self._inode
        except OSError:
            return False

    def _cancel_idle(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        response = await self._answer(request)
        if self._draining:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        assert self._reviewer is not None
        target = f"{request.method} {request.raw_path}"
        try:
            match target:
                case "POST /token":
                    verdict, remaining = await self._token(self._reviewer, request)
                    return _response(verdict, 401, remaining)
                case "POST /impersonation":
                    verdict, remaining = await self._impersonation(self._reviewer, request)
                    return _response(verdict, 403, remaining)
                case "POST /unready":
                    cluster = user_headers.requested_cluster(request.headers)
                    return web.Response(body=unready.reasons(self._directory, cluster))
                case "GET /metrics":
                    headers = {"Content-Type": metrics.METRICS_CONTENT_TYPE}
                    return web.Response(body=self._reviewer.metrics.page(), headers=headers)
        except MalformedHeaderError as error:
            return web.Response(status=400, text=str(error))
        except (ReviewUnavailableError, BusyError) as error:
            return self._failed(request, str(error))
        except Exception as error:
            # Access is denied, and other requests are served. The exception's text may contain the
            # request.
            return self._failed(request, type(error).__name__)
        return web.Response(status=404)

    async def _token(
        self, reviewer: CachingReviewer, request: web.BaseRequest
    ) -> tuple[Verdict, float]:
        cluster, keep = _about(request)
        token = tokens.bearer_token(request.headers.get("Authorization", ""))
        if not token:
            return Verdict(False, reason="bearer token not found"), keep.bad
        return await reviewer.token(cluster, token, keep)

    async def _impersonation(
        self, reviewer: CachingReviewer, request: web.BaseRequest
    ) -> tuple[Verdict, float]:
        cluster, keep = _about(request)
        client = user_headers.user(request.headers, "x-")
        return await reviewer.impersonation(
            cluster, client, user_headers.user(request.headers, "x-as-"), keep
        )

    def _failed(self, request: web.BaseRequest, reason: str) -> web.Response:
        token = tokens.bearer_token(request.headers.get("Authorization", ""))
        if token:
            # A server's message may quote the token.
            reason = reason.replace(token, "…")
        reason = reason[:MAX_REASON_CHARACTERS]
        self._failures.record("reviewer", reason)
        return web.Response(status=503, text=reason)


def _about(request: web.BaseRequest) -> tuple[str, CacheTTLs]:
    """Return the cluster of a request and the TTLs of its verdicts.

    Raises MalformedHeaderError.
    """
    headers = request.headers
    keep = CacheTTLs(
        user_headers.parse_duration_header(headers, "x-good-for"),
        user_headers.parse_duration_header(headers, "x-bad-for"),
    )
    return user_headers.requested_cluster(headers), keep


def _response(verdict: Verdict, denied_status: int, remaining: float) -> web.Response:
    # Rounded down: a verdict must not be cached longer than it is valid.
    headers = {"x-keep": f"{math.floor(remaining * 1000) / 1000:.3f}", **dict(verdict.headers)}
    if verdict.granted:
        return web.Response(headers=headers)
    return web.Response(status=denied_status, headers=headers, text=verdict.reason)
