"""Deduplicating work queue with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from gatehouse.apiserver.errors import ApiError

log = structlog.get_logger("gatehouse.apiserver")

FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.1, 30.0
"""First and maximum delay in seconds of a retry. The delay doubles with every failure."""


class WorkQueue:
    """Calls `work` for every added key. A key that is already queued is not added again.

    The queue starts with `initial_keys`, and accepts keys only while it runs.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[str], Awaitable[None]],
        initial_keys: Callable[[], Iterable[str]],
    ) -> None:
        self._name, self._work, self._initial_keys = name, work, initial_keys
        self._running = False
        self._keys: dict[str, None] = {}
        self._wakeup = asyncio.Event()
        self._failures: dict[str, int] = {}

    def add(self, key: str) -> None:
        """Queue a key."""
        if self._running:
            self._keys[key] = None
            self._wakeup.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Queue a key after a delay in seconds."""
        asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def run(self) -> None:
        """Process keys until cancelled."""
        self._running = True
        for key in self._initial_keys():
            self.add(key)
        try:
            while True:
                await self._wakeup.wait()
                self._wakeup.clear()
                while self._keys:
                    key = next(iter(self._keys))
                    del self._keys[key]
                    await self._process(key)
        finally:
            self._running = False
            self._keys.clear()
            self._failures.clear()

    async def _process(self, key: str) -> None:
        try:
            await self._work(key)
        except ApiError as error:
            if error.reason != "NotFound":
                log.debug("reconcile interrupted", controller=self._name, key=key, error=str(error))
                self._retry(key)
        except Exception:
            # One failing object must not block all others.
            log.exception("reconcile failed", controller=self._name, key=key)
            self._retry(key)
        else:
            self._failures.pop(key, None)

    def _retry(self, key: str) -> None:
        times = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** (times - 1)))
