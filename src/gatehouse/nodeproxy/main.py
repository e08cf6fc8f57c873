"""The order of a node proxy's life."""

from __future__ import annotations

import asyncio
import contextlib
import resource

import structlog

from gatehouse.nodeproxy import network_interface, proxies, socket_stats
from gatehouse.nodeproxy.commands import CommandError
from gatehouse.nodeproxy.metrics import NodeMetrics
from gatehouse.nodeproxy.node_network import Node
from gatehouse.nodeproxy.options import Options
from gatehouse.nodeproxy.supervisor import Supervisor
from gatehouse.runtime.health_minimal import HealthServer

log = structlog.get_logger("gatehouse.nodeproxy")

SETTLE_SECONDS = 0.05
"""Changes come in flocks; what follows so soon is looked at together."""

RETRY_SECONDS = 2.0
"""How long after a failure everything is tried again."""


async def run(options: Options, stop: asyncio.Event) -> None:
    """Serve until ``stop``. Raises OptionsError, CommandError or OSError if it cannot begin."""
    _raise_limit()
    proxy = proxies.choose(options)
    node = Node(options)
    supervisor = Supervisor(proxy, options.directory)
    # The proxy's test of its configuration binds nothing, but needs the addresses' families.
    await node.ensure()
    await supervisor.prepare()
    await supervisor.adopt()
    figures = NodeMetrics(options, node, supervisor, options.directory / proxies.FIGURES)

    def trouble() -> str:
        if node.trouble:
            return node.trouble
        if not supervisor.alive:
            return f"{proxy.kind} does not run"
        deaf = socket_stats.addresses_without_listener(options)
        return f"{proxy.kind} does not listen at {deaf}" if deaf else ""

    server = HealthServer(trouble, figures.text)
    await server.start(options.probes)
    tasks = [
        asyncio.create_task(supervisor.run()),
        asyncio.create_task(keep(node, options.interval)),
    ]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        await _end(options, node, supervisor, tasks)
    finally:
        stopping.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        await server.stop()


async def _end(
    options: Options, node: Node, supervisor: Supervisor, tasks: list[asyncio.Task[None]]
) -> None:
    """End the proxy after its connections, and take away what was made if that is asked for."""
    running, keeping = tasks
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    # The address stays until the last connection to it is over.
    await supervisor.quit()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    if options.cleanup:
        await node.remove()


async def keep(node: Node, interval: float) -> None:
    """Put the node in order whenever something changes, and after each interval."""
    woken = asyncio.Event()
    watching = asyncio.create_task(_watch(woken))
    try:
        while True:
            pause = RETRY_SECONDS if node.trouble else interval
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await woken.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            woken.clear()
            with contextlib.suppress(CommandError):
                await node.ensure()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(woken: asyncio.Event) -> None:
    """Wake on each change that the kernel tells of; where it does not, intervals must do."""
    while True:
        try:
            async for _ in network_interface.changes():
                woken.set()
        except CommandError as error:
            log.warning("changes are not followed", reason=str(error))
        await asyncio.sleep(RETRY_SECONDS)


def _raise_limit() -> None:
    """Take all the files that may be had: each connection of the proxy is two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def set_up(options: Options) -> list[str]:
    """Put the node in order once; gives what was done. Raises CommandError."""
    return await Node(options).ensure()


async def clean_up(options: Options) -> list[str]:
    """Take away what was made; gives what was done. Raises CommandError."""
    return await Node(options).remove()
