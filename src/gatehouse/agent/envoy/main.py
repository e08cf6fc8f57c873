"""The order of the life of an agent that runs an Envoy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import structlog

from gatehouse.agent import lifecycle, sidecars
from gatehouse.agent.envoy import binary as binaries
from gatehouse.agent.envoy import kube_metrics, paths
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.agent.envoy.bootstrap import bootstrap
from gatehouse.agent.envoy.downstream import Downstream
from gatehouse.agent.envoy.metrics import FAMILIES, page
from gatehouse.agent.envoy.relay import Relay
from gatehouse.agent.envoy.resource_store import ResourceStore
from gatehouse.agent.envoy.sidecar_manager import SidecarManager
from gatehouse.agent.envoy.supervisor import Supervisor
from gatehouse.agent.envoy.upstream import Upstream
from gatehouse.agent.options import Options
from gatehouse.dataplane import features
from gatehouse.runtime import unix_http
from gatehouse.runtime.health_minimal import HealthServer
from gatehouse.runtime.prometheus import Figure
from gatehouse.sidecars.reviewer import config as reviewing

log = structlog.get_logger("gatehouse.agent")

SIDECAR_FEATURES = (features.ENVOY_AUTHENTICATOR, features.ENVOY_REVIEWER)

POLL_SECONDS = 0.5
"""How often Envoy is asked whether it is ready."""


class Agent:
    """Everything one agent is made of."""

    def __init__(self, options: Options) -> None:
        """Find the Envoy, make the directories; raises EnvoyMissingError or OSError."""
        self.places = paths.of(options.root, options.run_dir)
        self.places.prepare()
        binary = binaries.probe(binaries.find(options.envoy))
        log.info("envoy found", path=str(binary.path), version=binary.version)
        self.disk = ResourceStore(self.places.kept)
        self.relay = Relay(self.disk.load(), SIDECAR_FEATURES)
        self.admin = AdminClient(self.places.admin)
        self.supervisor = Supervisor(binary, self.places, options.workers)
        self.supervisor.on_change = self._forget_readiness
        self.upstream = Upstream(options, self.relay, self._wake)
        owners = sidecars.create(sidecars.ENVOY_SIDECARS, self.places.run, options.drain_seconds)
        self.company = SidecarManager(owners, self.places, self.relay, self._flush)
        self.downstream = Downstream(self.relay, self._flush)
        self.health = HealthServer(self.not_ready, self.metrics)
        self._options = options
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._answer = "Envoy was not asked yet"

    def write_bootstrap(self) -> None:
        """Write what the next Envoy is started with; raises OSError."""
        text = bootstrap(
            node=self._options.pod_name or "envoy",
            service_cluster=self._options.gateway or "gatehouse",
            relay=self.places.relay,
            admin=self.places.admin,
            max_connections=self._options.max_connections,
        )
        self.places.bootstrap.write_text(text, encoding="utf-8")

    def _forget_readiness(self) -> None:
        self._answer = "Envoy was not asked yet"

    def _wake(self) -> None:
        self.downstream.wake()
        self.company.wake()

    def _flush(self) -> None:
        self.upstream.flush()
        if self.relay.changed:
            self._changed.set()

    async def keep(self) -> None:
        """Write what Envoy takes to the disk, until cancelled; what it has taken by then, too."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await asyncio.shield(self._write())
        finally:
            # Whatever is being written is in front: one thread at a time.
            await self._write()

    async def _write(self) -> None:
        async with self._writing:
            try:
                await asyncio.to_thread(self.disk.write, self.relay.changes())
            except OSError as error:
                log.warning("resources not kept", reason=str(error))

    async def look(self) -> None:
        """Ask Envoy now and then whether it is ready, until cancelled."""
        while True:
            self._answer = await self.admin.ready()
            await asyncio.sleep(POLL_SECONDS)

    def not_ready(self) -> str:
        """Why traffic should not come here yet; empty if it should."""
        if not self.supervisor.alive:
            return "Envoy is not running"
        if not self.relay.serving:
            return "no configuration is confirmed to be served"
        return self._answer

    def figures(self) -> Iterator[Figure]:
        """What is measured of this agent at this moment."""
        name = "gatehouse_agent"
        help_ = sidecars.CONNECTED_HELP
        yield Figure(f"{name}_control_plane_connected", help_, self.upstream.connected)
        help_ = "1 if Envoy serves a confirmed configuration, else 0."
        yield Figure(f"{name}_ready", help_, not self.not_ready())
        yield Figure("envoy_up", "1 if Envoy is running, else 0.", self.supervisor.alive)
        help_ = "1 if Envoy is connected to the agent, else 0."
        yield Figure(f"{name}_envoy_connected", help_, self.downstream.connected)
        yield Figure(
            f"{name}_resources", "xDS resources that the agent holds for Envoy.", self.relay.held
        )
        about = "Restarts of Envoy after a crash."
        yield Figure(f"{name}_envoy_restarts", about, self.supervisor.restarts, "counter")
        yield from sidecars.metrics(self.company.owners)

    async def metrics(self) -> bytes:
        """Give what /metrics answers, after asking Envoy and the reviewer."""
        labels = {
            "namespace": self._options.pod_namespace,
            "pod": self._options.pod_name,
            "gateway": self._options.gateway,
        }
        try:
            _, text = await self.admin.get(
                f"/stats/prometheus?usedonly&filter={quote(FAMILIES, safe='')}"
            )
        except OSError:
            text = ""
        text = kube_metrics.renamed(text)
        text += await unix_http.get(self.places.run / reviewing.REVIEWER, "/metrics") or ""
        return page(self.figures(), text, labels)


async def run(options: Options, stop: asyncio.Event) -> None:
    """Run an agent until ``stop`` is set, then let Envoy drain and end it.

    If cancelled or killed instead, Envoy and its companions go on, and the next agent adopts them.
    Raises EnvoyMissingError, or OSError if a directory or an address cannot be had.
    """
    agent = Agent(options)
    lifecycle.warn_ignored_options(options)
    await agent.downstream.start(agent.places.relay)
    agent.supervisor.adopt()
    agent.write_bootstrap()
    await agent.company.begin()
    await lifecycle.run_until_stopped(options, agent.health, _parts(agent), stop)
    await agent.supervisor.stop(agent.admin, options.shutdown_delay_seconds, options.drain_seconds)
    for companion in agent.company.owners:
        await companion.quit()
    await agent.downstream.stop()
    agent.disk.close()
    log.info("stopped")


async def _parts(agent: Agent) -> None:
    async with asyncio.TaskGroup() as group:
        lifecycle.start_supervision(group, "envoy", agent.supervisor, agent.company.owners)
        group.create_task(agent.company.run())
        group.create_task(agent.upstream.run())
        group.create_task(agent.keep())
        group.create_task(agent.look())
