"""Commands beside a container's process: what hooks and probes run."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Sequence

Start = Callable[[Sequence[str]], subprocess.Popen[bytes]]
"""Starts words beside the container's process, with its environment."""


async def run(start: Start, command: Sequence[str]) -> int:
    """Run a command to its end, and give its status; one that is not waited for is killed.

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
