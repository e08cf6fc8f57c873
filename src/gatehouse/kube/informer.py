"""Informer: list and watch of one resource with a local store, resume and relist."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing

import structlog

from gatehouse.kube.client import ApiError, Client, Forbidden, Gone, NotFound
from gatehouse.kube.store import Changes, Store
from kube_base.runtime.backoff import Backoff, BackoffPolicy
from kube_base.types.objects import Object, ObjectName
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.kube.informer")

OnChanges = Callable[[Resource, Changes], None]
OnAvailability = Callable[[Resource, str], None]

INFORMER_RETRIES = BackoffPolicy(first=1.0, maximum=30.0, jitter=0.5)
"""Back-off after a failed request."""

ANNOUNCED_RETRIES = BackoffPolicy(first=1.0, maximum=600.0, jitter=0.5)
"""Back-off for a kind that is not served, if something else reports when it may be."""

MIN_WATCH_SECONDS = 1.0
"""Minimum duration in seconds of a watch without events. A shorter one counts as failed, so that a
server that closes every watch immediately does not get thousands of requests per second."""

FAILURES_BEFORE_RELIST = 3
"""Number of consecutive failed watches, other than 410 Gone, before a relist. The server may have
lost its history, for example if its store was restored from a backup."""

MAX_FORBIDDEN_RETRIES = 3
"""Number of consecutive responses 403 after which an optional kind counts as forbidden. During an
upgrade of an installation roles may be updated shortly after the process that needs them starts."""


class Informer:
    """Lists and watches one resource, in all namespaces unless one is given, until cancelled.

    ``on_changes`` is called in the event loop with every non-empty batch of changes, including the
    first list, after ``objects`` is updated. It must not block. An exception of it ends ``run``.
    ``optional``: a resource that the server does not serve, or forbids ``max_forbidden`` times,
    counts as one without objects until it is served. ``metadata_only``: objects have only
    metadata, for kinds with large content. ``announced``: return whether :meth:`retry_now` is
    called when the server may serve a missing kind, so that it is rarely listed until then.
    ``on_availability`` is called with the reason when the kind becomes unavailable, and with an
    empty one when it is available again.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        on_changes: OnChanges,
        namespace: str | None = None,
        label_selector: str = "",
        optional: bool = False,
        max_forbidden: int = MAX_FORBIDDEN_RETRIES,
        metadata_only: bool = False,
        announced: Callable[[], bool] = lambda: False,
        on_availability: OnAvailability = lambda _resource, _reason: None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._resource = resource
        self._on_changes = on_changes
        self._namespace = namespace
        self._label_selector = label_selector
        self._optional = optional
        self._max_forbidden = max_forbidden
        self._metadata_only = metadata_only
        self._announced = announced
        self._on_availability = on_availability
        self._retry_now = asyncio.Event()
        self._forbidden_count = 0
        self._backoff = backoff or Backoff(INFORMER_RETRIES)
        self._clock = clock
        self._store = Store()
        self.synced = asyncio.Event()
        """Set when the first list is in ``objects``; never cleared."""
        self.answered = asyncio.Event()
        """Set when the first list or error has arrived; never cleared."""
        self.unavailable_reason = ""
        """Why the kind cannot be watched; empty while it is watched."""
        self.interruption = ""
        """Error of the last request if it failed; empty if it succeeded."""

    @property
    def objects(self) -> Mapping[ObjectName, Object]:
        """Return the objects as last seen, by (namespace, name). Do not change them."""
        return self._store.objects

    @property
    def forbidden(self) -> bool:
        """Return whether the kind cannot be watched for lack of permission."""
        return self._forbidden_count >= self._max_forbidden

    def retry_now(self) -> None:
        """End a back-off now. Call this when the server may serve the kind now."""
        self._backoff.succeeded()
        self._retry_now.set()

    async def run(self) -> None:
        """List and watch until cancelled. Failures of server or network are retried."""
        while True:
            try:
                if not self._store.resource_version:
                    await self._list()
                await self._watch()
            except Gone as error:
                log.info("history gone, relisting", **self._where(), error=error.message)
                self._store.forget_version()
                # The first time without delay: it is the effect of normal compaction.
                if self._backoff.failures:
                    await self._pause(error)
                else:
                    self._backoff.failed()
            except NotFound as error:
                self._on_missing_kind(f"{self._definition()} is not served")
                await self._pause(error)
            except Forbidden as error:
                self._forbidden_count += 1
                if self._forbidden_count >= self._max_forbidden:
                    self._on_missing_kind(f"forbidden: {error.message}")
                await self._pause(error)
            except ApiError as error:
                rejected = error.status != 0 and error.status != 429
                if rejected and self._backoff.failures >= FAILURES_BEFORE_RELIST:
                    self._store.forget_version()
                await self._pause(error)

    def _on_missing_kind(self, reason: str) -> None:
        """Store why the kind is not available. An optional one counts as synchronized."""
        if reason != self.unavailable_reason:
            if self._optional:
                log.info(
                    "kind not available, continuing without it", **self._where(), reason=reason
                )
            else:
                log.warning("kind not available, waiting for it", **self._where(), reason=reason)
            self.unavailable_reason = reason
            self._on_availability(self._resource, reason)
        if self._optional:
            self.synced.set()

    def _on_available(self) -> None:
        if self.unavailable_reason:
            log.info("kind available", **self._where())
            self.unavailable_reason = ""
            self._on_availability(self._resource, "")
        self.interruption, self._forbidden_count = "", 0

    def _definition(self) -> str:
        resource = self._resource
        group = f".{resource.group}" if resource.group else ""
        return f"{resource.plural}{group}/{resource.version}"

    async def _list(self) -> None:
        result = await self._client.list(
            self._resource,
            self._namespace,
            label_selector=self._label_selector,
            metadata_only=self._metadata_only,
        )
        self._on_available()
        self._publish(self._store.replace(result.items, result.resource_version))
        self.answered.set()
        if not self.synced.is_set():
            log.debug("informer synchronized", **self._where(), objects=len(result.items))
            self.synced.set()

    async def _watch(self) -> None:
        started, received = self._clock(), False
        batches = self._client.watch_batches(
            self._resource,
            self._namespace,
            resource_version=self._store.resource_version,
            label_selector=self._label_selector,
            metadata_only=self._metadata_only,
        )
        async with aclosing(batches) as stream:
            async for events in stream:
                received = True
                self._backoff.succeeded()
                self._on_available()
                self._publish(self._store.receive(events))
        if not received and self._clock() - started < MIN_WATCH_SECONDS:
            await self._pause(None)
        else:
            self._backoff.succeeded()
            self.interruption = ""

    def _publish(self, changes: Changes) -> None:
        if changes:
            self._on_changes(self._resource, changes)

    async def _pause(self, error: ApiError | None) -> None:
        delay = self._backoff.failed(error.retry_after if error else None)
        if isinstance(error, NotFound) and self._announced():
            delay = max(delay, ANNOUNCED_RETRIES.delay(self._backoff.failures))
        message = str(error) if error else "the server closed the watch immediately"
        self.interruption = message
        self.answered.set()
        reported = isinstance(error, NotFound | Forbidden) and self.unavailable_reason
        log_method = log.debug if reported else log.warning
        log_method("watch interrupted", **self._where(), error=message, retry_in=round(delay, 2))
        self._retry_now.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._retry_now.wait()

    def _where(self) -> dict[str, str]:
        return {"kind": self._resource.kind, "namespace": self._namespace or ""}
