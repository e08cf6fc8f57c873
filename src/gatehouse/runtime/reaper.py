"""Reaper of orphaned child processes, for an agent that runs as PID 1."""

from __future__ import annotations

import asyncio
import contextlib
import os

from gatehouse.runtime import procfs
from gatehouse.runtime.watched_process import WatchedProcess

_POLL_SECONDS = 1.0


def reap() -> list[int]:
    """Reap every dead child that no other code waits for, and return their pids.

    Processes started by the agent are either watched, in a session of their own, or waited for
    where they were started, in the agent's session. Only other children may be reaped here;
    otherwise an exit status would be lost.
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
    """Reap every `POLL_SECONDS` until cancelled. The cost is negligible if there are no orphans."""
    while True:
        reap()
        await asyncio.sleep(_POLL_SECONDS)
