"""Commands beside a container's process, used by hooks and probes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Sequence

Start = Callable[[Sequence[str]], subprocess.Popen[bytes]]
"""Starts a command beside the container's process, with its environment."""


async def run(start: Start, command: Sequence[str]) -> int:
    """Run a command and return its exit status. It is killed if the caller is cancelled.

    Raises OSError if it cannot be started.
    """
    child = start(command)
    try:
        while child.poll() is None:  # noqa: ASYNC110 (not a child of asyncio's)
            await asyncio.sleep(0.02)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
    return child.returncode
