"""Writes statuses that differ from the API server's, with retries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.kinds import Record
from gatehouse.incremental.query import Key
from gatehouse.kube import client as kube
from kube_base.runtime.backoff import BackoffPolicy
from kube_base.runtime.work_queue import RetryError, WorkQueue
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.status")

_WORKERS = 8
"""Number of concurrent writes."""

_RETRIES = BackoffPolicy(first=0.2, maximum=30.0)
"""Back-off of an object after a failed write."""


OnWritten = Callable[[Mapping[str, Any], Mapping[str, Any] | None, Mapping[str, Any]], None]
"""Receives an object, its status before, and the status that was written."""


class _Written(msgspec.Struct):
    """An object as last written here, until the informer has this version or a newer one."""

    newest: Object
    superseded: set[str]
    """Versions known to be older."""


class StatusWriter:
    """Writes the desired status of each object. Only the newest desired status is written."""

    def __init__(
        self,
        client: kube.Client,
        resources: Mapping[str, Resource],
        current: Callable[[Key], Mapping[str, Any] | None],
        on_written: OnWritten = lambda *_: None,
    ) -> None:
        """``on_written`` is called after each write."""
        self._on_written = on_written
        self._client = client
        self._resources = resources
        self._current = current
        self._desired: dict[Key, combined.Status] = {}
        self._records: dict[Key, Record] = {}
        """The newest record of each object, which may be newer than that of its status."""
        self._written: dict[Key, _Written] = {}
        self._queue = WorkQueue(self._reconcile, _RETRIES, workers=_WORKERS)
        self.writes = 0
        """Statuses written so far."""

    def set_desired(self, key: Key, status: combined.Status) -> None:
        """Set the desired status of the object at ``key`` and write it soon."""
        self._desired[key] = status
        self._queue.add(key)

    def set_record(self, key: Key, record: Record | None) -> None:
        """Set the record of the object at ``key``, if it has one, and write a new one soon.

        It does not wait for data planes, as statuses do: after a restart, the owner of a hostname
        must be known from the moment when the hostname is served.
        """
        if record is not None and record != self._records.get(key):
            self._records[key] = record
            self._queue.add(key, urgent=True)

    def forget(self, key: Key) -> None:
        """Drop the desired status and the record of the object at ``key``."""
        self._desired.pop(key, None)
        self._records.pop(key, None)
        self._written.pop(key, None)
        self._queue.forget(key)

    def enqueue(self, key: Key) -> None:
        """Compare a changed object again: another writer may have overwritten its status."""
        if key in self._desired or key in self._records:
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
        """Write, and write again over a newer object if the known one is stale."""
        try:
            await self._write(key, self._newest(key))
        except kube.Conflict:
            fresh = await self._client.get(self._resources[key[0]], key[2], namespace=key[1])
            await self._write(key, fresh)

    def _newest(self, key: Key) -> Mapping[str, Any] | None:
        """Return the newest known version: the informer's copy misses writes of a moment ago."""
        current, own = self._current(key), self._written.get(key)
        if own is not None and current is not None and _version(current) in own.superseded:
            return own.newest
        self._written.pop(key, None)
        return current

    async def _write(self, key: Key, current: Mapping[str, Any] | None) -> None:
        if current is None:
            return
        before = current.get("status")
        status = self._merged(key, before)
        if status == before:
            return
        body = {**current, "status": status}
        written = await self._client.update_status(self._resources[key[0]], body)
        own = self._written.get(key)
        superseded = {_version(current), *(own.superseded if own else ())}
        self._written[key] = _Written(written, superseded)
        self.writes += 1
        self._on_written(current, before, status or {})
        log.debug("status written", kind=key[0], namespace=key[1], name=key[2])

    def _merged(self, key: Key, status: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the status to write, from the present one."""
        desired, record = self._desired.get(key), self._records.get(key)
        if desired is not None:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status = combined.merge_combined_status(key[0], status, desired, now) or status
        return status if record is None else record.merged_into(status or {})


def _version(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])
