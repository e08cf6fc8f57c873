"""`gatehouse agent` as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from fakes.patience import SECONDS

COMMAND = (sys.executable, "-m", "gatehouse", "agent")


@contextlib.asynccontextmanager
async def agent(
    environ: dict[str, str], log: Path, *arguments: str, inside: Sequence[str] = ()
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run an agent with what it writes on stdout in a file, and on stderr in one beside that.

    ``inside``: words in front, of a program to run it.
    """
    with log.open("ab") as output, log.with_suffix(".stderr").open("ab") as errors:
        process = subprocess.Popen(  # noqa: ASYNC220 (nothing else is to run yet)
            [*inside, *COMMAND, *arguments],
            env=dict(os.environ) | environ,
            stdout=output,
            stderr=errors,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, SECONDS)
