"""Receiving of request bodies before a request gets a seat, within limits of time and memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from aiohttp import web

from kube_api_server.fairness.flow_control import RequestFlowControl
from kube_api_server.fairness.schemas import EXEMPT, Flow
from kube_api_server.http import requests

BODY_SECONDS = 60.0
"""Timeout in seconds of a body, from the end of the request's head."""

PENDING_BYTES = 32 * 1024 * 1024
"""Maximum size of the bodies of one flow that arrive, wait or are processed."""


class BodyReader:
    """Bodies of all requests in progress."""

    def __init__(self, flow_control: RequestFlowControl) -> None:
        self._flow_control = flow_control
        self._pending: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def received(self, request: web.BaseRequest, flow: Flow) -> AsyncIterator[int]:
        """Receive the body, and count its size inside the context. Yields the size.

        Raises ApiError 413 or 429, TimeoutError.
        """
        if not request.can_read_body:
            yield 0
            return
        # Chunked bodies have no length.
        size = requests.MAX_BODY_BYTES if request.content_length is None else request.content_length
        if size > requests.MAX_BODY_BYTES:
            raise requests.too_large()
        if flow.level != EXEMPT and self._pending[flow.name] + size > PENDING_BYTES:
            raise self._flow_control.reject(flow, "concurrency-limit")
        self._pending[flow.name] += size
        try:
            async with asyncio.timeout(BODY_SECONDS):
                data = await requests._read(request)
            yield len(data)
        finally:
            self._pending[flow.name] -= size
            if not self._pending[flow.name]:
                del self._pending[flow.name]
