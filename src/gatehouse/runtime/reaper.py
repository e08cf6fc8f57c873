"""Children that came to the agent when their parents died: waited for, as process 1 must."""

from __future__ import annotations

import asyncio
import contextlib
import os

from gatehouse.runtime import procfs
from gatehouse.runtime.watched_process import WatchedProcess

POLL_SECONDS = 1.0


def reap() -> list[int]:
    """Wait for every dead child that nobody here waits for; gives their pids.

    What the agent starts is either watched, in a session of its own, or waited for where it was
    started, in the agent's session: only others may be taken, or a status would be lost.
    """
    own = os.getsid(0)
    reaped = []
    for pid, session in procfs.zombies(os.getpid()):
        if session == own or pid in WatchedProcess.started:
            continue
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                reaped.append(pid)
    return reaped


async def reap_forever() -> None:
    """Do so until cancelled. Costs nothing worth mentioning where there are none."""
    while True:
        reap()
        await asyncio.sleep(POLL_SECONDS)
