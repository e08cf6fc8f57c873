"""Start-up, supervision and shutdown shared by the NGINX and Envoy agents."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import structlog

from gatehouse.agent import sidecars
from gatehouse.agent.access_log import LogForwarder
from gatehouse.agent.error_log import ErrorLog
from gatehouse.agent.options import AgentOptions
from gatehouse.agent.sidecars import SidecarProcess
from gatehouse.runtime import reaper
from gatehouse.runtime.health import HealthServer

log = structlog.get_logger("gatehouse.agent")


class ProxySupervisor(Protocol):
    """Keeps one proxy running."""

    error_log: ErrorLog
    access_log: LogForwarder

    async def run(self) -> None:
        """Keep the proxy running until cancelled."""


def warn_ignored_options(options: AgentOptions) -> None:
    """Log the options that this agent does not support."""
    if options.ignored:
        log.warning("unsupported options ignored", options=list(options.ignored))


async def run_until_stopped(
    options: AgentOptions,
    health: HealthServer,
    main: Coroutine[Any, Any, None],
    stop: asyncio.Event,
) -> None:
    """Run `main` until `stop` is set, and serve the health endpoints meanwhile.

    Raises what `main` raises, and OSError if the health address is not available.
    """
    if options.health_address:
        try:
            await health.start(options.health_address)
        except BaseException:
            main.close()
            raise
    running = asyncio.create_task(main)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        for task in (running, stopping):
            task.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)
        with contextlib.suppress(OSError):
            await health.stop()
    log.info("draining")


def start_supervision(
    group: asyncio.TaskGroup,
    proxy: str,
    supervisor: ProxySupervisor,
    processes: Sequence[SidecarProcess],
) -> None:
    """Start tasks in `group` that keep the proxy and its sidecars running and forward their logs.

    As PID 1 the agent also reaps orphaned processes.
    """
    if os.getpid() == 1:
        group.create_task(reaper.reap_forever())
    group.create_task(supervisor.run())
    group.create_task(supervisor.error_log.forward(proxy))
    group.create_task(supervisor.access_log.forward())
    sidecars.start_tasks(group, processes)
