"""Limit on the large files that one instance has requested and not read yet."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from weakref import WeakValueDictionary

from gatehouse.transports.agents.call_auth import CallContext
from gatehouse.transports.agents.token_auth import Identity

SMALL_DOWNLOAD_BYTES = 1 << 16
"""Size of files in bytes up to which the number of calls per connection is limit enough."""

MAX_DOWNLOADS = 8
"""Maximum number of larger files that are sent to an instance at a time. gRPC holds each in memory
until its client has read it. Further calls wait."""


class DownloadLimiter:
    """Counts the downloads of each instance."""

    def __init__(self) -> None:
        self._slots: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()

    async def admit(self, identity: Identity, context: CallContext) -> None:
        """Wait for a slot, which is free again when the call ends."""
        key = (identity.gateway, identity.instance)
        slots = self._slots.get(key)
        if slots is None:
            # Calls that wait or run keep it alive.
            slots = self._slots[key] = asyncio.Semaphore(MAX_DOWNLOADS)
        await slots.acquire()

        def release(_: CallContext) -> None:
            slots.release()

        # The stubs of gRPC have a class in place of a callable.
        context.add_done_callback(cast(Any, release))
