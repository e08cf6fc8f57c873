"""What the lives of all agents have in common, whatever proxy each of them owns."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import structlog

from gatehouse.agent import sidecars
from gatehouse.agent.error_log import ErrorLog
from gatehouse.agent.options import Options
from gatehouse.agent.sidecars import SidecarProcess
from gatehouse.runtime import reaper
from gatehouse.runtime.health_minimal import HealthServer

log = structlog.get_logger("gatehouse.agent")


class Supervisor(Protocol):
    """Keeps one proxy alive."""

    error_log: ErrorLog

    async def run(self) -> None:
        """Keep it alive until cancelled."""


def warn_ignored_options(options: Options) -> None:
    """Say what of the options this agent does not have."""
    if options.ignored:
        log.warning("options that this agent does not have", options=list(options.ignored))


async def run_until_stopped(
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


def start_supervision(
    group: asyncio.TaskGroup, proxy: str, supervisor: Supervisor, owners: Sequence[SidecarProcess]
) -> None:
    """Keep a proxy and its companions alive, and pass on what they say, as long as ``group`` lives.

    As process 1 the agent also waits for whatever has lost its parent.
    """
    if os.getpid() == 1:
        group.create_task(reaper.reap_forever())
    group.create_task(supervisor.run())
    group.create_task(supervisor.error_log.forward(proxy))
    sidecars.start_tasks(group, owners)
