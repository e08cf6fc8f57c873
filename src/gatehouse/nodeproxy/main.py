"""Start-up, reconciliation and shutdown of a node proxy."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from gatehouse.nodeproxy import network_interface, proxies, socket_stats
from gatehouse.nodeproxy.commands import CommandError
from gatehouse.nodeproxy.metrics import NodeMetrics
from gatehouse.nodeproxy.node_network import NodeNetwork
from gatehouse.nodeproxy.options import NodeProxyOptions
from gatehouse.nodeproxy.supervisor import LocalProxySupervisor
from gatehouse.runtime.health import HealthServer
from kube_base.runtime import open_files

log = structlog.get_logger("gatehouse.nodeproxy")

_DEBOUNCE_SECONDS = 0.05
"""Debounce time in seconds, because changes come in groups."""

_RETRY_SECONDS = 2.0
"""Time in seconds until the next attempt after a failure."""


async def run_node_proxy(options: NodeProxyOptions, stop: asyncio.Event) -> None:
    """Serve until `stop` is set.

    Raises OptionsError, CommandError or OSError if it cannot start.
    """
    open_files.raise_limit()
    proxy = proxies.choose(options)
    node = NodeNetwork(options)
    supervisor = LocalProxySupervisor(proxy, options.directory)
    # The configuration test does not bind, but needs the address families.
    await node.ensure()
    await supervisor.prepare()
    await supervisor.adopt()
    metrics = NodeMetrics(options, node, supervisor, options.directory / proxies.METRICS_SOCKET)

    def not_ready() -> str:
        if node.problem:
            return node.problem
        if not supervisor.running:
            return f"{proxy.kind} is not running"
        unserved = socket_stats.addresses_without_listener(options)
        return f"{proxy.kind} does not listen on {unserved}" if unserved else ""

    server = HealthServer(not_ready, metrics.text)
    await server.start(options.probes)
    tasks = [
        asyncio.create_task(supervisor.run()),
        asyncio.create_task(_reconcile(node, options.interval)),
    ]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        await _shut_down(options, node, supervisor, tasks)
    finally:
        stopping.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        await server.stop()


async def _shut_down(
    options: NodeProxyOptions,
    node: NodeNetwork,
    supervisor: LocalProxySupervisor,
    tasks: list[asyncio.Task[None]],
) -> None:
    """Stop the proxy after its connections. Remove the network configuration if configured."""
    running, reconciling = tasks
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    # Keep the addresses until the last connection has ended.
    await supervisor.quit()
    reconciling.cancel()
    await asyncio.gather(reconciling, return_exceptions=True)
    if options.cleanup:
        await node.remove()


async def _reconcile(node: NodeNetwork, interval: float) -> None:
    """Reconcile the node's network at each change and after each interval, until cancelled."""
    woken = asyncio.Event()
    watching = asyncio.create_task(_watch(woken))
    try:
        while True:
            pause = _RETRY_SECONDS if node.problem else interval
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await woken.wait()
            await asyncio.sleep(_DEBOUNCE_SECONDS)
            woken.clear()
            with contextlib.suppress(CommandError):
                await node.ensure()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(woken: asyncio.Event) -> None:
    """Set `woken` at each change that the kernel reports. Without reports, the interval remains."""
    while True:
        try:
            async for _ in network_interface.changes():
                woken.set()
        except CommandError as error:
            log.warning("network changes not watched", error=str(error))
        await asyncio.sleep(_RETRY_SECONDS)


async def set_up(options: NodeProxyOptions) -> list[str]:
    """Configure the node's network once. Return what was changed. Raises CommandError."""
    return await NodeNetwork(options).ensure()


async def clean_up(options: NodeProxyOptions) -> list[str]:
    """Remove the network configuration. Return what was changed. Raises CommandError."""
    return await NodeNetwork(options).remove()
