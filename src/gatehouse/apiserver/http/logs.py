"""`kubectl logs`: what the containers of a Pod on this machine wrote."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from gatehouse.apiserver import errors
from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.http.requests import Target, flag, number
from gatehouse.apiserver.objects import ages
from gatehouse.apiserver.storage.store import Store

Find = Callable[[str, str], Path]
"""Gives the file of a Pod's log by namespace and name."""

LOOK_SECONDS = 0.2
"""How often a log that is followed is looked at."""

CHUNK = 64 * 1024


class PodLogs:
    """Answers requests for logs; ``find`` None: this server has no node beside it."""

    def __init__(self, find: Find | None, stop: asyncio.Event) -> None:
        self._find, self._stop = find, stop

    async def answer(
        self, request: web.BaseRequest, target: Target, store: Store
    ) -> web.StreamResponse:
        """Send a Pod's log. Raises ApiError."""
        entry = store.get(target.key)
        if entry is None:
            raise errors.not_found("pods", "", target.name)
        names = [c["name"] for c in entry.value["spec"].get("containers") or ()]
        container = request.query.get("container", "")
        if container and container not in names:
            message = f"container {container} is not valid for pod {target.name}"
            raise errors.bad_request(message)
        if self._find is None or not entry.value["spec"].get("nodeName"):
            message = (
                f'container "{container or names[0]}" in pod "{target.name}" is waiting to start: '
                "no node runs it"
            )
            raise errors.bad_request(message)
        if flag(request, "previous"):
            message = f'previous terminated container "{container or names[0]}" not found'
            raise errors.bad_request(message)
        path = self._find(target.namespace, target.name)
        return await self._send(request, path)

    async def _send(self, request: web.BaseRequest, path: Path) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        response.enable_chunked_encoding()
        try:
            file = await asyncio.to_thread(path.open, "rb")
        except OSError as error:
            raise ApiError(
                500, "InternalError", f"the log cannot be read: {error.strerror}"
            ) from error
        left = number(request, "limitBytes")
        with file:
            tail, since = number(request, "tailLines"), _since(request)
            start = await asyncio.to_thread(_written_since, path, since) if since else 0
            if tail is not None:
                start = max(start, await asyncio.to_thread(_start_of_tail, path, tail))
            file.seek(start)
            await response.prepare(request)
            try:
                while left is None or left > 0:
                    data = file.read(CHUNK if left is None else min(CHUNK, left))
                    if data:
                        left = None if left is None else left - len(data)
                        await response.write(data)
                    elif flag(request, "follow") and not self._stop.is_set():
                        await asyncio.sleep(LOOK_SECONDS)
                    else:
                        break
            except (ConnectionResetError, asyncio.CancelledError):
                pass
        return response


def _since(request: web.BaseRequest) -> float | None:
    """Give from when on lines are asked for, in seconds since 1970. Raises ApiError."""
    seconds = number(request, "sinceSeconds")
    if seconds is not None:
        return time.time() - seconds
    text = request.query.get("sinceTime", "")
    if not text:
        return None
    moment = ages.moment(text)
    if moment is None:
        raise errors.bad_request(f"sinceTime: Invalid value: {text!r}: must be a time (RFC 3339)")
    return moment.timestamp()


def _written_since(path: Path, since: float) -> int:
    """Give how long a log was at a time, as the node noted beside it."""
    place = 0
    try:
        with path.with_name("log.index").open() as file:
            for line in file:
                moment, _, size = line.partition(" ")
                if float(moment) > since:
                    break
                place = int(size)
    except (OSError, ValueError):
        return 0
    return place


def _start_of_tail(path: Path, lines: int) -> int:
    """Give where the last ``lines`` lines of a file begin."""
    data = path.read_bytes()
    place = len(data.rstrip(b"\n"))
    for _ in range(lines):
        place = data.rfind(b"\n", 0, place)
        if place < 0:
            return 0
    return place + 1 if lines else len(data)
