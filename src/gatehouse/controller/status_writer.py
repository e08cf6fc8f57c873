"""Writes statuses that differ from the API server's, with retries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from gatehouse.apis.resources import Resource
from gatehouse.compiler.frontends import combined
from gatehouse.incremental.query import Key
from gatehouse.kube import client as kube
from gatehouse.runtime.backoff import BackoffPolicy
from gatehouse.runtime.work_queue import RetryError, WorkQueue

log = structlog.get_logger("gatehouse.status")

WORKERS = 8
"""Number of concurrent writes."""

RETRIES = BackoffPolicy(first=0.2, maximum=30.0)
"""Back-off of an object after a failed write."""


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
        self._queue = WorkQueue(self._reconcile, RETRIES, workers=WORKERS)
        self.writes = 0
        """Statuses written so far."""

    def set_desired(self, key: Key, status: combined.Status) -> None:
        """Set the desired status of the object at ``key`` and write it soon."""
        self._desired[key] = status
        self._queue.add(key)

    def forget(self, key: Key) -> None:
        """Drop the desired status of the object at ``key``."""
        self._desired.pop(key, None)
        self._queue.forget(key)

    def enqueue(self, key: Key) -> None:
        """Compare a changed object again: another writer may have overwritten its status."""
        if key in self._desired:
            self._queue.add(key)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    async def _reconcile(self, key: Key) -> None:
        try:
            await self._write_over_newer(key)
        except kube.NotFound:
            return
        except kube.ApiError as error:
            log.warning(
                "status write failed", kind=key[0], namespace=key[1], name=key[2], error=str(error)
            )
            raise RetryError(error.retry_after) from error

    async def _write_over_newer(self, key: Key) -> None:
        """Write, and write again over a newer object if the informer's copy is stale."""
        try:
            await self._write(key, self._current(key))
        except kube.Conflict:
            fresh = await self._client.get(self._resources[key[0]], key[2], namespace=key[1])
            await self._write(key, fresh)

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
