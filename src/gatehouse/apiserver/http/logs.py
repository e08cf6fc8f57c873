"""`kubectl logs`: what the containers of a Pod on this machine wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from gatehouse.apiserver import errors
from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.http.requests import Target, flag, number
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
            tail = number(request, "tailLines")
            if tail is not None:
                file.seek(await asyncio.to_thread(_start_of_tail, path, tail))
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


def _start_of_tail(path: Path, lines: int) -> int:
    """Give where the last ``lines`` lines of a file begin."""
    data = path.read_bytes()
    place = len(data.rstrip(b"\n"))
    for _ in range(lines):
        place = data.rfind(b"\n", 0, place)
        if place < 0:
            return 0
    return place + 1 if lines else len(data)
