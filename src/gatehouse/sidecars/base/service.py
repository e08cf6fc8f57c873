"""What a companion is to its process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class RefusedError(Exception):
    """A description that cannot be followed; the message says which part, and why."""


class Service(Protocol):
    """One for NGINX, over sockets in a directory."""

    idle: asyncio.Event
    """Set while nobody needs it: nothing is asked for, and nobody is being served."""

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Serve what ``configurations`` describe, and in a while nothing else.

        All of it or, raising RefusedError, nothing new.
        """

    async def housekeeping(self) -> None:
        """Do what is to be done now and then, until cancelled."""

    async def drain(self) -> None:
        """Take no more, and let what is being served finish."""
