"""What the lives of all agents have in common, whatever proxy each of them owns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import structlog

from gatehouse.agent.health import HealthServer
from gatehouse.agent.options import Options

log = structlog.get_logger("gatehouse.agent")


def begin(options: Options) -> None:
    """Say what of the options this agent does not have."""
    if options.left_out:
        log.warning("options that this agent does not have", options=list(options.left_out))


async def live(
    options: Options, health: HealthServer, parts: Coroutine[Any, Any, None], stop: asyncio.Event
) -> None:
    """Run ``parts`` until ``stop`` is set, answering probes meanwhile.

    Raises what ``parts`` raises, and OSError if the health address cannot be had.
    """
    if options.health_address:
        try:
            await health.start(options.health_address)
        except BaseException:
            parts.close()
            raise
    living = asyncio.create_task(parts)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({living, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            living.result()
    finally:
        for task in (living, stopping):
            task.cancel()
        await asyncio.gather(living, stopping, return_exceptions=True)
        with contextlib.suppress(OSError):
            await health.stop()
    log.info("draining")
