"""Work queue of one controller, which accepts keys while this server runs the controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import structlog

from kube_api_server.errors import StatusError
from kube_api_server.storage.entries import UnavailableError
from kube_base.runtime.backoff import BackoffPolicy
from kube_base.runtime.work_queue import RetryError, WorkQueue

log = structlog.get_logger("apiserver")

_RETRIES = BackoffPolicy(first=0.1, maximum=30.0)
"""Back-off of a key after a failure."""


class ReconcileQueue:
    """Calls `work` for every added key and retries it after any failure except NotFound.

    The queue starts with `initial_keys`, and accepts keys only while it runs.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[str], Awaitable[None]],
        initial_keys: Callable[[], Iterable[str]],
        *,
        debounce: float = 0.0,
    ) -> None:
        self._name, self._work, self._initial_keys = name, work, initial_keys
        self._running = False
        self._queue = WorkQueue(self._reconcile, _RETRIES, debounce=debounce)

    def add(self, key: str) -> None:
        """Queue a key."""
        if self._running:
            self._queue.add(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Queue a key after a delay in seconds."""
        if self._running:
            self._queue.add_after(key, seconds)

    async def run(self) -> None:
        """Process keys until cancelled."""
        self._running = True
        for key in self._initial_keys():
            self.add(key)
        try:
            await self._queue.run()
        finally:
            self._running = False

    async def _reconcile(self, key: str) -> None:
        try:
            await self._work(key)
        except (StatusError, UnavailableError) as error:
            if getattr(error, "reason", "") != "NotFound":
                log.debug("reconcile interrupted", controller=self._name, key=key, error=str(error))
                raise RetryError from error
        except Exception as error:
            # One failing object must not block all others.
            log.exception("reconcile failed", controller=self._name, key=key)
            raise RetryError from error
