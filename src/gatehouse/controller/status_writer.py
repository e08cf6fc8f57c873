"""Writes statuses that differ from the API server's, with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from gatehouse.apis.resources import Resource
from gatehouse.compiler.frontends import combined
from gatehouse.incremental.query import Key
from gatehouse.kube import client as kube

log = structlog.get_logger("gatehouse.status")

WORKERS = 8
"""Number of concurrent writes."""

FIRST_RETRY, LAST_RETRY = 0.2, 30.0
"""Back-off in seconds after a failed write; doubles from the first to the last value."""


class StatusWriter:
    """Writes the desired status of each object. Only the newest desired status is written."""

    def __init__(
        self,
        client: kube.Client,
        resources: Mapping[str, Resource],
        current: Callable[[Key], Mapping[str, Any] | None],
    ) -> None:
        self._client = client
        self._resources = resources
        self._current = current
        self._desired: dict[Key, combined.Status] = {}
        self._queue: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self.writes = 0
        """Statuses written so far."""

    def set_desired(self, key: Key, status: combined.Status) -> None:
        """Set the desired status of the object at ``key`` and write it soon."""
        self._desired[key] = status
        self._enqueue(key)

    def forget(self, key: Key) -> None:
        """Drop the desired status of the object at ``key``."""
        self._desired.pop(key, None)
        self._failures.pop(key, None)

    def enqueue(self, key: Key) -> None:
        """Compare a changed object again: another writer may have overwritten its status."""
        if key in self._desired:
            self._enqueue(key)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work())

    def _enqueue(self, key: Key) -> None:
        if key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            try:
                await self._write(key, self._current(key))
            except kube.NotFound:
                continue
            except kube.Conflict:
                await self._write_over_newer(key)
            except kube.ApiError as error:
                self._retry(key, error)
            else:
                self._failures.pop(key, None)

    async def _write_over_newer(self, key: Key) -> None:
        """Read the object from the API server and write again; the informer's copy was stale."""
        try:
            fresh = await self._client.get(self._resources[key[0]], key[2], namespace=key[1])
            await self._write(key, fresh)
        except kube.NotFound:
            return
        except kube.ApiError as error:
            self._retry(key, error)

    async def _write(self, key: Key, current: Mapping[str, Any] | None) -> None:
        desired = self._desired.get(key)
        if desired is None or current is None:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = combined.merge_status(key[0], current.get("status"), desired, now)
        if status is None:
            return
        body = {**current, "status": status}
        await self._client.update_status(self._resources[key[0]], body)
        self.writes += 1
        log.debug("status written", kind=key[0], namespace=key[1], name=key[2])

    def _retry(self, key: Key, error: kube.ApiError) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 16))
        delay = max(delay, error.retry_after or 0.0)
        log.warning(
            "status write failed", kind=key[0], namespace=key[1], name=key[2], error=str(error)
        )
        asyncio.get_running_loop().call_later(delay, self._enqueue, key)
