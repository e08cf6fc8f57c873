"""Work on large objects in a thread, while the event loop serves other requests.

Each flow (a user, or the ServiceAccounts of a namespace) has at most one job in the thread's queue,
so that flows take turns. The interpreter switches threads every 5 ms, and only calls into C code
take longer: JSON of :data:`kube_base.types.document_limits.MAX_NODES` nodes about 50 ms.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

Result = TypeVar("Result")

INLINE_BYTES = 16 * 1024
"""Size up to which work is done in the event loop, in at most 50 ms."""

FLOW: ContextVar[str] = ContextVar("flow", default="")
"""Flow of the current request."""

_turns: weakref.WeakValueDictionary[tuple[int, str], asyncio.Lock] = weakref.WeakValueDictionary()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="large-objects")


async def run_offloaded(work: Callable[[], Result], size: int) -> Result:
    """Return the result of `work` on an object of `size` bytes; in the thread if it is large."""
    if size <= INLINE_BYTES:
        return work()
    loop = asyncio.get_running_loop()
    key = (id(loop), FLOW.get())
    turn = _turns.get(key)
    if turn is None:
        turn = _turns[key] = asyncio.Lock()
    async with turn:
        return await loop.run_in_executor(_pool(), work)
