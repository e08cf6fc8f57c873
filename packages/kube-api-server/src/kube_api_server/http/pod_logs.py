"""Pod logs for `kubectl logs`, read from the node on this machine."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from kube_api_server import errors
from kube_api_server.errors import StatusError
from kube_api_server.http.log_timestamps import LogTimes, TimestampWriter
from kube_api_server.http.requests import RequestTarget, query_flag, query_number
from kube_api_server.objects import timestamps
from kube_api_server.storage.store import ObjectStore

Find = Callable[[str, str], Path]
"""Returns the log file of a Pod by namespace and name."""

_POLL_SECONDS = 0.2
"""Interval in seconds at which a followed log is polled."""

_CHUNK = 64 * 1024


class PodLogs:
    """Handler of log requests. `find` is None if the server runs without a node."""

    def __init__(self, find: Find | None, stop: asyncio.Event) -> None:
        self._find, self._stop = find, stop

    async def answer(
        self, request: web.BaseRequest, target: RequestTarget, store: ObjectStore
    ) -> web.StreamResponse:
        """Send the log of a Pod. Raises StatusError."""
        entry = store.get(target.key)
        if entry is None:
            raise errors.not_found_error("pods", "", target.name)
        names = [c["name"] for c in entry.value["spec"].get("containers") or ()]
        container = request.query.get("container", "")
        if container and container not in names:
            message = f"container {container} is not valid for pod {target.name}"
            raise errors.bad_request(message)
        waiting = f'container "{container or names[0]}" in pod "{target.name}" is waiting to start'
        if self._find is None or not entry.value["spec"].get("nodeName"):
            raise errors.bad_request(f"{waiting}: no node runs it")
        if query_flag(request, "previous"):
            message = f'previous terminated container "{container or names[0]}" not found'
            raise errors.bad_request(message)
        path = self._find(target.namespace, target.name)
        try:
            return await self._send(request, path)
        except FileNotFoundError as error:
            raise errors.bad_request(f"{waiting}: {_reason(entry.value)}") from error

    async def _send(self, request: web.BaseRequest, path: Path) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        response.enable_chunked_encoding()
        try:
            file = await asyncio.to_thread(path.open, "rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StatusError(
                500, "InternalError", f"the log cannot be read: {error.strerror}"
            ) from error
        left = query_number(request, "limitBytes")
        with file:
            tail, since = query_number(request, "tailLines"), _since(request)
            times = LogTimes(path)
            start = await asyncio.to_thread(times.line_at, since) if since else 0
            if tail is not None:
                start = max(start, await asyncio.to_thread(_start_of_tail, path, tail))
            stamps = TimestampWriter(times, start) if query_flag(request, "timestamps") else None
            file.seek(start)
            await response.prepare(request)
            try:
                while left is None or left > 0:
                    data = file.read(_CHUNK)
                    if data:
                        data = stamps.stamp(data) if stamps else data
                        if left is not None:
                            data, left = data[:left], left - len(data[:left])
                        await response.write(data)
                    elif query_flag(request, "follow") and not self._stop.is_set():
                        if file.seek(0, os.SEEK_CUR) > os.fstat(file.fileno()).st_size:
                            # The node has moved the content to another file.
                            file.seek(0)
                        await asyncio.sleep(_POLL_SECONDS)
                    else:
                        break
            except (ConnectionResetError, asyncio.CancelledError):
                pass
        return response


def _since(request: web.BaseRequest) -> float | None:
    """Return the start time of the requested lines in seconds since 1970. Raises StatusError."""
    seconds = query_number(request, "sinceSeconds")
    if seconds is not None:
        return time.time() - seconds
    text = request.query.get("sinceTime", "")
    if not text:
        return None
    moment = timestamps.parse_time(text)
    if moment is None:
        raise errors.bad_request(f"sinceTime: Invalid value: {text!r}: must be a time (RFC 3339)")
    return moment.timestamp()


def _reason(pod: Mapping[str, Any]) -> str:
    """Return why the container of a Pod has not started."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        reason = status.get("state", {}).get("waiting", {}).get("reason")
        if reason:
            return str(reason)
    return "ContainerCreating"


def _start_of_tail(path: Path, lines: int) -> int:
    """Return the offset at which the last `lines` lines of a file start."""
    data = path.read_bytes()
    place = len(data.rstrip(b"\n"))
    for _ in range(lines):
        place = data.rfind(b"\n", 0, place)
        if place < 0:
            return 0
    return place + 1 if lines else len(data)
