"""The order of an agent's life."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import structlog

from gatehouse.agent import nginx_binary
from gatehouse.agent.apply import Applier
from gatehouse.agent.companions import companions
from gatehouse.agent.descriptions import Describer
from gatehouse.agent.generations import Generations
from gatehouse.agent.health import HealthServer
from gatehouse.agent.link import Link
from gatehouse.agent.live import Live
from gatehouse.agent.nameserver import Nameserver
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
        self.generations = Generations(options.root)
        self.nameserver = Nameserver()
        self.supervisor = Supervisor(binary, self.places)
        self.companions = companions(self.places)
        self.applier = Applier(
            binary,
            self.places,
            self.generations,
            self.supervisor,
            Live(self.nameserver, self.generations),
            self.companions,
            workers=options.workers,
        )
        self.resolving = binary.numbers >= nginx_binary.RESOLVING
        describer = Describer(options, binary, self.supervisor, endpoints=self.resolving)
        self.link = Link(options, describer, self.applier, self.generations)
        self.supervisor.on_change = self.link.touch
        self.health = HealthServer(self.not_ready, self.metrics)

    async def start_nameserver(self) -> None:
        """Listen where the NGINX that may still run asks; raises OSError."""
        if self.resolving:
            current = self.generations.current()
            known = 0 if current is None else self.generations.manifest(current).nameserver
            await self.nameserver.start(known)

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
            "gatehouse_agent_endpoint_updates_total": self.applier.endpoint_updates,
            "gatehouse_agent_nameserver_questions_total": self.nameserver.questions,
            "gatehouse_agent_nginx_restarts_total": self.supervisor.restarts,
            **{
                f"gatehouse_agent_{companion.name}_restarts_total": companion.restarts
                for companion in self.companions
            },
        }


async def run(options: Options, stop: asyncio.Event) -> None:
    """Run an agent until ``stop`` is set, then let NGINX drain for at most 25 s and end it.

    If cancelled or killed instead, NGINX and its companions go on, and the next agent adopts them.
    Raises NginxMissingError, or OSError if a directory or the health address cannot be had.
    """
    agent = Agent(options)
    await agent.start_nameserver()
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
    for companion in agent.companions:
        await companion.quit()
    agent.nameserver.stop()
    log.info("stopped")


async def _live(agent: Agent) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(agent.supervisor.run())
        group.create_task(agent.supervisor.error_log.forward("nginx"))
        for companion in agent.companions:
            group.create_task(companion.run())
            group.create_task(companion.log.forward(companion.name))
        await agent.applier.settle()
        group.create_task(agent.applier.shed_seeds())
        group.create_task(agent.link.apply_requests())
        group.create_task(agent.link.run())
