"""Deduplicating work queue with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from gatehouse.apiserver.errors import ApiError

log = structlog.get_logger("gatehouse.apiserver")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""First and maximum delay in seconds of a retry. The delay doubles with every failure."""


class WorkQueue:
    """Calls `work` for every added key. A key that is already queued is not added again.

    The queue starts with `everything`, and accepts keys only while it runs.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[str], Awaitable[None]],
        everything: Callable[[], Iterable[str]],
    ) -> None:
        self._name, self._work, self._everything = name, work, everything
        self._running = False
        self._keys: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._failures: dict[str, int] = {}

    def add(self, key: str) -> None:
        """Queue a key."""
        if self._running:
            self._keys[key] = None
            self._woken.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Queue a key after a delay in seconds."""
        asyncio.get_running_loop().call_later(seconds, self.add, key)

    async def run(self) -> None:
        """Process keys until cancelled."""
        self._running = True
        for key in self._everything():
            self.add(key)
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                while self._keys:
                    key = next(iter(self._keys))
                    del self._keys[key]
                    await self._one(key)
        finally:
            self._running = False
            self._keys.clear()
            self._failures.clear()

    async def _one(self, key: str) -> None:
        try:
            await self._work(key)
        except ApiError as error:
            if error.reason != "NotFound":
                log.debug("reconcile interrupted", worker=self._name, key=key, error=str(error))
                self._retry(key)
        except Exception:
            # One failing object must not block all others.
            log.exception("reconcile failed", worker=self._name, key=key)
            self._retry(key)
        else:
            self._failures.pop(key, None)

    def _retry(self, key: str) -> None:
        times = self._failures[key] = self._failures.get(key, 0) + 1
        self.add_after(key, min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (times - 1)))
