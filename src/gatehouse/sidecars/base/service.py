"""Interface between a sidecar and its process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class InvalidConfigError(Exception):
    """An invalid configuration. The message names the field and the problem."""


class SidecarService(Protocol):
    """Function of a sidecar, served over sockets in a directory."""

    idle: asyncio.Event
    """Set while there is no configuration and no open connection."""

    async def serve(self, configurations: Sequence[Path]) -> None:
        """Serve these configurations, and stop serving others after the linger time.

        All or nothing: raises InvalidConfigError without applying any new configuration.
        """

    async def housekeeping(self) -> None:
        """Run periodic tasks until cancelled."""

    async def drain(self) -> None:
        """Stop accepting, and wait for open connections to finish."""
