"""Keeps a mirror of one collection: list, watch, resume, and list again when told to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing

import structlog

from gatehouse.apis.resources import Resource
from gatehouse.kube.backoff import Backoff
from gatehouse.kube.client import ApiError, Client, Forbidden, Gone, NotFound
from gatehouse.kube.store import Changes, Name, Object, Store

log = structlog.get_logger("gatehouse.kube.informer")

OnChanges = Callable[[Resource, Changes], None]

MIN_WATCH_SECONDS = 1.0
"""Seconds. A watch that ends sooner without any event counts as failed, lest a server that closes
every watch at once be asked thousands of times a second."""

REFUSALS_BEFORE_RELIST = 3
"""A server that answers a watch with an error this often in a row, without calling the version
gone, may have lost its history (a store put back to a backup): only a new list helps then."""

MAX_FORBIDDEN_RETRIES = 3
"""Refusals in a row after which an optional kind counts as forbidden: while an installation is
upgraded, roles may be written a moment after the process that needs them starts."""


class Informer:
    """Mirrors one resource (of all namespaces unless one is named) until cancelled.

    ``on_changes`` is called in the event loop with every non-empty batch of changes, the first
    list included, after ``objects`` shows them; it must not block. What it raises ends ``run``.
    ``optional``: a server that does not know the resource, or forbids it ``patience`` times,
    counts as one that has no objects of it, until it gives them. ``metadata_only``: objects have
    nothing but their metadata, for kinds of which the rest is large.
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
        patience: int = MAX_FORBIDDEN_RETRIES,
        metadata_only: bool = False,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._resource = resource
        self._on_changes = on_changes
        self._namespace = namespace
        self._label_selector = label_selector
        self._optional = optional
        self._patience = patience
        self._metadata_only = metadata_only
        self._urged = asyncio.Event()
        self._refusals = 0
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._mirror = Store()
        self.synced = asyncio.Event()
        """Set when the first list is in ``objects``, and never cleared."""
        self.trouble = ""
        """Why nothing is known of this kind, or nothing new; empty while it is followed."""

    @property
    def objects(self) -> Mapping[Name, Object]:
        """The objects now, by (namespace, name). Do not change them."""
        return self._mirror.objects

    def retry_now(self) -> None:
        """Ask again at once where the server is waited for: it may serve the kind now."""
        self._backoff.reset()
        self._urged.set()

    async def run(self) -> None:
        """Mirror for ever; no failure of the server or the network ends it."""
        while True:
            try:
                if not self._mirror.resource_version:
                    await self._list()
                await self._watch()
            except Gone as error:
                log.info("history gone, listing again", **self._where(), reason=error.message)
                self._mirror.forget_version()
                # The first time at once: this is how compaction looks, nothing is broken.
                if self._backoff.failures:
                    await self._pause(error)
                else:
                    self._backoff.next_delay()
            except NotFound as error:
                self._on_missing_kind(f"{self._definition()} is not served here")
                await self._pause(error)
            except Forbidden as error:
                self._refusals += 1
                if self._refusals >= self._patience:
                    self._on_missing_kind(f"forbidden: {error.message}")
                await self._pause(error)
            except ApiError as error:
                refused = error.status != 0 and error.status != 429
                if refused and self._backoff.failures >= REFUSALS_BEFORE_RELIST:
                    self._mirror.forget_version()
                await self._pause(error)

    def _on_missing_kind(self, trouble: str) -> None:
        """Note that the server does not give the kind; an optional one is done without."""
        if trouble != self.trouble:
            what = "going on without" if self._optional else "waiting for it"
            say = log.info if self._optional else log.warning
            say(f"kind missing, {what}", **self._where(), reason=trouble)
        self.trouble = trouble
        if self._optional:
            self.synced.set()

    def _found(self) -> None:
        if self.trouble:
            log.info("kind is there", **self._where())
        self.trouble, self._refusals = "", 0

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
        self._found()
        self._publish(self._mirror.replace(result.items, result.resource_version))
        if not self.synced.is_set():
            log.debug("synced", **self._where(), objects=len(result.items))
            self.synced.set()

    async def _watch(self) -> None:
        started, received = self._clock(), False
        batches = self._client.watch_batches(
            self._resource,
            self._namespace,
            resource_version=self._mirror.resource_version,
            label_selector=self._label_selector,
            metadata_only=self._metadata_only,
        )
        async with aclosing(batches) as stream:
            async for events in stream:
                received = True
                self._backoff.reset()
                self._found()
                self._publish(self._mirror.receive(events))
        if not received and self._clock() - started < MIN_WATCH_SECONDS:
            await self._pause(None)
        else:
            self._backoff.reset()

    def _publish(self, changes: Changes) -> None:
        if changes:
            self._on_changes(self._resource, changes)

    async def _pause(self, error: ApiError | None) -> None:
        delay = self._backoff.next_delay(error.retry_after if error else None)
        message = str(error) if error else "the server ended the watch at once"
        told = isinstance(error, NotFound | Forbidden) and self.trouble
        say = log.debug if told else log.warning
        say("watch interrupted", **self._where(), error=message, retry_in=round(delay, 2))
        self._urged.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._urged.wait()

    def _where(self) -> dict[str, str]:
        return {"kind": self._resource.kind, "namespace": self._namespace or ""}
