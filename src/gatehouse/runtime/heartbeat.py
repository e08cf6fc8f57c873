"""Heartbeats of a child process, which prove to its parent that its event loop runs.

The child writes a byte per second into a pipe. The parent counts a period without any byte as
silence. A pipe needs no port, and no other user of the machine can answer in place of the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

HEARTBEAT_VARIABLE = "GATEHOUSE_HEARTBEAT_FD"
"""Environment variable with the file descriptor into which a child writes."""

PERIOD_SECONDS = 1.0
"""Interval in seconds between two heartbeats."""

_READ_BYTES = 65536
"""Size of a pipe in bytes, as Linux creates it."""


async def send_heartbeats() -> None:
    """Write heartbeats until cancelled. Return at once if the parent expects none."""
    descriptor = int(os.environ.pop(HEARTBEAT_VARIABLE, "-1"))
    if descriptor < 0:
        return
    # Children of this process must not speak for it.
    os.set_inheritable(descriptor, False)
    os.set_blocking(descriptor, False)
    try:
        while True:
            # A stopped parent does not read. It then has bytes enough.
            with contextlib.suppress(BlockingIOError):
                os.write(descriptor, b".")
            await asyncio.sleep(PERIOD_SECONDS)
    except OSError:
        # The parent is gone or reads no longer.
        return
    finally:
        os.close(descriptor)


class HeartbeatPipe:
    """The parent's end of the pipe of one child."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        """Descriptor for the child. :meth:`close_writing` closes the parent's copy."""
        os.set_blocking(self._reading, False)

    def close_writing(self) -> None:
        """Close the parent's copy of the child's end, after the start of the child."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        self.close_writing()
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1

    def has_beaten(self) -> bool:
        """Return whether the child wrote a heartbeat since the last call."""
        try:
            return bool(os.read(self._reading, _READ_BYTES))
        except BlockingIOError:
            return False
