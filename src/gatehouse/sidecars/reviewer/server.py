"""The socket: questions of the script in Envoy, each answered by a status and headers."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.base.service import RefusedError
from gatehouse.sidecars.reviewer import config, metrics, tokens, user_headers
from gatehouse.sidecars.reviewer.cache import CacheTTLs
from gatehouse.sidecars.reviewer.caching_reviewer import CachingReviewer
from gatehouse.sidecars.reviewer.concurrency import BusyError, ClusterLimiter
from gatehouse.sidecars.reviewer.review_client import UnavailableError, Upstream
from gatehouse.sidecars.reviewer.reviews import Verdict
from gatehouse.sidecars.reviewer.user_headers import MalformedError

BACKLOG = 4096
"""Connections not taken yet; with a full one Envoy is refused at once."""

MAX_LINE_BYTES = 1 << 18
"""Bytes of the longest header; Envoy takes 60 KB of its clients, and a script may encode each byte
as three."""

KEEPALIVE_SECONDS = 3600.0
"""As long as Envoy keeps an idle connection: it is to close them, so that it never sends to one
that ends."""

DETACH_GRACE_SECONDS = 0.2
"""How long connections may each have one more answer, before those that are idle are closed. Not
longer: nobody listens meanwhile."""

HANDOVER_SECONDS = 30.0
"""The same where another reviewer took over."""

POLL_SECONDS = 1.0
"""How often it is looked whether another reviewer took over."""

SWEEP_SECONDS = 30.0

LONGEST_REASON = 300

# What is no request is answered 400 without a word.
_SILENT = logging.getLogger(f"{__name__}.http")
_SILENT.disabled = True


class Serving:
    """Answers on a socket in ``directory``, asking by another one there."""

    def __init__(self, directory: Path, linger: float, failures: FailureLog) -> None:
        """``linger``: seconds for which it serves after it is no longer asked to."""
        self.idle = asyncio.Event()
        self._directory = directory
        self._socket = directory / config.REVIEWER
        self._linger = linger
        self._failures = failures
        self._leaving: asyncio.TimerHandle | None = None
        self._upstream: Upstream | None = None
        self._asking: CachingReviewer | None = None
        self._runner: web.ServerRunner | None = None
        self._own = 0
        """The inode of the socket, by which it is known from another's."""
        self._parting = False

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Serve while there is any configuration: what is in it, only Envoy needs to know.

        Raises RefusedError.
        """
        if configurations:
            self._stay()
            try:
                await self._listen()
            except OSError as error:
                raise RefusedError(f"{self._socket}: {error.strerror or error}") from error
            self.idle.clear()
        elif self._runner is None:
            self.idle.set()
        elif self._leaving is None:
            self._leaving = asyncio.get_running_loop().call_later(self._linger, self.idle.set)

    async def housekeeping(self) -> None:
        """Forget what is good no more, and end when another took over, until cancelled."""
        swept = 0.0
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._runner is not None and not self._ours():
                self.idle.set()
            if self._asking is not None and now() - swept > SWEEP_SECONDS:
                self._asking.sweep()
                swept = now()

    async def drain(self) -> None:
        """Take no more connections, and let every question that came be answered."""
        self._stay()
        seconds = HANDOVER_SECONDS
        if self._ours():
            self._socket.unlink(missing_ok=True)
            seconds = DETACH_GRACE_SECONDS
        if self._runner is not None:
            self._parting = True
            for site in tuple(self._runner.sites):
                await site.stop()
            await self._detached(seconds)
            await self._runner.cleanup()
        if self._upstream is not None:
            await self._upstream.close()

    async def _detached(self, seconds: float) -> None:
        """Wait until connections have ended, each after an answer that says so."""
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
        self._upstream = Upstream(self._directory / config.UPSTREAM)
        self._asking = CachingReviewer(self._upstream, ClusterLimiter())
        server = web.Server(
            self._handle, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS,
            max_line_size=MAX_LINE_BYTES, max_field_size=MAX_LINE_BYTES, logger=_SILENT,
        )  # fmt: skip
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        # Made aside and put in its place whole: until then another reviewer answers there, and
        # nobody but the owner ever reaches it.
        aside = self._socket.with_suffix(".new")
        aside.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(aside))
        aside.chmod(0o600)
        await web.SockSite(self._runner, listening, backlog=BACKLOG).start()
        self._own = aside.stat().st_ino
        aside.rename(self._socket)

    def _ours(self) -> bool:
        try:
            return self._own != 0 and self._socket.stat().st_ino == self._own
        except OSError:
            return False

    def _stay(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        response = await self._answer(request)
        if self._parting:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        assert self._asking is not None
        asked = f"{request.method} {request.raw_path}"
        try:
            match asked:
                case "POST /token":
                    verdict, left = await self._token(self._asking, request)
                    return _said(verdict, 401, left)
                case "POST /impersonation":
                    verdict, left = await self._impersonation(self._asking, request)
                    return _said(verdict, 403, left)
                case "GET /metrics":
                    headers = {"Content-Type": metrics.CONTENT_TYPE}
                    return web.Response(body=self._asking.measuring.page(), headers=headers)
        except MalformedError as error:
            return web.Response(status=400, text=str(error))
        except (UnavailableError, BusyError) as error:
            return self._failed(request, str(error))
        except Exception as error:
            # Nobody is let in, and others are answered on. What was asked may be in the message.
            return self._failed(request, type(error).__name__)
        return web.Response(status=404)

    async def _token(
        self, asking: CachingReviewer, request: web.BaseRequest
    ) -> tuple[Verdict, float]:
        cluster, keep = _about(request)
        token = tokens.bearer(request.headers.get("Authorization", ""))
        if not token:
            return Verdict(False, reason="there is no bearer token"), keep.bad
        return await asking.token(cluster, token, keep)

    async def _impersonation(
        self, asking: CachingReviewer, request: web.BaseRequest
    ) -> tuple[Verdict, float]:
        cluster, keep = _about(request)
        client = user_headers.user(request.headers, "x-")
        return await asking.impersonation(
            cluster, client, user_headers.user(request.headers, "x-as-"), keep
        )

    def _failed(self, request: web.BaseRequest, reason: str) -> web.Response:
        token = tokens.bearer(request.headers.get("Authorization", ""))
        if token:
            # A server's message may quote what it was asked about.
            reason = reason.replace(token, "…")
        reason = reason[:LONGEST_REASON]
        self._failures.record("reviewer", reason)
        return web.Response(status=503, text=reason)


def _about(request: web.BaseRequest) -> tuple[str, CacheTTLs]:
    """Give the cluster that is asked about, and for how long its answers are good.

    Raises MalformedError.
    """
    headers = request.headers
    keep = CacheTTLs(
        user_headers.seconds(headers, "x-good-for"), user_headers.seconds(headers, "x-bad-for")
    )
    return user_headers.cluster(headers), keep


def _said(verdict: Verdict, refused: int, left: float) -> web.Response:
    # Rounded down: nobody is to keep an answer longer than it is good.
    headers = {"x-keep": f"{math.floor(left * 1000) / 1000:.3f}", **dict(verdict.headers)}
    if verdict.granted:
        return web.Response(headers=headers)
    return web.Response(status=refused, headers=headers, text=verdict.reason)
