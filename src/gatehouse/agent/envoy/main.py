"""Start-up and shutdown order of an agent that runs an Envoy."""

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
from gatehouse.agent.envoy.supervisor import EnvoySupervisor
from gatehouse.agent.envoy.upstream import ControlPlaneStream
from gatehouse.agent.options import Options
from gatehouse.dataplane import features
from gatehouse.runtime import unix_http
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import Sample
from gatehouse.sidecars.reviewer import config as reviewer

log = structlog.get_logger("gatehouse.agent")

SIDECAR_FEATURES = (features.ENVOY_AUTHENTICATOR, features.ENVOY_REVIEWER)

POLL_SECONDS = 0.5
"""Interval in seconds of Envoy's readiness check."""


class Agent:
    """Components of one agent."""

    def __init__(self, options: Options) -> None:
        """Find Envoy and create the directories. Raises EnvoyMissingError or OSError."""
        self.paths = paths.of(options.root, options.run_dir)
        self.paths.prepare()
        binary = binaries.probe(binaries.find(options.envoy))
        log.info("envoy found", path=str(binary.path), version=binary.version)
        self.store = ResourceStore(self.paths.store)
        self.relay = Relay(self.store.load(), SIDECAR_FEATURES)
        self.admin = AdminClient(self.paths.admin)
        self.supervisor = EnvoySupervisor(binary, self.paths, options.workers)
        self.supervisor.on_change = self._reset_readiness
        self.upstream = ControlPlaneStream(options, self.relay, self._wake)
        processes = sidecars.create(sidecars.ENVOY_SIDECARS, self.paths.run, options.drain_seconds)
        self.sidecar_manager = SidecarManager(processes, self.paths, self.relay, self._flush)
        self.downstream = Downstream(self.relay, self._flush)
        self.health = HealthServer(self.not_ready, self.metrics)
        self._options = options
        self._changed = asyncio.Event()
        self._write_lock = asyncio.Lock()
        self._readiness = "Envoy has not been checked yet"

    def write_bootstrap(self) -> None:
        """Write the bootstrap configuration for the next Envoy. Raises OSError."""
        text = bootstrap(
            node=self._options.pod_name or "envoy",
            service_cluster=self._options.gateway or "gatehouse",
            relay=self.paths.relay,
            admin=self.paths.admin,
            max_connections=self._options.max_connections,
        )
        self.paths.bootstrap.write_text(text, encoding="utf-8")

    def _reset_readiness(self) -> None:
        self._readiness = "Envoy has not been checked yet"

    def _wake(self) -> None:
        self.downstream.wake()
        self.sidecar_manager.wake()

    def _flush(self) -> None:
        self.upstream.flush()
        if self.relay.changed:
            self._changed.set()

    async def store_changes(self) -> None:
        """Write accepted resources to disk until cancelled, and once more then."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await asyncio.shield(self._write())
        finally:
            # Waits for a write in progress: only one thread may write.
            await self._write()

    async def _write(self) -> None:
        async with self._write_lock:
            try:
                await asyncio.to_thread(self.store.write, self.relay.changes())
            except OSError as error:
                log.warning("resources not stored", error=str(error))

    async def poll_readiness(self) -> None:
        """Poll Envoy's readiness until cancelled."""
        while True:
            self._readiness = await self.admin.ready()
            await asyncio.sleep(POLL_SECONDS)

    def not_ready(self) -> str:
        """Return why the agent should get no traffic. Empty if it is ready."""
        if not self.supervisor.running:
            return "Envoy is not running"
        if not self.relay.serving:
            return "no configuration is confirmed to be served"
        return self._readiness

    def samples(self) -> Iterator[Sample]:
        """Yield the current metrics of this agent."""
        name = "gatehouse_agent"
        yield Sample(
            f"{name}_control_plane_connected",
            "1 if the agent is connected to the control plane, else 0.",
            self.upstream.connected,
        )
        help_ = "1 if the proxy serves a confirmed configuration, else 0."
        yield Sample(f"{name}_ready", help_, not self.not_ready())
        yield Sample("envoy_up", "1 if Envoy runs, else 0.", self.supervisor.running)
        help_ = "1 if Envoy is connected to the relay, else 0."
        yield Sample(f"{name}_envoy_connected", help_, self.downstream.connected)
        yield Sample(f"{name}_resources", "Resources held for Envoy.", self.relay.resource_count)
        text = "Envoy processes that died."
        yield Sample(f"{name}_envoy_restarts", text, self.supervisor.restarts, "counter")
        yield from sidecars.metrics(self.sidecar_manager.processes)

    async def metrics(self) -> bytes:
        """Return the /metrics page, after querying Envoy and the reviewer."""
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
        text = kube_metrics.convert(text)
        text += await unix_http.get(self.paths.run / reviewer.REVIEWER, "/metrics") or ""
        return page(self.samples(), text, labels)


async def run(options: Options, stop: asyncio.Event) -> None:
    """Run an agent until `stop` is set, then drain Envoy and stop it.

    If the agent is cancelled or killed instead, Envoy and its sidecars continue, and the next agent
    adopts them. Raises EnvoyMissingError, or OSError if a directory or an address is not available.
    """
    agent = Agent(options)
    lifecycle.warn_ignored_options(options)
    await agent.downstream.start(agent.paths.relay)
    agent.supervisor.adopt()
    agent.write_bootstrap()
    await agent.sidecar_manager.start()
    await lifecycle.run_until_stopped(options, agent.health, _run_tasks(agent), stop)
    await agent.supervisor.stop(agent.admin, options.shutdown_delay_seconds, options.drain_seconds)
    for sidecar in agent.sidecar_manager.processes:
        await sidecar.quit()
    await agent.downstream.stop()
    agent.store.close()
    log.info("stopped")


async def _run_tasks(agent: Agent) -> None:
    async with asyncio.TaskGroup() as group:
        lifecycle.start_supervision(
            group, "envoy", agent.supervisor, agent.sidecar_manager.processes
        )
        group.create_task(agent.sidecar_manager.run())
        group.create_task(agent.upstream.run())
        group.create_task(agent.store_changes())
        group.create_task(agent.poll_readiness())
