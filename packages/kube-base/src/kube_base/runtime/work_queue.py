"""Work queue: processes each key by one worker at a time and retries failures with back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kube_base.runtime.backoff import Backoff, BackoffPolicy

K = TypeVar("K", bound=Hashable)


class RetryError(Exception):
    """Raised by the work on a key that must be repeated after the key's back-off."""

    def __init__(self, min_delay: float | None = None) -> None:
        """`min_delay`: minimum delay in seconds, for example of a server's Retry-After."""
        super().__init__(min_delay)
        self.min_delay = min_delay


class WorkQueue(Generic[K]):
    """Deduplicating queue of keys.

    - A key that is queued is not added again. Urgent keys are processed before others.
    - Each key is processed by one worker at a time. A key that is added while it is processed is
      processed again.
    - A key whose work raises RetryError is processed again after the key's own back-off. If it is
      processed before that, that attempt replaces the retry.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[None]],
        retries: BackoffPolicy,
        *,
        workers: int = 1,
        debounce: float = 0.0,
    ) -> None:
        """Create an empty queue. It accepts keys at once and processes them in :meth:`run`.

        `workers`: maximum number of keys that are processed concurrently. `debounce`: minimum time
        in seconds between the end of the work on a key and its next start.
        """
        self._work, self._retries = work, retries
        self._workers, self._debounce = workers, debounce
        self._ready: dict[K, None] = {}
        self._urgent: dict[K, None] = {}
        self._active: set[K] = set()
        """Keys that are processed now, or were processed less than `debounce` seconds ago."""
        self._added_meanwhile: dict[K, bool] = {}
        """Active keys that must be processed again; True for urgent ones."""
        self._backoffs: dict[K, Backoff] = {}
        self._pending_retries: dict[K, asyncio.TimerHandle] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._idle: list[asyncio.Future[None]] = []
        """Workers that wait for a key."""
        self._stopping = False

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Queue a key. A queue that stops ignores it."""
        if self._stopping:
            return
        if key in self._active:
            self._added_meanwhile[key] = urgent or self._added_meanwhile.get(key, False)
        else:
            self._enqueue(key, urgent=urgent)

    def add_after(self, key: K, seconds: float) -> None:
        """Queue a key after a delay in seconds. Call this while the event loop runs."""
        self._call_later(seconds, self.add, key)

    def failures(self, key: K) -> int:
        """Return the number of consecutive failures of a key."""
        return self._backoffs[key].failures if key in self._backoffs else 0

    def forget(self, key: K) -> None:
        """Reset the back-off of a key and drop its retry. Call this when its object is gone."""
        self._backoffs.pop(key, None)
        self._cancel_retry(key)

    def stop(self) -> None:
        """Let :meth:`run` return when all queued keys are processed. Delays and retries end."""
        self._stopping = True
        self._wake(self._workers)

    async def run(self) -> None:
        """Process keys until stopped or cancelled. The queue is empty afterwards.

        An exception of the work other than RetryError ends this and is raised in a group.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._process_keys())
        finally:
            self._clear()

    async def _process_keys(self) -> None:
        while await self._has_next():
            ready = self._urgent or self._ready
            key = next(iter(ready))
            del ready[key]
            self._active.add(key)
            await self._process(key)
            if self._debounce:
                self._call_later(self._debounce, self._release, key)
            else:
                self._release(key)

    async def _has_next(self) -> bool:
        """Wait for a key. Return False if the queue stops and there is none."""
        while not (self._urgent or self._ready):
            if self._stopping and not self._added_meanwhile:
                return False
            self._idle.append(asyncio.get_running_loop().create_future())
            await self._idle[-1]
        return True

    async def _process(self, key: K) -> None:
        self._cancel_retry(key)
        try:
            await self._work(key)
        except RetryError as error:
            backoff = self._backoffs.setdefault(key, Backoff(self._retries))
            loop, delay = asyncio.get_running_loop(), backoff.failed(error.min_delay)
            self._pending_retries[key] = loop.call_later(delay, self._retry, key)
        else:
            self._backoffs.pop(key, None)

    def _retry(self, key: K) -> None:
        del self._pending_retries[key]
        self.add(key)

    def _cancel_retry(self, key: K) -> None:
        if (pending := self._pending_retries.pop(key, None)) is not None:
            pending.cancel()

    def _release(self, key: K) -> None:
        self._active.discard(key)
        if key in self._added_meanwhile:
            self._enqueue(key, urgent=self._added_meanwhile.pop(key))
        elif self._stopping:
            self._wake(self._workers)

    def _enqueue(self, key: K, *, urgent: bool) -> None:
        if urgent or key in self._urgent:
            self._ready.pop(key, None)
            self._urgent[key] = None
        else:
            self._ready[key] = None
        self._wake(1)

    def _wake(self, workers: int) -> None:
        for idle in self._idle[:workers]:
            if not idle.done():
                idle.set_result(None)
        del self._idle[:workers]

    def _call_later(self, seconds: float, call: Callable[[K], None], key: K) -> None:
        def on_time() -> None:
            self._timers.discard(timer)
            call(key)

        timer = asyncio.get_running_loop().call_later(seconds, on_time)
        self._timers.add(timer)

    def _clear(self) -> None:
        for timer in (*self._timers, *self._pending_retries.values()):
            timer.cancel()
        for state in (self._timers, self._pending_retries, self._backoffs):
            state.clear()
        for keys in (self._ready, self._urgent, self._active, self._added_meanwhile, self._idle):
            keys.clear()
        self._stopping = False
