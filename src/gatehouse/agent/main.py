"""The order of an agent's life."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import structlog

from gatehouse.agent import nginx_binary
from gatehouse.agent.apply import Applier
from gatehouse.agent.descriptions import Describer
from gatehouse.agent.generations import Generations
from gatehouse.agent.health import HealthServer
from gatehouse.agent.link import Link
from gatehouse.agent.options import Options, OptionsError, load_options, options_from_environment
from gatehouse.agent.places import places
from gatehouse.agent.supervision import Supervisor

__all__ = ["Options", "OptionsError", "load_options", "options_from_environment", "run"]

log = structlog.get_logger("gatehouse.agent")


class Agent:
    """Everything one agent is made of."""

    def __init__(self, options: Options) -> None:
        """Find the NGINX and make the directories; raises NginxMissingError or OSError."""
        self.places = places(options.root, options.run_dir)
        self.places.prepare()
        binary = nginx_binary.probe(nginx_binary.find(options.nginx))
        log.info("nginx found", path=str(binary.path), version=binary.version)
        generations = Generations(options.root)
        self.supervisor = Supervisor(binary, self.places)
        self.applier = Applier(
            binary, self.places, generations, self.supervisor, workers=options.workers
        )
        describer = Describer(options, binary, self.supervisor)
        self.link = Link(options, describer, self.applier, generations)
        self.supervisor.on_change = self.link.touch
        self.health = HealthServer(self.not_ready, self.metrics)

    def not_ready(self) -> str:
        """Why traffic should not come here yet; empty if it should."""
        if not self.supervisor.running:
            return "NGINX is not running"
        if not self.applier.confirmed:
            return "no configuration is confirmed to be served"
        return ""

    def metrics(self) -> Mapping[str, float]:
        """What /metrics shows."""
        return {
            "gatehouse_agent_connected": self.link.connected,
            "gatehouse_agent_ready": not self.not_ready(),
            "gatehouse_agent_reloads_total": self.applier.reloads,
            "gatehouse_agent_nginx_restarts_total": self.supervisor.restarts,
        }


async def run(options: Options, stop: asyncio.Event) -> None:
    """Run an agent until ``stop`` is set, then let NGINX drain for at most 25 s and end it.

    If cancelled or killed instead, NGINX goes on serving and the next agent adopts it.
    Raises NginxMissingError, or OSError if a directory or the health address cannot be had.
    """
    agent = Agent(options)
    await agent.applier.begin()
    if options.health_address:
        await agent.health.start(options.health_address)
    living = asyncio.create_task(_live(agent))
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
            await agent.health.stop()
    log.info("draining")
    await agent.supervisor.quit()
    log.info("stopped")


async def _live(agent: Agent) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(agent.supervisor.run())
        group.create_task(agent.supervisor.forward_log())
        await agent.applier.settle()
        group.create_task(agent.link.apply_requests())
        group.create_task(agent.link.run())
